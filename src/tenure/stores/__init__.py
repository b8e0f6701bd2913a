"""Stores keep leases, jobs and schedules for all replicas of a service.

`contract` is the promise of every store, and each store is a package. `connect` creates the store
for a URL.
"""
