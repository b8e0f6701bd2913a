"""Child processes for CPU-bound handlers."""
