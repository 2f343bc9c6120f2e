"""Models on an inference server as operators: KServe's open inference protocol, version 2, over HTTP.

Problem: a model that is too large for a tier, or shared, runs on a server (KServe, Triton, OpenVINO, MLServer), and its query should be
planned and run like others. Method: `KServeOperator` is an `OnnxOperator` whose model is elsewhere: the server's metadata say input,
layout and outputs, options say what an ONNX file's own metadata say. The time until the answer is time that the operator waits, which
the planner charges to no core (`isolane.pipeline.stopwatch`).

    implementation: isolane.queries.kserve:KServeOperator
    options: {url: "http://models.example:8000", model: detector, scale: 0.00392156862745098, timeout_s: 2}
    knobs: [{name: model, values: [detector-small, detector]}]

Tensors travel in binary where the server has that extension, else as JSON. A file that names this operator sends items to the server that it
names, so this module is none that files may name by themselves: `--allow-module isolane.queries.kserve`.

Units: seconds, bytes; a request and its answer take `timeout_s` at most, and twice that where the connection is opened again. Limits: one
input; tensors of numbers; no gRPC, no authentication beyond what the URL's network has; redirects are not followed. One request at a time;
with the option `batch` it carries the items that wait, where the model's first side is free.
"""

from __future__ import annotations

import http.client
import io
import json
import math
import pathlib
import re
import socket
import time
import urllib.parse
from collections.abc import Mapping
from typing import Any

import numpy as np

from isolane.digits import whole_number
from isolane.pipeline.item import MAX_BYTES, MAX_DIMENSIONS, Array
from isolane.queries.onnx import ModelError, Net, OnnxOperator

#: Types of the protocol that an item can carry.
DTYPES = {
    "BOOL": "?", "UINT8": "u1", "UINT16": "u2", "UINT32": "u4", "UINT64": "u8", "INT8": "i1", "INT16": "i2", "INT32": "i4",
    "INT64": "i8", "FP16": "f2", "FP32": "f4", "FP64": "f8",
}  # fmt: skip
#: JSON takes many times its size once it is read.
JSON_BYTES = 16 * 1024 * 1024
#: What a server calls the extension for binary tensors: Triton, and KServe's own server.
BINARY = {"binary_tensor_data", "binary_tensor_data_extension"}
_LENGTH = "Inference-Header-Content-Length"
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*", re.ASCII)


class _Timed(io.RawIOBase):
    """What a server sends until a moment. A socket's own timeout would begin anew with each byte."""

    def __init__(self, raw: io.RawIOBase, sock: socket.socket, until_s: float) -> None:
        self._raw, self._socket, self._until_s = raw, sock, until_s

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left_s = self._until_s - time.monotonic()
        if left_s <= 0.0:
            raise TimeoutError("timed out")
        self._socket.settimeout(left_s)
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


class Remote:
    """One server. Its connection is kept open between requests."""

    def __init__(self, url: str, timeout_s: float) -> None:
        parts = urllib.parse.urlsplit(url)
        try:
            port = parts.port
        except ValueError:
            port = -1
        if parts.scheme not in ("http", "https") or not parts.hostname or port == -1 or parts.query or parts.username:
            raise ModelError(f"url = {url!r}: write http://HOST:PORT or https://HOST:PORT")
        if not 0.0 < timeout_s <= 3600.0:
            raise ModelError(f"timeout_s = {timeout_s:g}: must be above 0, 3600 at most")
        self.name = parts.netloc
        self._path = parts.path.rstrip("/")
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._connection = kind(parts.hostname, port, timeout=timeout_s)
        self._timeout_s = timeout_s
        self._used = False
        extensions = self.ask("GET", "/v2").get("extensions", [])
        self.binary = isinstance(extensions, list) and any(one in BINARY for one in extensions if isinstance(one, str))

    def ask(self, method: str, path: str) -> dict[str, Any]:
        """A document of the server."""
        headers, body = self.exchange(method, path, b"", {})
        return _document(body, f"{self.name}{path}")

    def exchange(self, method: str, path: str, body: bytes, headers: Mapping[str, str]) -> tuple[Any, bytes]:
        """Headers and body of an answer with status 200. A connection that the server closed meanwhile is opened again."""
        try:
            try:
                return self._once(method, path, body, headers)
            except (ConnectionError, http.client.BadStatusLine):
                if not self._used:
                    raise
                self._close()
                return self._once(method, path, body, headers)
        except (OSError, http.client.HTTPException) as error:
            self._close()
            words = str(error) or type(error).__name__
            raise ModelError(f"server {self.name}: {method} {path}: {words}") from None
        except ModelError:
            self._close()
            raise

    def _close(self) -> None:
        self._connection.close()
        self._used = False

    def _once(self, method: str, path: str, body: bytes, headers: Mapping[str, str]) -> tuple[Any, bytes]:
        until_s = time.monotonic() + self._timeout_s

        def timed(sock: socket.socket, *words: Any, **named: Any) -> http.client.HTTPResponse:
            answer = http.client.HTTPResponse(sock, *words, **named)
            answer.fp = io.BufferedReader(_Timed(answer.fp.detach(), sock, until_s))
            return answer

        self._connection.response_class = timed  # type: ignore[assignment]
        if self._connection.sock is not None:
            self._connection.sock.settimeout(self._timeout_s)
        self._connection.request(method, self._path + path, body or None, dict(headers))
        answer = self._connection.getresponse()
        found = answer.read(MAX_BYTES + 1)
        if len(found) > MAX_BYTES:
            raise ModelError(f"server {self.name}: {method} {path}: the answer has more than {MAX_BYTES} bytes")
        self._used = True
        if answer.status != 200:
            words = " ".join(found[:200].decode("utf-8", "replace").split())
            raise ModelError(f"server {self.name}: {method} {path}: status {answer.status}: {words}")
        return answer.headers, found


