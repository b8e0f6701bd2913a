"""The command `tenure`. It needs the extra `cli`; nothing else in the package imports it."""
