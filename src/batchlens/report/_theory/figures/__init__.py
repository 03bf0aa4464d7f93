"""The figures: for each, a function that computes its numbers and one that draws them on a given axis."""
