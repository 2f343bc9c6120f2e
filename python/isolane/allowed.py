"""Which code a file may name, and how a class or function is found by its name.

Problem: query files and plans name code as `module:Class`. A file that may name any module can start any program. Method: a
name is accepted if its module is one of

1. `OWN`: the modules of this package that define operators, workloads and utilities;
2. a `module:Class` that an installed distribution declares as an entry point of the group `isolane.operators`; distributions
   in the current folder do not count;
3. a module that the user names (`--allow-module M`), or a module inside that package.

The name is checked before anything is imported. What the module holds must then be a class with the methods of the contract, and
the module that defines the class must be accepted too. Options are compared with the constructor's parameters before the call.
Limits: importing an accepted module runs that module.
"""

from __future__ import annotations

import difflib
import functools
import importlib
import importlib.metadata
import inspect
import os
import re
import sys
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

#: The entry points with which a distribution declares its operators, workloads and utilities.
GROUP = "isolane.operators"

#: The modules of this package that files may name.
OWN = frozenset(
    {
        "isolane.pipeline.observe",
        "isolane.planner.utility",
        "isolane.queries.onnx",
        *(f"isolane.queries.{query}.{part}" for query in ("lidar", "speech", "traffic") for part in ("operators", "query")),
    }
)

_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)
_MEMBER = re.compile(r"[A-Za-z_]\w*", re.ASCII)

#: The modules that the user of this process named.
_NAMED: set[str] = set()


class NameRefused(Exception):
    """A name of code that this process does not accept, or that names something else; the message says which and why."""


def allow(modules: Iterable[str]) -> None:
    """Accepts these modules, and the modules inside them, for the rest of this process."""
    for module in modules:
        if not _MODULE.fullmatch(module):
            raise NameRefused(f"--allow-module {module!r}: write a module's name, such as shop.filters")
        _NAMED.add(module)


def allowed() -> list[str]:
    """The modules that the user named, sorted: a process that is started for the same user needs the same list."""
    return sorted(_NAMED)


def split(name: str) -> tuple[str, str]:
    """Module and member of `module:member`."""
    module, _, member = name.partition(":")
    if not _MODULE.fullmatch(module) or not _MEMBER.fullmatch(member):
        raise NameRefused(f"{name!r} is no name of code: write module:Class, such as isolane.queries.traffic.operators:Sampler")
    return module, member


def is_allowed(name: str) -> bool:
    """Whether `module:member` is accepted. Nothing is imported."""
    module, _ = split(name)
    return _accepts(module) or name in _declared()


def foreign(names: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Of pairs of a role and the name of code, those that are not accepted."""
    return [(role, name) for role, name in names if name and not name.endswith(".onnx") and not is_allowed(name)]


def check(file: object, names: Sequence[tuple[str, str]]) -> None:
    """Raises what a file would run that is not accepted: every such name, and the options that accept it."""
    others = foreign(names)
    if not others:
        return
    modules = sorted({split(name)[0] for _, name in others})
    flags = " ".join(f"--allow-module {module}" for module in modules)
    found = "".join(f"\n  {role}: {name}" for role, name in others)
    raise NameRefused(f"{file}: names code outside isolane, so nothing was run; add {flags} if you trust that code:{found}")


def find_class(name: str, methods: Sequence[str]) -> type:
    """The class of that name, which has these methods."""
    module, kind = _find(name)
    if not inspect.isclass(kind):
        raise NameRefused(f"{name}: is no class, but {type(kind).__name__}; name a class")
    lacks = [f"{method}()" for method in methods if not callable(getattr(kind, method, None))]
    if lacks:
        raise NameRefused(f"{name}: has no {' and no '.join(lacks)}; name a class that has")
    if not _accepts(kind.__module__) and name not in _declared():
        raise NameRefused(f"{name}: {module} imports that class from {kind.__module__}; name it there")
    return kind


def find_function(name: str) -> Callable[..., Any]:
    """The function of that name."""
    _, found = _find(name)
    if not isinstance(found, types.FunctionType):
        raise NameRefused(f"{name}: is no function written in Python, but {type(found).__name__}; name a function")
    return found


def make(name: str, kind: type, options: Mapping[str, Any]) -> Any:
    """An object of that class, made with options that fit its constructor."""
    try:
        inspect.signature(kind).bind(**options)
        hints = typing.get_type_hints(inspect.getattr_static(kind, "__init__"))
    except TypeError as error:
        raise NameRefused(f"{name}: its options do not fit: {error}") from None
    except (ValueError, NameError):
        # A constructor without a signature, or with hints that only its author's tools resolve: it checks its own values.
        hints = {}
    for option, value in options.items():
        if option in hints and not _fits(value, hints[option]):
            raise NameRefused(f"{name}: option {option} = {value!r}: must be {_spelled(hints[option])}")
    return kind(**options)


def _find(name: str) -> tuple[str, Any]:
    module, member = split(name)
    if not is_allowed(name):
        raise NameRefused(
            f"{name}: is not code of isolane and no entry point of {GROUP}; add --allow-module {module} if you trust that code"
        )
    try:
        return module, getattr(importlib.import_module(module), member)
    except ImportError as error:
        raise NameRefused(f"{name}: cannot import {module}: {error}; is it installed?") from error
    except AttributeError:
        near = difflib.get_close_matches(member, dir(sys.modules[module]), 1)
        hint = f" (did you mean {near[0]}?)" if near else ""
        raise NameRefused(f"{name}: {module} has no {member}{hint}") from None


def _accepts(module: str) -> bool:
    parts = module.split(".")
    return module in OWN or any(".".join(parts[: count + 1]) in _NAMED for count in range(len(parts)))


@functools.cache
def _declared() -> frozenset[str]:
    """What installed distributions declare. A directory that merely is the current one is no place of installation."""
    here = os.getcwd()
    path = [one for one in sys.path if one and os.path.realpath(one) != os.path.realpath(here)]
    points = (point for one in importlib.metadata.distributions(path=path) for point in one.entry_points)
    return frozenset(point.value for point in points if point.group == GROUP)


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value from JSON is of a type that a hint names; hints of other types accept any value."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return any(_fits(value, one) for one in typing.get_args(hint))
    if hint is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if hint in (str, bool, type(None)):
        return isinstance(value, hint)
    return True


def _spelled(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) else str(hint)
