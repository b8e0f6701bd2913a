"""Pure values and decisions. Nothing in here does I/O; only `clock` reads time or randomness."""
