"""From one short run of a network to its scaling curves: measured curvature and noise, and the exact theory."""
