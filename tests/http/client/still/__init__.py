"""Clients on a clock that stands still, and a network that answers as told."""