def _document(text: bytes, what: str) -> dict[str, Any]:
    if len(text) > JSON_BYTES:
        raise ModelError(f"{what}: {len(text)} bytes of JSON; {JSON_BYTES} at most")
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise ModelError(f"{what}: the answer is no JSON") from None
    if not isinstance(found, dict):
        raise ModelError(f"{what}: the answer is no JSON object")
    return found


class RemoteNet(Net):
    """A model on a server, with what `Net` says of a file."""

    def __init__(self, server: Remote, name: str, metadata: Mapping[str, str]) -> None:
        self._server = server
        self.path = pathlib.PurePosixPath(server.name, name)  # type: ignore[assignment]
        found = server.ask("GET", f"/v2/models/{name}")
        try:
            (one,) = found["inputs"]
            self.input = str(one["name"])
            self._datatype = str(one["datatype"])
            self.shape = [int(side) if int(side) >= 0 else None for side in one["shape"]]
            self.outputs = [str(each["name"]) for each in found["outputs"]]
        except (KeyError, TypeError, ValueError, OverflowError):
            raise ModelError(f"{self.path}: the server's metadata have no single input with name, datatype and shape, and outputs") from None
        if self._datatype not in DTYPES:
            raise ModelError(f"{self.path}: its input is {self._datatype[:40]}; allowed: {', '.join(DTYPES)}")
        self.dtype = np.dtype(DTYPES[self._datatype])
        self.metadata = dict(metadata)

    def run(self, x: Array) -> list[Array]:
        """All outputs for one input."""
        data = np.ascontiguousarray(x, self.dtype.newbyteorder("<"))
        tensor: dict[str, Any] = {"name": self.input, "shape": list(data.shape), "datatype": self._datatype}
        headers = {"content-type": "application/json"}
        if self._server.binary:
            tensor["parameters"] = {"binary_data_size": data.nbytes}
            head = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
            headers = {"content-type": "application/octet-stream", _LENGTH: str(len(head))}
            body = head + data.tobytes()
        else:
            body = json.dumps({"inputs": [{**tensor, "data": data.reshape(-1).tolist()}]}).encode()
        answered, found = self._server.exchange("POST", f"/v2/models/{self.path.name}/infer", body, headers)
        length = str(answered.get(_LENGTH, len(found)))
        count = whole_number(length)
        if count is None or count > len(found):
            raise ModelError(f"{self.path}: the answer's {_LENGTH} = {length[:40]!r}: must be a part of its {len(found)} bytes")
        made = self._tensors(_document(found[:count], str(self.path)), memoryview(found)[count:])
        absent = [name for name in self.outputs if name not in made]
        if absent:
            raise ModelError(f"{self.path}: the answer lacks the output {absent[0]}")
        return [made[name] for name in self.outputs]

    def _tensors(self, document: dict[str, Any], rest: memoryview) -> dict[str, Array]:
        """The outputs of an answer; binary ones follow upon each other in `rest`."""
        made: dict[str, Array] = {}
        try:
            for one in document["outputs"]:
                name, dtype = str(one["name"]), np.dtype(DTYPES[one["datatype"]]).newbyteorder("<")
                shape = tuple(int(side) for side in one["shape"])
                if len(shape) > MAX_DIMENSIONS or any(side < 0 for side in shape) or math.prod(shape) * dtype.itemsize > MAX_BYTES:
                    raise ValueError(f"shape {list(shape)}")
                size = one.get("parameters", {}).get("binary_data_size")
                if size is None:
                    made[name] = np.asarray(one["data"]).astype(dtype).reshape(shape)
                    continue
                if size != math.prod(shape) * dtype.itemsize or size > len(rest):
                    raise ValueError(f"{size} bytes for shape {list(shape)}")
                made[name] = np.frombuffer(rest[:size], dtype).reshape(shape)
                rest = rest[size:]
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise ModelError(f"{self.path}: the answer has an invalid output: {' '.join(str(error).split())[:200]}") from None
        return made


class KServeOperator(OnnxOperator):
    """A model on a server; see the module."""

    #: Any model of the server.
    KNOBS = {"model": ()}

    def __init__(
        self,
        url: str,
        model: str,
        input: str = "",
        scale: float = 1.0,
        offset: float = 0.0,
        keep: bool = False,
        timeout_s: float = 10.0,
        batch: int = 1,
    ) -> None:
        said = {"input": input, "scale": str(scale), "offset": str(offset), "keep": str(keep).lower()}
        self._metadata = {f"isolane.{name}": value for name, value in said.items() if value}
        self._server = Remote(url, timeout_s)
        self._begin(model, batch)

    def open(self, name: str) -> Net:
        """A model of the server."""
        if not _NAME.fullmatch(name):
            raise ModelError(f"model = {name!r}: must be a name of letters, digits, dots, dashes and underscores")
        return RemoteNet(self._server, name, self._metadata)
