"""`tenure jobs`: list, show, follow, cancel, requeue and delete jobs."""
