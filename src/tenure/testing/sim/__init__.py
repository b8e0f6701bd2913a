"""A seeded, deterministic simulation of the real runtime."""
