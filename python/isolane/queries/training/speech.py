"""Trains the three recognisers of the speech query and writes them as ONNX, and the committed clips with them.

Problem: recognisers of three sizes for any audio that sampler and gate may leave. Units: frames of 10 ms in, 40 ms
out. Method: commands by espeak-ng in fourteen voices, in noise of 0 to 25 dB, through sampler and gate with random
knobs in a random order, or past them; convolutions over mel bands, trained with connectionist temporal
classification (CTC) on words. Limits: as the package says; the clips of the profile come from four other voices.
"""

from __future__ import annotations

import pathlib
import time
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from isolane.pipeline.item import Item
from isolane.queries.speech import grammar
from isolane.queries.speech.audio import BANDS, features, to_float, to_int
from isolane.queries.speech.clips import noisy
from isolane.queries.speech.operators import Gate, Sampler
from isolane.queries.training import nets
from isolane.queries.training.voices import TRAINED, commands, write_clips

#: Channels, steps.
SIZES = {"small": (16, 2400), "medium": (32, 2400), "large": (56, 2400)}
SPOKEN, VARIANTS, BATCH = 1000, 2, 16
#: Frames that every example is cut or padded to, and words.
FRAMES, WORDS = 256, 7
#: Peak of the learning rate.
RATE = 2e-3
LOW = -1e9


def layers(channels: int) -> list[nets.Layer]:
    """A net with an output for each four frames that sees most of a second."""

    def along(kernel: int, stride: int = 1) -> nets.Layer:
        return nets.Layer(channels, (1, kernel), (1, stride))

    return [along(5, 2), along(5, 2), along(7), along(7), along(9), nets.Layer(len(grammar.WORDS) + 1, (1, 1))]


def examples(indices: range = range(SPOKEN * VARIANTS)) -> list[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]]:
    """Features (bands x frames) and word numbers (zeros at the end)."""
    spoken = commands(SPOKEN, TRAINED, 1000)
    signals = [signal for _, _, signal in spoken]
    sampler, gate = Sampler(), Gate()
    result = []
    for index in indices:
        random = np.random.default_rng([index, 0x7472])
        text, _, clean = spoken[index % SPOKEN]
        mixture, _ = noisy(clean, signals, random, float(random.uniform(0, 25)))
        sampler.configure({"rate_hz": int(random.choice(Sampler.KNOBS["rate_hz"]))})
        gate.configure({"mask_hz": int(random.choice(Gate.KNOBS["mask_hz"]))})
        items = [Item(index, 0.0, {"audio": to_int(mixture), "rate_hz": 16000.0})]
        for operator in ((sampler, gate), (gate, sampler), (sampler,))[int(random.choice(3, p=[0.5, 0.3, 0.2]))]:
            items = [later for item in items for later in operator.process(item)]
        audio, rate = items[0].payload["audio"], items[0].payload["rate_hz"]
        assert isinstance(audio, np.ndarray) and isinstance(rate, float)
        seen = features(to_float(audio), round(rate))[:, :FRAMES]
        words = grammar.numbers(text)
        result.append(
            (
                np.pad(seen, ((0, 0), (0, FRAMES - seen.shape[1]))).astype(np.float16),
                np.pad(np.array(words, np.int32), (0, WORDS - len(words))),
            )
        )
    return result


def batches(data: list[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]], seed: int) -> Iterator[tuple[Any, ...]]:
    """Random examples without end, some with a band or a moment masked."""
    random = np.random.default_rng([seed, 0x7362])
    while True:
        chosen = random.integers(0, len(data), BATCH)
        x = np.stack([data[index][0] for index in chosen]).astype(np.float32)
        for row in x:
            band, moment = int(random.integers(BANDS - 6)), int(random.integers(FRAMES - 12))
            row[band : band + int(random.integers(6))] = 0
            row[:, moment : moment + int(random.integers(12))] = 0
        yield x[:, :, None], np.stack([data[index][1] for index in chosen])


def ctc_loss(scores: nets.Tree, words: nets.Tree) -> nets.Tree:
    """Mean negative logarithm of the chance of the words over all alignments; `scores` is batch x frames x words."""
    scores = jax.nn.log_softmax(scores, axis=-1)
    batch = words.shape[0]
    states = jnp.zeros((batch, 2 * WORDS + 1), jnp.int32).at[:, 1::2].set(words)
    before = jnp.concatenate([jnp.zeros((batch, 2), jnp.int32), states[:, :-2]], axis=1)
    skip = (states > 0) & (states != before) & (jnp.arange(2 * WORDS + 1) > 1)
    last = 2 * (words > 0).sum(axis=1)

    def emitted(frame: nets.Tree) -> nets.Tree:
        return jnp.take_along_axis(frame, states, axis=1)

    def step(alpha: nets.Tree, frame: nets.Tree) -> tuple[nets.Tree, None]:
        one = jnp.concatenate([jnp.full((batch, 1), LOW), alpha[:, :-1]], axis=1)
        two = jnp.where(skip, jnp.concatenate([jnp.full((batch, 2), LOW), alpha[:, :-2]], axis=1), LOW)
        return jnp.logaddexp(jnp.logaddexp(alpha, one), two) + emitted(frame), None

    frames = scores.transpose(1, 0, 2)
    start = jnp.where(jnp.arange(2 * WORDS + 1) < 2, emitted(frames[0]), LOW)
    alpha, _ = jax.lax.scan(step, start, frames[1:])
    ends = jnp.logaddexp(
        jnp.take_along_axis(alpha, last[:, None], axis=1), jnp.take_along_axis(alpha, last[:, None] - 1, axis=1)
    )
    return -ends.mean()


def main(directory: pathlib.Path) -> None:
    """Trains all sizes into `directory`, and writes the clips beside it."""
    print(f"clips: {write_clips(directory.parent / 'clips.bin')} bytes", flush=True)
    began = time.monotonic()
    data = examples()
    print(f"{len(data)} examples in {time.monotonic() - began:.0f} s", flush=True)
    for seed, (name, (channels, steps)) in enumerate(SIZES.items()):
        path = directory / f"recogniser_{name}.onnx"
        said = nets.learn(
            layers(channels), [1, BANDS, 1, "frames"], _loss, batches(data, seed), path,
            last_bias=2.0, steps=steps, peak_rate=RATE, seed=seed,
        )
        print(f"{name}: {said}", flush=True)


def _loss(output: nets.Tree, words: nets.Tree) -> nets.Tree:
    return ctc_loss(output[:, :, 0].transpose(0, 2, 1), words)
