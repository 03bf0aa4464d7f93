"""For the training that one already has: what can be measured beside any PyTorch loop."""
