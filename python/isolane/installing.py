"""How to install what a part of this package needs besides the package itself: one sentence for every message.

Neither this package nor its native module is in a public package index, so a message never names one. Units: none.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable

__all__ = ["NATIVE", "command", "extra"]

#: How to install the module `isolane_native`.
NATIVE = (
    "run `pip install ./crates/rpc/python` in a checkout of the repository (it needs Rust), or install the wheel "
    "isolane_native-*.whl of a release"
)


def extra(name: str) -> str:
    """How to install the packages of an extra.

    Examples
    --------
    >>> extra("plan")
    "run `pip install './python[plan]'` in a checkout of the repository, or `pip install 'WHEEL[plan]'` with the wheel isolane-*.whl"
    """
    return (
        f"run `pip install './python[{name}]'` in a checkout of the repository, or `pip install 'WHEEL[{name}]'` with the "
        "wheel isolane-*.whl"
    )


def command(module: str) -> Callable[[], int]:
    """`main` of `module`. Ends the process where a package of the extra `plan` is missing."""
    try:
        main: Callable[[], int] = importlib.import_module(module).main
    except ImportError as error:
        print(f"isolane: {error}; {extra('plan')}", file=sys.stderr)
        sys.exit(3)
    except KeyboardInterrupt:
        # During the imports, which take a second. Later `main` says it.
        print("isolane: ended by SIGINT", file=sys.stderr)
        sys.exit(130)
    return main
