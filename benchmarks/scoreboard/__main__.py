"""`python -m benchmarks.scoreboard`."""

import sys

from benchmarks.scoreboard.scoreboard import main

if __name__ == "__main__":
    sys.exit(main())
