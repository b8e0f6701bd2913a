"""What the simulated machines do."""
