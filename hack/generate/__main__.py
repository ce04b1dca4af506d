"""The command line: python -m hack.generate [--check]."""

import sys

from hack.generate.files import main

if __name__ == "__main__":
    sys.exit(main())
