"""Benchmarks: Tenure beside its peers, in one run."""
