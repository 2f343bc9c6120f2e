"""`python -m isolane.pipeline`: what `isolane edge` runs."""

from __future__ import annotations

import sys

from isolane.installing import command

main = command("isolane.pipeline.cli")

if __name__ == "__main__":
    sys.exit(main())
