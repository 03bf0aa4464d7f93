"""`python -m batchlens`: the command line."""

from batchlens.cli import main

if __name__ == "__main__":
    main()
