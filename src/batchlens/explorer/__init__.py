"""The theory in a browser: a server for this machine alone, one page, and the same documents as `--json`."""
