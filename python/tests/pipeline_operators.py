"""Small operators for the tests of the pipeline runtime: each does one thing, some of them badly.

Units: seconds, where a knob's name ends in `_s`. They are imported by name in other processes, so this folder must be on PYTHONPATH there.
"""

from __future__ import annotations

import os
import pathlib
import signal
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from isolane.pipeline.item import Item, Value


class Pass:
    """Passes every item on, after `work_s` of sleep, with the knob `mark` written into it."""

    def __init__(self) -> None:
        self.knobs: dict[str, Any] = {"mark": 0, "work_s": 0.0}

    def configure(self, knobs: Mapping[str, Any]) -> None:
        """Refuses negative marks and unknown knobs."""
        for name, value in knobs.items():
            if name not in self.knobs:
                raise ValueError(f"no knob {name!r}")
            if value < 0:
                raise ValueError(f"{name} = {value} is negative")
        self.knobs.update(knobs)

    def process(self, item: Item) -> list[Item]:
        """The marked item."""
        if self.knobs["work_s"]:
            time.sleep(self.knobs["work_s"])
        return [item.with_payload(mark=float(self.knobs["mark"]))]


class Waits(Pass):
    """Passes items on once a file is there."""

    def __init__(self, file: str = "") -> None:
        super().__init__()
        self.file = pathlib.Path(file)

    def process(self, item: Item) -> list[Item]:
        """The item, after the file."""
        while not self.file.exists():
            time.sleep(0.01)
        return super().process(item)


class Even(Pass):
    """Drops items with odd ids."""

    def process(self, item: Item) -> list[Item]:
        """The item, if even."""
        return super().process(item) if item.id % 2 == 0 else []


class Twice(Pass):
    """Makes two of one."""

    def process(self, item: Item) -> list[Item]:
        """Both."""
        return [item.with_payload(half=0.0), item.with_payload(half=1.0)]


class Counter(Pass):
    """Remembers how many items it saw; its memory can move."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = 0

    def process(self, item: Item) -> list[Item]:
        """The item with the count."""
        self.seen += 1
        return [one.with_payload(seen=float(self.seen)) for one in super().process(item)]

    def state(self) -> dict[str, Value]:
        """The count."""
        return {"seen": float(self.seen), "history": np.arange(self.seen)}

    def restore(self, state: Mapping[str, Value]) -> None:
        """Goes on from there."""
        self.seen = int(float(state["seen"]))  # type: ignore[arg-type]


class Raises(Pass):
    """Raises on the ids of the knob `on` (comma separated); `times` of -1 means always."""

    def __init__(self, on: str = "", times: int = -1) -> None:
        super().__init__()
        self.on = {int(word) for word in on.split(",") if word}
        self.times = times

    def process(self, item: Item) -> list[Item]:
        """The item, or an exception."""
        if item.id in self.on and self.times != 0:
            self.times -= 1
            raise RuntimeError(f"cannot bear {item.id}")
        return super().process(item)


class Garbage(Pass):
    """Returns what is no list of items for some ids."""

    def process(self, item: Item) -> Any:
        """Garbage of several kinds."""
        return {0: [item], 1: None, 2: [item, "x"], 3: item, 4: [item.with_payload(bad=object())]}[item.id % 5]  # type: ignore[arg-type]


class Dies(Pass):
    """Kills its process on some ids: once (a file remembers) or always."""

    def __init__(self, on: str = "", once: str = "") -> None:
        super().__init__()
        self.on = {int(word) for word in on.split(",") if word}
        self.once = pathlib.Path(once) if once else None

    def process(self, item: Item) -> list[Item]:
        """The item, or the end."""
        if item.id in self.on and not (self.once and self.once.exists()):
            if self.once:
                self.once.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().process(item)


class Hangs(Pass):
    """Never comes back from some ids."""

    def __init__(self, on: str = "") -> None:
        super().__init__()
        self.on = {int(word) for word in on.split(",") if word}

    def process(self, item: Item) -> list[Item]:
        """The item, or nothing, ever."""
        while item.id in self.on:
            time.sleep(3600)
        return super().process(item)


class Batched(Pass):
    """Takes up to four items at once and says how many; waits for a file, raises or hangs at some ids, or returns something else."""

    batch_max = 4

    def __init__(self, file: str = "", on: str = "", hangs: str = "", returns: str = "") -> None:
        super().__init__()
        self.file, self.returns = pathlib.Path(file), returns
        self.on, self.hangs = ({int(word) for word in words.split(",") if word} for words in (on, hangs))

    def process(self, item: Item) -> list[Item]:
        """One item."""
        return self._made(item, 1)

    def process_batch(self, items: list[Item]) -> Any:
        """Several."""
        made = [self._made(item, len(items)) for item in items]
        return {"None": None, "fewer": made[1:], "flat": [each for (each,) in made]}.get(self.returns, made)

    def _made(self, item: Item, of: int) -> list[Item]:
        while not self.file.exists() or item.id in self.hangs:
            time.sleep(0.01)
        if item.id in self.on:
            raise RuntimeError(f"cannot bear {item.id}")
        return [item.with_payload(of=float(of))]


class Camera(Pass):
    """A source that makes frames of `kilobytes`."""

    def __init__(self) -> None:
        super().__init__()
        self.knobs = {"kilobytes": 100}

    def process(self, item: Item) -> list[Item]:
        """The item with a frame."""
        return [item.with_payload(frame=np.zeros(1000 * int(self.knobs["kilobytes"]), np.uint8))]


class Model(Pass):
    """Makes a small result of a frame."""

    def __init__(self) -> None:
        super().__init__()
        self.knobs = {"work_s": 0.005}

    def process(self, item: Item) -> list[Item]:
        """The result."""
        time.sleep(float(self.knobs["work_s"]))
        return [Item(item.id, item.time_s, {"found": 1.0})]


class Thirty:
    """A workload of thirty items, all of which should be found."""

    def items(self) -> list[Item]:
        """The items."""
        return [Item(number, 0.0, {"n": float(number)}) for number in range(30)]

    def accuracy(self, outputs: Any, reference: Any = None) -> float:
        """The share of items that were found."""
        wanted = {item.id for item in (self.items() if reference is None else reference)}
        return len({item.id for item in outputs} & wanted) / len(wanted) if wanted else 1.0

    def filter_score(self, passed: Any) -> tuple[float, float]:
        """Nothing is filtered."""
        return 1.0, 1.0


class LaterHalf(Thirty):
    """The same with truth of single items: of the first fifteen, nothing that is found is right."""

    def accuracy_of(self, outputs: Any, ids: Any) -> float:
        """The share of these items that were found."""
        return sum(item.id >= 15 for item in outputs) / len(ids)
