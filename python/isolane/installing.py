"""How to install what a part of this package needs besides the package itself: one sentence for every message.

Neither this package nor its native module is in a public package index, so a message never names one. Units: none.
"""

from __future__ import annotations

__all__ = ["NATIVE", "extra"]

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
