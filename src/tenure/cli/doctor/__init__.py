"""`tenure doctor`: the state of a store, and what to do about it."""
