"""`tenure jobs`: list, show, follow and change jobs."""
