"""`python -m mainspring` is the command line."""

from mainspring.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
