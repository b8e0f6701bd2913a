"""Jobs as plain values, and the rules about them."""
