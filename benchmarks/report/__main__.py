"""`python -m benchmarks.report`."""

import sys

from benchmarks.report.report import main

if __name__ == "__main__":
    sys.exit(main())
