"""`python -m isolane.planner`."""

from __future__ import annotations

import sys

from isolane.installing import command

main = command("isolane.planner.cli")

sys.exit(main())
