"""Old name of `wmsched.toolchain.resolve`; as a command it is ``python -m wmsched.toolchain``."""

import sys

from wmsched.backends import warn
from wmsched.toolchain.install import install, main  # noqa: F401
from wmsched.toolchain.resolve import *  # noqa: F403

warn("wmsched.resolve")

if __name__ == "__main__":
    sys.exit(main())
