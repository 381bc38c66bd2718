"""`python -m wmsched.toolchain`: print which AutoScheduler TVM is used; `install` installs it."""

import sys

from wmsched.toolchain.install import main

if __name__ == "__main__":
    sys.exit(main())
