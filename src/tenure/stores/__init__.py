"""Stores keep leases, jobs and schedules. `contract` is their promise, `memory` the executable
specification of it; SQLite, Redis and PostgreSQL are compared with `memory` in tests.
"""
