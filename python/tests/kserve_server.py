"""An inference server on loopback, for tests: the open inference protocol, version 2, with two models that compute.

`double` gives twice its input, `bright` the mean of an image and its shape. `answers` replaces the answer to an inference.
"""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from isolane.queries.kserve import DTYPES

MODELS: dict[str, tuple[dict[str, Any], Callable[[Any], dict[str, Any]]]] = {
    "double": ({"name": "x", "datatype": "FP32", "shape": [-1, 4]}, lambda x: {"y": 2 * x}),
    "bright": (
        {"name": "frame", "datatype": "FP32", "shape": [1, 3, -1, -1]},
        lambda x: {"mean": x.mean(keepdims=True).reshape(1), "size": np.array(x.shape, np.int64)},
    ),
}
_NAMES = {np.dtype(code): name for name, code in DTYPES.items()}


class InferenceServer:
    """Use as a context manager; `url` is its address."""

    def __init__(self, binary: bool = True, answer: Callable[[bytes], bytes] | None = None) -> None:
        self.binary, self.answer = binary, answer
        self.requests: list[str] = []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None:
                """Silent."""

            def do_GET(self) -> None:
                outer.requests.append(self.path)
                if self.path == "/v2":
                    self.say({"name": "stub", "version": "1", "extensions": ["binary_tensor_data"] if outer.binary else []})
                elif (name := self.path.rpartition("/")[2]) in MODELS:
                    outputs = [{"name": each, "datatype": "FP32", "shape": [-1]} for each in ("y",) if name == "double"]
                    outputs += [{"name": each, "datatype": "FP32", "shape": [-1]} for each in ("mean", "size") if name == "bright"]
                    self.say({"name": name, "inputs": [MODELS[name][0]], "outputs": outputs})
                else:
                    self.say({"error": "unknown model"}, 404)

            def do_POST(self) -> None:
                outer.requests.append(self.path)
                body = self.rfile.read(int(self.headers["content-length"]))
                split = int(self.headers.get("Inference-Header-Content-Length", len(body)))
                (tensor,) = json.loads(body[:split])["inputs"]
                dtype = np.dtype(DTYPES[tensor["datatype"]])
                data = np.frombuffer(body[split:], dtype) if split < len(body) else np.asarray(tensor["data"], dtype)
                made = MODELS[self.path.split("/")[3]][1](data.reshape(tensor["shape"]))
                outputs, tail = [], b""
                for name, value in made.items():
                    one: dict[str, Any] = {"name": name, "datatype": _NAMES[value.dtype], "shape": list(value.shape)}
                    if split < len(body):
                        one["parameters"] = {"binary_data_size": value.nbytes}
                        tail += value.tobytes()
                    else:
                        one["data"] = value.reshape(-1).tolist()
                    outputs.append(one)
                self.say({"outputs": outputs}, 200, tail)

            def say(self, document: Any, status: int = 200, tail: bytes = b"") -> None:
                head = json.dumps(document).encode()
                if outer.answer is not None and self.command == "POST":
                    head, tail = outer.answer(head), b""
                self.send_response(status)
                if tail:
                    self.send_header("Inference-Header-Content-Length", str(len(head)))
                self.send_header("content-length", str(len(head + tail)))
                self.end_headers()
                self.wfile.write(head + tail)

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> InferenceServer:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
