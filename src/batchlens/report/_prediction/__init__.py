"""The page about a prediction."""
