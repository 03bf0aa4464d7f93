"""The ways in which runs are written down, one in each file."""
