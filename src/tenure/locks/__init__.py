"""Locks, semaphores, elections and run-once: what users take and hold."""
