"""This process as the store knows it, and the recovery of dead replicas."""
