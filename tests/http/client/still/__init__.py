"""Clients on a clock that stands still, and a network with prepared answers."""
