"""The worker: claims jobs, starts them, and stops in order."""
