"""What an operator must offer to be run, and how one is found by name.

Problem: the runtime does not depend on images or speech, and queries do not depend on processes. Method: `Operator` is the whole
contract; any class with these two methods will do. `module:Class` names one in code that `isolane.allowed` accepts. The class is
made without arguments, or with the options that its plan gives; a path that ends in `.onnx` names a model (`isolane.queries.onnx`). A class that keeps a memory of past items may also have

    state() -> dict[str, Value]        what a successor needs, as an item's payload
    restore(state) -> None             takes it over

and then keeps it when it moves to another tier. A class that is faster with several items at once may also have

    batch_max: int                                      items of one call at most
    process_batch(items) -> list[list[Item]]            for each item those that go on, as `process` would give

and then gets several where several wait. A class that works on an accelerator may also have

    accelerator_ms() -> float                           how long the accelerator has worked for it so far, in milliseconds

and is then planned with that time (`isolane.pipeline.stopwatch`; `isolane.pipeline.cuda` measures it for PyTorch). Limits: one thread
calls an operator; without `process_batch` one item at a time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, TypeAlias, runtime_checkable

from isolane import allowed
from isolane.pipeline.item import Item, Value

#: What an operator's class must have.
METHODS = ("configure", "process")

#: What runs an ONNX file.
ONNX = "isolane.queries.onnx:OnnxOperator"

#: A knob's value as queries spell it.
KnobValue: TypeAlias = int | float | str


class OperatorError(Exception):
    """An operator that cannot be made, or knobs that it refuses; the message names both and the reason."""


@runtime_checkable
class Operator(Protocol):
    """Takes knobs, which hold from the next item on, and turns an item into those that go on (none: it was filtered out)."""

    def configure(self, knobs: Mapping[str, KnobValue]) -> None:
        """New values for some knobs; raises if it refuses one, and then keeps the old ones."""

    def process(self, item: Item) -> list[Item]:
        """The items that go on to the next operator."""


@runtime_checkable
class Remembers(Protocol):
    """An operator whose memory can move with it."""

    def state(self) -> dict[str, Value]:
        """What a successor needs to go on as this one would."""

    def restore(self, state: Mapping[str, Value]) -> None:
        """Takes over what `state` gave elsewhere."""


@runtime_checkable
class Batches(Protocol):
    """An operator that takes several items at once."""

    batch_max: int

    def process_batch(self, items: list[Item]) -> list[list[Item]]:
        """For each item those that go on."""


@runtime_checkable
class Accelerated(Protocol):
    """An operator that knows how long the accelerator worked for it."""

    def accelerator_ms(self) -> float:
        """Milliseconds since the operator was made, over all its calls; it waits for work that was only started."""


def load(implementation: str, options: Mapping[str, Any] | None = None) -> Operator:
    """The operator that `module:Class` names, or the one that runs the ONNX file of that path.

    Only code that `isolane.allowed` accepts is imported; the class and its options are checked before an object is made.
    """
    if implementation.endswith(".onnx"):
        options = {"model": implementation, **(options or {})}
        implementation = ONNX
    try:
        kind = allowed.find_class(implementation, METHODS)
        made: Operator = allowed.make(implementation, kind, options or {})
    except allowed.NameRefused as error:
        raise OperatorError(f"operator {error}") from error
    except Exception as error:
        raise OperatorError(f"operator {implementation}: making it failed: {describe(error)}") from error
    return made


def describe(error: BaseException) -> str:
    """An exception in one line, its kind before its words."""
    words = " ".join(str(error).split())
    return f"{type(error).__name__}: {words}" if words else type(error).__name__
