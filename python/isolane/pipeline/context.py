"""Asynchronous context managers that start as a whole: if a part cannot start, the parts that run are closed."""

from __future__ import annotations

import abc
from typing import TypeVar

Own = TypeVar("Own", bound="Context")


class Context(abc.ABC):
    """Starts with `async with`, and is closed at its end."""

    @abc.abstractmethod
    async def _open(self) -> None:
        """Starts everything."""

    @abc.abstractmethod
    async def close(self) -> None:
        """Ends everything that runs."""

    async def __aenter__(self: Own) -> Own:
        try:
            await self._open()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
