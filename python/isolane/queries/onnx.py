"""ONNX models as operators: the queries' own, and those of a user.

Problem: a user has a detector or a recogniser as an ONNX file and wants it planned and run like the built-in ones.
Method: `OnnxOperator` is what `implementation: path/to/model.onnx` in a query means: the payload field named like
the model's input feeds it, and each output tensor becomes a field named after it. The knob `model` names other files
in the same folder. What the field is called and how it is scaled can be said in the file itself, as metadata:

    isolane.input    payload field that feeds the model (default: the input's name)
    isolane.scale    factor on the field's numbers, for instance 0.00392156862745098 for 8-bit images (default: 1)
    isolane.offset   added after scaling (default: 0)
    isolane.keep     "true" keeps the input field in the item (default: false, so that images do not travel on)

Images (height x width x channels) are turned to the layout of the model's shape, and a leading 1 is added
where the model has one dimension more than the field. A class that needs more (boxes instead of tensors, audio
framing) derives from `OnnxOperator`, overrides `prepare` and `finish`, and is named as `module:Class`. `Net` is the
bare session: one thread, so that a profile means one core.

Units: bytes and counts. Limits: one input tensor; outputs of the types that an item can carry
(`isolane.pipeline.item`). The processor alone, unless the option `providers` names others (`options: {providers:
[CUDAExecutionProvider]}`); onnxruntime would silently take the processor where it cannot use one, which is an error here.
"""

from __future__ import annotations

import dataclasses
import functools
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from isolane.installing import extra
from isolane.pipeline.item import Array, Item, ItemError
from isolane.queries.operator import KnobValue, Operator


#: Items of one call at most.
BATCH_MAX = 256


class ModelError(ValueError):
    """A model that cannot be loaded or run; the message names the file and what is wrong."""


class Net:
    """An ONNX session on one thread with one input."""

    def __init__(self, path: pathlib.Path, providers: Sequence[str] = ("CPUExecutionProvider",)) -> None:
        # Any: onnxruntime's package has no types.
        try:
            import onnxruntime
        except ImportError:
            raise ModelError(f"{path.name} needs onnxruntime; {extra('plan')}") from None
        runtime: Any = onnxruntime
        if not path.is_file():
            raise ModelError(f"{path}: no such file; name an ONNX model")
        absent = [one for one in providers if one not in runtime.get_available_providers()]
        if absent or not providers:
            known = ", ".join(runtime.get_available_providers())
            raise ModelError(f"{path}: providers: {', '.join(absent) or 'none'}: this onnxruntime has {known}")
        options = runtime.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        try:
            self._session = runtime.InferenceSession(str(path), options, providers=list(providers))
        except Exception as error:  # onnxruntime's own classes derive from Exception alone
            raise ModelError(f"{path}: onnxruntime cannot load it: {_first_line(error)}") from None
        used = list(self._session.get_providers())
        if used[: len(providers)] != list(providers):
            raise ModelError(f"{path}: onnxruntime runs it on {', '.join(used)} instead of {', '.join(providers)}; are its libraries installed?")
        inputs = self._session.get_inputs()
        if len(inputs) != 1:
            raise ModelError(
                f"{path}: has {len(inputs)} inputs ({', '.join(one.name for one in inputs)}); one is allowed"
            )
        self.path = path
        self.input: str = inputs[0].name
        #: The input's sides; a name or None where any length is allowed.
        self.shape: list[int | str | None] = list(inputs[0].shape)
        self.dtype: np.dtype[Any] = _dtype(path, inputs[0].type)
        self.outputs: list[str] = [one.name for one in self._session.get_outputs()]
        #: What the file says of itself.
        self.metadata: dict[str, str] = dict(self._session.get_modelmeta().custom_metadata_map)

    def run(self, x: Array) -> list[Array]:
        """All outputs for one input."""
        try:
            result: list[Array] = self._session.run(None, {self.input: np.ascontiguousarray(x, self.dtype)})
        except Exception as error:
            raise ModelError(
                f"{self.path.name}: input of shape {x.shape}, wanted {self.shape}: {_first_line(error)}"
            ) from None
        return result


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


def _dtype(path: pathlib.Path, name: str) -> np.dtype[Any]:
    known = {"float": "f4", "float16": "f2", "double": "f8", "uint8": "u1", "int8": "i1", "int32": "i4", "int64": "i8"}
    inner = name.removeprefix("tensor(").removesuffix(")")
    if inner not in known:
        raise ModelError(f"{path}: its input is {name}; allowed: {', '.join(known)}")
    return np.dtype(known[inner])


@functools.lru_cache(maxsize=32)
def own_net(query: str, name: str) -> Net:
    """One of the repository's models, loaded once."""
    return Net(pathlib.Path(__file__).parent / query / "models" / f"{name}.onnx")


