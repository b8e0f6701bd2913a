"""The record of this process in the store, and the recovery of dead replicas."""
