"""Steps to a target against batch size: curves, critical batch sizes, and the runs that people have."""
