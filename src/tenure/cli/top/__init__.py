"""`tenure top`: a live view of a store in the terminal."""
