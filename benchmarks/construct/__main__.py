"""`python -m benchmarks.construct`."""

import sys

from benchmarks.construct.run import main

if __name__ == "__main__":
    sys.exit(main())
