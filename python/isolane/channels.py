"""What the channels of grpcio and of grpc.aio have in common: a channel of its own for each class, of each backend.

Method: `PerClass` opens these channels and turns the four kinds of calls into one method, `_calls`. Limits: `isolane.rpc` and
`isolane.aio` decide which of the channels a call takes.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import grpc


class PerClass:
    """Opens the channels in this order: backend by backend, in each the classes from the highest.

    `module` is `grpc` or `grpc.aio`; `classes` are pairs of a name and a code point. Without `backends`, `target` is the only
    address.
    """

    def __init__(
        self,
        module: Any,
        target: str,
        classes: Sequence[tuple[str, int]],
        credentials: grpc.ChannelCredentials | None,
        options: Sequence[tuple[str, Any]],
        backends: Sequence[str],
    ) -> None:
        # Equal channels would share a connection, and with it one code point.
        common = [*options, ("grpc.use_local_subchannel_pool", 1)]
        if backends:
            # Servers behind one name have certificates for the name.
            host = target.rpartition(":")[0] or target
            common += [("grpc.default_authority", target), ("grpc.ssl_target_name_override", host)]
        self.channels: list[Any] = []
        for address in backends or [target]:
            for _, dscp in classes:
                own = [*common, ("grpc.dscp", dscp)]
                if credentials is None:
                    self.channels.append(module.insecure_channel(address, options=own))
                else:
                    self.channels.append(module.secure_channel(address, credentials, options=own))

    def _calls(self, kind: str, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """What makes the calls of one method; `kind` names the method of a channel that was called."""
        raise NotImplementedError

    def _of(self, kind: str, *arguments: Any, **keywords: Any) -> Any:
        return self._calls(kind, arguments, keywords)

    unary_unary = functools.partialmethod(_of, "unary_unary")
    unary_stream = functools.partialmethod(_of, "unary_stream")
    stream_unary = functools.partialmethod(_of, "stream_unary")
    stream_stream = functools.partialmethod(_of, "stream_stream")
