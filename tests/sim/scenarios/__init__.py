"""Scenarios: what the simulated machines do."""
