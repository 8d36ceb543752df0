"""``python -m firmware.daemon``."""

import sys

from firmware.daemon.command import main

if __name__ == "__main__":
    sys.exit(main())
