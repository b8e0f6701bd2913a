"""Checkers: they take plain histories and return what is wrong."""
