"""`python -m wmsched`: the command line, where its script is not on the path."""

from wmsched.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
