"""The engine between the public API and the store: it keeps leases, runs jobs and timers, and
recovers from failures.
"""
