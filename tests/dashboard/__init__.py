"""The dashboard: its routes, its protection, and what it costs the store."""
