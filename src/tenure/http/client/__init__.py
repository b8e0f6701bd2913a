"""Clients of the routes, with and without an event loop."""
