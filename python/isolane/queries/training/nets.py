"""Small convolutional nets in JAX: weights, forward pass, Adam, and export to ONNX.

Problem: three queries train nets of the same kind. Units: none. Method: a net is a list of `Layer`; all but the last
end in ReLU; images are batch x channels x height x width, and one-dimensional signals have height 1. Limits: no
normalisation layers (the nets are shallow), no branches.
"""

from __future__ import annotations

import dataclasses
import pathlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

#: JAX trees and arrays; JAX has no types for them that a checker could use.
Tree = Any


@dataclasses.dataclass(frozen=True)
class Layer:
    """A convolution; its kernel is (rows, columns), its stride likewise."""

    channels: int
    kernel: tuple[int, int]
    stride: tuple[int, int] = (1, 1)

    @property
    def padding(self) -> tuple[int, int]:
        """Zeros on each side, so that stride one keeps the size."""
        return self.kernel[0] // 2, self.kernel[1] // 2


def weights(layers: Sequence[Layer], inputs: int, last_bias: Sequence[float], seed: int) -> Tree:
    """He's initialisation; the last layer starts small, around `last_bias`."""
    random = np.random.default_rng([seed, 0x6E65])
    result = []
    for index, layer in enumerate(layers):
        fan_in = inputs * layer.kernel[0] * layer.kernel[1]
        last = index == len(layers) - 1
        scale = np.sqrt(2 / fan_in) * (0.1 if last else 1.0)
        kernel = random.standard_normal((layer.channels, inputs, *layer.kernel)) * scale
        bias = np.asarray(last_bias if last else np.zeros(layer.channels))
        result.append((jnp.asarray(kernel, jnp.float32), jnp.asarray(bias, jnp.float32)))
        inputs = layer.channels
    return result


def forward(tree: Tree, layers: Sequence[Layer], x: Tree) -> Tree:
    """The net's output, without a last activation."""
    for index, ((kernel, bias), layer) in enumerate(zip(tree, layers, strict=True)):
        padding = [(side, side) for side in layer.padding]
        x = jax.lax.conv_general_dilated(x, kernel, layer.stride, padding, dimension_numbers=("NCHW", "OIHW", "NCHW"))
        x = x + bias[None, :, None, None]
        if index < len(layers) - 1:
            x = jax.nn.relu(x)
    return x


def train(
    tree: Tree, loss: Callable[..., Tree], batches: Iterator[tuple[Any, ...]], steps: int, peak_rate: float
) -> tuple[Tree, list[float]]:
    """Adam for `steps` batches; the rate climbs over 30 steps and then falls to nothing. Returns weights and losses."""

    @jax.jit
    def step(tree: Tree, first: Tree, second: Tree, count: Tree, rate: Tree, *batch: Tree) -> tuple[Tree, ...]:
        value, slope = jax.value_and_grad(loss)(tree, *batch)
        norm = jnp.sqrt(sum(jnp.sum(one * one) for one in jax.tree.leaves(slope)))
        slope = jax.tree.map(lambda g: g * jnp.minimum(1.0, 10.0 / (norm + 1e-9)), slope)
        first = jax.tree.map(lambda a, g: 0.9 * a + 0.1 * g, first, slope)
        second = jax.tree.map(lambda a, g: 0.99 * a + 0.01 * g * g, second, slope)
        tree = jax.tree.map(
            lambda p, a, b: p - rate * (a / (1 - 0.9**count)) / (jnp.sqrt(b / (1 - 0.99**count)) + 1e-8),
            tree,
            first,
            second,
        )
        return tree, first, second, value

    first = second = jax.tree.map(jnp.zeros_like, tree)
    losses = []
    for count in range(1, steps + 1):
        rate = peak_rate * min(1.0, count / 30) * (1 - (count - 1) / steps) ** 0.7
        tree, first, second, value = step(tree, first, second, float(count), rate, *next(batches))
        losses.append(value)
    return tree, [float(value) for value in losses]


def learn(
    layers: Sequence[Layer],
    inputs: Sequence[int | str],
    loss: Callable[[Tree, Tree], Tree],
    batches: Iterator[tuple[Any, ...]],
    path: pathlib.Path,
    *,
    last_bias: float,
    steps: int,
    peak_rate: float,
    seed: int,
) -> str:
    """Trains a net and writes it as ONNX; returns its losses at both ends, its bytes and the seconds, for people.

    `inputs` is the shape of the input, with its channels second. The first output channel starts with `last_bias`, the others with
    0. `loss` compares outputs with what is wanted. All else is as in `weights`, `train` and `export`.
    """
    began = time.monotonic()
    bias = [last_bias] + [0.0] * (layers[-1].channels - 1)
    tree = weights(layers, int(inputs[1]), bias, seed)
    tree, losses = train(tree, lambda tree, x, wanted: loss(forward(tree, layers, x), wanted), batches, steps, peak_rate)
    size = export(tree, layers, inputs, path)
    seconds = time.monotonic() - began
    return f"loss {np.mean(losses[:20]):.2f} -> {np.mean(losses[-50:]):.2f}, {size} bytes, {seconds:.0f} s"


def export(tree: Tree, layers: Sequence[Layer], inputs: Sequence[int | str], path: pathlib.Path) -> int:
    """Writes the net as ONNX with input `x` of shape `inputs` and output `y`; returns the file's bytes.

    Kernels are stored in half precision and widened when the model is loaded.
    """
    nodes, constants, current = [], [], "x"
    for index, ((kernel, bias), layer) in enumerate(zip(tree, layers, strict=True)):
        last = index == len(layers) - 1
        constants += [
            numpy_helper.from_array(np.asarray(kernel, np.float16), f"short{index}"),
            numpy_helper.from_array(np.asarray(bias, np.float32), f"bias{index}"),
        ]
        nodes.append(helper.make_node("Cast", [f"short{index}"], [f"kernel{index}"], to=TensorProto.FLOAT))
        output = "y" if last else f"sum{index}"
        nodes.append(
            helper.make_node(
                "Conv",
                [current, f"kernel{index}", f"bias{index}"],
                [output],
                kernel_shape=list(layer.kernel),
                strides=list(layer.stride),
                pads=[*layer.padding, *layer.padding],
            )
        )
        if not last:
            nodes.append(helper.make_node("Relu", [output], [f"active{index}"]))
        current = f"active{index}"
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, list(inputs))
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [inputs[0], layers[-1].channels, "rows", "columns"])
    graph = helper.make_graph(nodes, "net", [x], [y], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(model.SerializeToString())
    return path.stat().st_size
