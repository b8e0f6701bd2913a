"""Checkers: they take plain histories, whoever wrote them, and return what is wrong."""
