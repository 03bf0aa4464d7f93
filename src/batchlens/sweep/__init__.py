"""Sweeps: which runs there are, where they run, and where their results are kept."""
