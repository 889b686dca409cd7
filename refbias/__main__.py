"""``python -m refbias``: see `refbias.cli`."""

import sys

from refbias.cli import main

if __name__ == "__main__":
    sys.exit(main())
