"""Apps on the memory store in virtual time, and their events."""

from tests.jobs.conftest import app, faults, make, no_noise, real_make, seen, store

__all__ = ["app", "faults", "make", "no_noise", "real_make", "seen", "store"]