class OnnxOperator(Operator):
    """Any ONNX model with one input; see the module for what its metadata may say."""

    #: Any file name in the first model's folder.
    KNOBS = {"model": ()}

    def __init__(self, model: str, providers: Sequence[str] = ("CPUExecutionProvider",), batch: int = 1) -> None:
        path = pathlib.Path(model)
        self._folder, self._providers = path.parent, tuple(providers)
        self._begin(path.name, batch)

    def _begin(self, name: str, batch: int) -> None:
        """With this model."""
        super().__init__()
        if not 1 <= batch <= BATCH_MAX:
            raise ModelError(f"batch = {batch}: must be from 1 to {BATCH_MAX}")
        #: Items of one call.
        self.batch_max = batch
        self._nets: dict[str, Net] = {name: self._opened(name)}
        self.knobs = {"model": name}
        self._options = _Options.of(self._net())

    def _opened(self, name: str) -> Net:
        """A model that can take several items, if it should."""
        net = self.open(name)
        if self.batch_max > 1 and (not net.shape or isinstance(net.shape[0], int)):
            raise ModelError(f"{net.path}: batch = {self.batch_max}, and its input has the sides {net.shape}: the first must be free")
        return net

    def open(self, name: str) -> Net:
        """A model of this name; ModelError if there is none."""
        if name != pathlib.PurePath(name).name:
            raise ModelError(f"model = {name!r}: must be the name of a file in {self._folder}, without a path")
        return Net(self._folder / name, self._providers)

    def configure(self, knobs: Mapping[str, KnobValue]) -> None:
        """Another model; a file that cannot be loaded leaves the old one in place."""
        name = str(knobs.get("model", self.knobs["model"]))
        if name not in self._nets:
            self._nets[name] = self._opened(name)
        super().configure(knobs)
        self._options = _Options.of(self._net())

    def _net(self) -> Net:
        return self._nets[str(self.knobs["model"])]

    def prepare(self, item: Item, net: Net) -> Array:
        """The model's input."""
        x = item.payload.get(self._options.input)
        if not isinstance(x, np.ndarray):
            carried = ", ".join(sorted(item.payload)) or "nothing"
            raise ItemError(
                f"item {item.id}: {net.path.name} needs an array {self._options.input!r}; it carries {carried}"
            )
        if self._options.scale != 1.0 or self._options.offset != 0.0:
            x = x.astype(np.float32) * np.float32(self._options.scale) + np.float32(self._options.offset)
        if x.ndim == 3 and len(net.shape) in (3, 4):
            channels = net.shape[-3]
            if isinstance(channels, int) and x.shape[0] != channels and x.shape[2] == channels:
                x = x.transpose(2, 0, 1)
        return x[None] if x.ndim == len(net.shape) - 1 else x

    def finish(self, item: Item, outputs: dict[str, Array]) -> list[Item]:
        """Items with the outputs in place of the input."""
        kept = {
            name: value for name, value in item.payload.items() if self._options.keep or name != self._options.input
        }
        return [Item(item.id, item.time_s, {**kept, **outputs})]

    def process(self, item: Item) -> list[Item]:
        """Runs the model on one item."""
        net = self._net()
        outputs = net.run(self.prepare(item, net))
        return self.finish(item, dict(zip(net.outputs, outputs, strict=True)))


    def process_batch(self, items: list[Item]) -> list[list[Item]]:
        """Runs the model once on all items if their inputs have one shape, else on each."""
        net = self._net()
        inputs = [self.prepare(item, net) for item in items]
        if any(x.shape != inputs[0].shape or x.shape[0] != 1 for x in inputs):
            return [self.process(item) for item in items]
        outputs = net.run(np.concatenate(inputs))
        for name, value in zip(net.outputs, outputs, strict=True):
            if value.ndim == 0 or value.shape[0] != len(items):
                raise ModelError(f"{net.path}: its output {name} has the sides {list(value.shape)} for {len(items)} items; leave out batch")
        return [
            self.finish(item, {name: value[at : at + 1] for name, value in zip(net.outputs, outputs, strict=True)})
            for at, item in enumerate(items)
        ]


@dataclasses.dataclass(frozen=True)
class _Options:
    """What a file's metadata say."""

    input: str
    scale: float
    offset: float
    keep: bool

    @staticmethod
    def of(net: Net) -> _Options:
        """Checked: a factor that is no number is the file's mistake."""
        values = {"scale": 1.0, "offset": 0.0}
        for key in values:
            text = net.metadata.get(f"isolane.{key}", str(values[key]))
            try:
                values[key] = float(text)
            except ValueError:
                raise ModelError(f"{net.path}: metadata isolane.{key} = {text!r}: must be a number") from None
        keep = net.metadata.get("isolane.keep", "false")
        if keep not in ("true", "false"):
            raise ModelError(f"{net.path}: metadata isolane.keep = {keep!r}: must be true or false")
        return _Options(net.metadata.get("isolane.input", net.input), values["scale"], values["offset"], keep == "true")
