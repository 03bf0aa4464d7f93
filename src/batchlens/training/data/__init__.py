"""Data sets: what they are, where they come from, how they are read."""
