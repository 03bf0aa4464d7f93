"""What makes any page: its frame, its style, its figures and the folder it lies in."""
