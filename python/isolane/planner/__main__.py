"""`python -m isolane.planner`."""

from __future__ import annotations

import sys

try:
    from isolane.planner.cli import main
except ImportError as error:
    print(f"isolane: {error}; install the planner: pip install 'isolane[plan]'", file=sys.stderr)
    sys.exit(3)

sys.exit(main())
