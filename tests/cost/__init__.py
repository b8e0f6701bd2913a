"""The cost of work on each store, in counts that need no clock: see docs/proof.md#cost."""
