"""How values of users become JSON, come back, and are checked."""
