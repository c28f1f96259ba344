"""The entry point of `python -m sparklog.testing.sim`."""

import sys

from sparklog.testing.sim.command import main

if __name__ == "__main__":
    sys.exit(main())
