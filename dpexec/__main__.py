"""``python -m dpexec`` is the command line."""

import sys

from dpexec.cli import main

sys.exit(main())
