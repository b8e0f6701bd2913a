"""The worker: claims jobs, starts them, and stops in an orderly way."""
