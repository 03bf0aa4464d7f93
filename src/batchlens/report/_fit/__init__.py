"""The page about one's own runs."""
