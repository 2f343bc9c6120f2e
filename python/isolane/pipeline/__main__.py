"""`python -m isolane.pipeline`: what `isolane edge` runs."""

from __future__ import annotations

import sys

from isolane.installing import extra

try:
    from isolane.pipeline.cli import main
except ImportError as error:
    print(f"isolane: {error}; {extra('plan')}", file=sys.stderr)
    sys.exit(3)

if __name__ == "__main__":
    sys.exit(main())
