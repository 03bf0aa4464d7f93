"""What to add to a training loop that one has."""
