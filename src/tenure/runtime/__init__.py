"""The moving parts between what users touch and the store: loops that keep, wait and clean up."""
