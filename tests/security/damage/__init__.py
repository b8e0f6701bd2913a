"""The rig of the damage sweep: a scene with every kind of record, junk, and where it can go."""
