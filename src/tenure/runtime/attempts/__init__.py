"""Runs attempts of jobs, and stores how they ended."""
