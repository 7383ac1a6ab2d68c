"""`python -m waycode.cli` is `waycode`."""

import sys

from waycode.cli import main

sys.exit(main())
