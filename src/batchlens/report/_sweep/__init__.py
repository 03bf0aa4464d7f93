"""The report on a sweep."""
