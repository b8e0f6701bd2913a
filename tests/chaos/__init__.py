"""Fleets of real processes under faults: python -m tests.chaos, or `make chaos`."""
