"""`python -m waycode` is `waycode`."""

import sys

from waycode.cli import main

sys.exit(main())
