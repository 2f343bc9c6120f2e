"""ONNX files as operators: made here, configured by their metadata, and refused with a reason where they are broken."""

from __future__ import annotations

import pathlib

import numpy as np
import pytest

from isolane.pipeline.item import Item, ItemError, decode, encode
from isolane.pipeline.operator import OperatorError, load
from isolane.planner.formats import parse_query
from isolane.queries.onnx import ModelError, Net, OnnxOperator

onnx = pytest.importorskip("onnx", reason="needs the package onnx, to make models")


def write(
    path: pathlib.Path,
    factor: float,
    metadata: dict[str, str] | None = None,
    inputs: int = 1,
    first: int | str = 1,
    counts: bool = True,
) -> pathlib.Path:
    """A model that sums the channels of an image (batch x 3 x height x width) with a factor, and counts its rows."""
    helper, kinds = onnx.helper, onnx.TensorProto
    images = [helper.make_tensor_value_info(name, kinds.FLOAT, [first, 3, "height", "width"]) for name in ("frame", "mask")]
    nodes = [
        helper.make_node("Conv", ["frame", "kernel"], ["heat"], kernel_shape=[1, 1]),
        helper.make_node("Shape", ["frame"], ["size"]),
    ]
    if inputs == 2:
        nodes[0] = helper.make_node("Mul", ["frame", "mask"], ["heat"])
    kernel = onnx.numpy_helper.from_array(np.full((1, 3, 1, 1), factor, np.float32), "kernel")
    outputs = [
        helper.make_tensor_value_info("heat", kinds.FLOAT, None),
        helper.make_tensor_value_info("size", kinds.INT64, [4]),
    ]
    if not counts:
        del nodes[1], outputs[1]
    graph = helper.make_graph(nodes, "sum", images[:inputs], outputs, [kernel])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    for key, value in (metadata or {}).items():
        entry = model.metadata_props.add()
        entry.key, entry.value = key, value
    path.write_bytes(model.SerializeToString())
    return path


def picture(random: int = 3) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    """A small image."""
    return np.random.default_rng(random).integers(0, 256, (6, 8, 3)).astype(np.uint8)


def test_a_path_in_a_query_is_an_operator(tmp_path: pathlib.Path) -> None:
    path = write(tmp_path / "sum.onnx", 1.0)
    operator = load(str(path))
    image = picture()
    (item,) = operator.process(Item(7, 1.5, {"frame": image, "camera": "north"}))
    assert (item.id, item.time_s) == (7, 1.5)
    assert sorted(item.payload) == ["camera", "heat", "size"]
    assert np.array_equal(item.payload["heat"], image.astype(np.float32).sum(axis=2)[None, None])  # type: ignore[arg-type]
    assert np.array_equal(item.payload["size"], [1, 3, 6, 8])  # type: ignore[arg-type]
    assert decode(encode(item)) == item


def test_metadata_says_which_field_and_how_it_is_scaled(tmp_path: pathlib.Path) -> None:
    metadata = {"isolane.input": "image", "isolane.scale": "0.5", "isolane.offset": "-1", "isolane.keep": "true"}
    operator = OnnxOperator(str(write(tmp_path / "sum.onnx", 2.0, metadata)))
    image = picture()
    (item,) = operator.process(Item(0, 0.0, {"image": image}))
    wanted = 2 * (image.astype(np.float32) * 0.5 - 1).sum(axis=2)
    assert np.allclose(item.payload["heat"][0, 0], wanted)  # type: ignore[index]
    assert item.payload["image"] is image


def test_channels_first_and_whole_batches_stay_as_they_are(tmp_path: pathlib.Path) -> None:
    operator = OnnxOperator(str(write(tmp_path / "sum.onnx", 1.0)))
    image = picture().transpose(2, 0, 1)
    for given in (image, image[None]):
        (item,) = operator.process(Item(0, 0.0, {"frame": given.astype(np.float32)}))
        assert np.array_equal(item.payload["heat"][0, 0], image.astype(np.float32).sum(axis=0))  # type: ignore[index]


def test_the_knob_chooses_another_file_from_the_next_item_on(tmp_path: pathlib.Path) -> None:
    operator = OnnxOperator(str(write(tmp_path / "one.onnx", 1.0)))
    write(tmp_path / "ten.onnx", 10.0)
    item = Item(0, 0.0, {"frame": picture()})
    one = operator.process(item)[0].payload["heat"]
    operator.configure({"model": "ten.onnx"})
    ten = operator.process(item)[0].payload["heat"]
    assert np.allclose(ten, 10 * one)  # type: ignore[operator]
    with pytest.raises(ModelError, match=r"none\.onnx: no such file"):
        operator.configure({"model": "none.onnx"})
    assert np.array_equal(operator.process(item)[0].payload["heat"], ten)  # type: ignore[arg-type]


def test_broken_files_and_inputs_are_refused_with_the_reason(tmp_path: pathlib.Path) -> None:
    with pytest.raises(OperatorError, match="no such file; name an ONNX model"):
        load(str(tmp_path / "missing.onnx"))
    (tmp_path / "text.onnx").write_text("not a model")
    with pytest.raises(ModelError, match="text.onnx: onnxruntime cannot load it"):
        Net(tmp_path / "text.onnx")
    with pytest.raises(ModelError, match=r"has 2 inputs \(frame, mask\); one is allowed"):
        Net(write(tmp_path / "two.onnx", 1.0, inputs=2))
    with pytest.raises(ModelError, match=r"isolane\.scale = 'half': must be a number"):
        OnnxOperator(str(write(tmp_path / "half.onnx", 1.0, {"isolane.scale": "half"})))
    operator = OnnxOperator(str(write(tmp_path / "sum.onnx", 1.0)))
    with pytest.raises(ItemError, match="item 4: sum.onnx needs an array 'frame'; it carries text"):
        operator.process(Item(4, 0.0, {"text": "hello"}))
    with pytest.raises(
        ModelError, match=r"sum\.onnx: input of shape \(1, 5, 6, 8\), wanted \[1, 3, 'height', 'width'\]"
    ):
        operator.process(Item(0, 0.0, {"frame": np.zeros((5, 6, 8), np.float32)}))


def test_a_query_can_name_a_model_file(tmp_path: pathlib.Path) -> None:
    path = write(tmp_path / "sum.onnx", 1.0)
    query = parse_query(
        f"""
        query: mine
        accuracy_min: 0.5
        latency_max_ms: 100
        operators:
          - {{name: camera, kind: source, implementation: "isolane.queries.traffic.operators:Sampler", gives: frame}}
          - name: detector
            kind: model
            implementation: {path}
            accepts: [frame]
            gives: tensors
            knobs: [{{name: model, values: [sum.onnx]}}]
        """,
        "mine.yaml",
    )
    operator = load(query.operator("detector").implementation)
    operator.configure({"model": "sum.onnx"})
    assert len(operator.process(Item(0, 0.0, {"frame": picture()}))) == 1


def test_an_execution_provider_that_this_machine_lacks_is_an_error_and_no_silent_fallback(tmp_path: pathlib.Path) -> None:
    path = write(tmp_path / "sum.onnx", 1.0)
    load(str(path), {"providers": ["CPUExecutionProvider"]})
    for providers, words in ((["RocketExecutionProvider", "CPUExecutionProvider"], "RocketExecutionProvider"), ([], "none")):
        with pytest.raises(OperatorError, match=f"providers: {words}: this onnxruntime has .*CPUExecutionProvider"):
            load(str(path), {"providers": providers})
