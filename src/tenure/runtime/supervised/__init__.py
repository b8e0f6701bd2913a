"""The worker's side of its supervisor: messages, and memory that outlives it."""
