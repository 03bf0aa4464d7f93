"""Where trials run: processes of this machine, or a Ray cluster."""
