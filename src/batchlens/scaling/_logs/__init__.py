"""Runs as people have them: a table of steps, or the log of each run, in whatever way it was written."""
