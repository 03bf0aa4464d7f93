"""The page about measured curvature: spectra over training, beside 1/i, variance against curvature, noise scales."""
