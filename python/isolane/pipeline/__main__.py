"""`python -m isolane.pipeline`: what `isolane edge` runs."""

from __future__ import annotations

import sys

from isolane.installing import extra

try:
    from isolane.pipeline.cli import main
except ImportError as error:
    print(f"isolane: {error}; {extra('plan')}", file=sys.stderr)
    sys.exit(3)
except KeyboardInterrupt:
    # During the imports, which take a second. Later `main` says it.
    print("isolane: ended by SIGINT", file=sys.stderr)
    sys.exit(130)

if __name__ == "__main__":
    sys.exit(main())
