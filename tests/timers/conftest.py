"""Apps for timer tests; the same as for jobs."""

from tests.jobs.conftest import app, faults, make, no_noise, real_make, seen, store

__all__ = ["app", "faults", "make", "no_noise", "real_make", "seen", "store"]
