"""``python -m dpgep``: the same as the command ``dpgep``."""

from dpgep.cli import main

raise SystemExit(main())
