"""`python -m wmsched.toolchain`: where AutoScheduler's TVM is taken from; with `install`, put it there."""

import sys

from wmsched.toolchain.install import main

if __name__ == "__main__":
    sys.exit(main())
