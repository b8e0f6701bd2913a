"""Acquires leases, keeps them alive, and reports their loss."""
