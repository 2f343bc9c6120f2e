"""`python -m isolane.pipeline`: what `isolane pipeline` runs."""

from __future__ import annotations

import sys

from isolane.pipeline.cli import main

if __name__ == "__main__":
    sys.exit(main())
