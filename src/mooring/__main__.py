"""``python -m mooring``: the command line."""

from mooring.cli.main import main

if __name__ == "__main__":
    main()
