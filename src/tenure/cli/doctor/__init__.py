"""`tenure doctor`: examine the store, its workers and its jobs."""
