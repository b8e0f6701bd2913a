"""`tenure locks`: list, show and release locks and semaphores."""
