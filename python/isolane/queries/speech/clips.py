"""Spoken commands: committed clips, and noise to put them in.

Problem: the query must run where no speech synthesiser is installed. Units: hertz, decibels. Method: `clips.bin`
holds commands spoken by espeak-ng voices (made by `isolane.queries.training.voices`), as a transform codec's
coefficients: cosine transform with half-overlapping windows of 40 ms, companded to eight bits, compressed by LZMA.
Noise is made here from a seed: pink, hum, and babble of other clips. Limits: the codec keeps what recognisers need
(its own error is 15 dB or more below the speech).
"""

from __future__ import annotations

import functools
import json
import lzma
import pathlib
import struct

import numpy as np
import numpy.typing as npt

from isolane.queries.speech.audio import FULL_RATE, Signal

#: Coefficients of a frame of the codec.
HALF = 320
#: Step of the companded coefficients, and the companding exponent.
STEP, COMPANDING = 0.11, 0.6

_HEAD = struct.Struct("<4sII")
_MAGIC = b"ISLS"


@functools.cache
def _basis() -> tuple[Signal, Signal]:
    """Window, and the transform of a frame of two halves."""
    place = np.arange(2 * HALF) + 0.5
    window = np.sin(np.pi * place / (2 * HALF))
    waves = np.cos(np.pi / HALF * np.outer(place + HALF / 2, np.arange(HALF) + 0.5)) * np.sqrt(2 / HALF)
    return window.astype(np.float32), waves.astype(np.float32)


def encode(signals: list[Signal], texts: list[str], voices: list[str]) -> bytes:
    """The file's bytes."""
    window, waves = _basis()
    parts = []
    for signal in signals:
        blocks = -(-len(signal) // HALF) + 1
        padded = np.zeros((blocks + 1) * HALF)
        padded[HALF : HALF + len(signal)] = signal
        frames = np.lib.stride_tricks.sliding_window_view(padded, 2 * HALF)[::HALF]
        coefficients = ((frames * window).astype(np.float32) @ waves).astype(np.float64)
        small = np.sign(coefficients) * np.abs(coefficients) ** COMPANDING / STEP
        parts.append(np.clip(np.round(small), -127, 127).astype(np.int8))
    # Coefficients of one frequency side by side compress better than those of one moment.
    data = b"".join(np.ascontiguousarray(part.T).tobytes() for part in parts)
    head = json.dumps(
        [
            {"text": text, "voice": voice, "samples": len(signal), "frames": len(part)}
            for text, voice, signal, part in zip(texts, voices, signals, parts, strict=True)
        ]
    ).encode()
    packed = lzma.compress(head + data, preset=9 | lzma.PRESET_EXTREME)
    return _HEAD.pack(_MAGIC, len(head), len(data)) + packed


def decode(content: bytes) -> list[tuple[str, str, Signal]]:
    """Text, voice and signal of each clip."""
    magic, head_length, data_length = _HEAD.unpack_from(content)
    if magic != _MAGIC:
        raise ValueError(f"begins with {magic!r}: no file of clips")
    unpacked = lzma.decompress(content[_HEAD.size :])
    if len(unpacked) != head_length + data_length:
        raise ValueError(f"holds {len(unpacked)} bytes; {head_length + data_length} expected")
    window, waves = _basis()
    result, at = [], head_length
    for entry in json.loads(unpacked[:head_length]):
        count = int(entry["frames"])
        small = np.frombuffer(unpacked, np.int8, count * HALF, at).reshape(HALF, count).T.astype(
            np.float32
        ) * np.float32(STEP)
        at += count * HALF
        frames = (np.sign(small) * np.abs(small) ** np.float32(1 / COMPANDING)) @ waves.T * window
        signal = np.zeros((count + 1) * HALF)
        signal[:-HALF] += frames[:, :HALF].reshape(-1)
        signal[HALF:] += frames[:, HALF:].reshape(-1)
        samples = int(entry["samples"])
        result.append((str(entry["text"]), str(entry["voice"]), signal[HALF : HALF + samples].astype(np.float32)))
    return result


@functools.cache
def spoken() -> list[tuple[str, str, Signal]]:
    """The committed clips."""
    return decode((pathlib.Path(__file__).parent / "clips.bin").read_bytes())


def pink(random: np.random.Generator, length: int) -> npt.NDArray[np.float64]:
    """Noise whose power falls with frequency, as that of rooms and streets."""
    spectrum = np.fft.rfft(random.standard_normal(length))
    result: npt.NDArray[np.float64] = np.fft.irfft(spectrum / np.sqrt(np.arange(len(spectrum)) + 20), length)
    return result


def noisy(
    clean: Signal, others: list[Signal], random: np.random.Generator, ratio_db: float, margin_s: float = 0.25
) -> tuple[Signal, Signal]:
    """Speech with silence around it, in noise: the mixture and the noise alone, both scaled alike.

    The noise is pink, hum or babble of the other signals, in random parts; `ratio_db` is speech power over noise power.
    """
    before, after = (int(random.uniform(0.4, 1.6) * margin_s * FULL_RATE) for _ in range(2))
    speech = np.concatenate([np.zeros(before), clean, np.zeros(after)])
    length = len(speech)
    moments = np.arange(length) / FULL_RATE
    hum = sum(np.sin(2 * np.pi * 50 * k * moments + random.uniform(0, 6)) / k for k in (1, 2, 3, 5))
    babble = np.zeros(length)
    for _ in range(3):
        if others:
            voice = others[int(random.integers(len(others)))]
            babble += np.resize(np.roll(voice, int(random.integers(len(voice)))), length)
    noise = np.zeros(length)
    weights = random.dirichlet((2.0, 0.5, 0.7))
    for part, weight in zip((pink(random, length), hum, babble), weights, strict=True):
        noise += part / (np.sqrt(np.mean(np.square(part))) + 1e-9) * np.sqrt(weight)
    level = np.sqrt(np.mean(np.square(clean)) / 10 ** (ratio_db / 10)) / (np.sqrt(np.mean(noise**2)) + 1e-9)
    noise *= level
    peak = np.abs(speech + noise).max() / 0.7 + 1e-9
    return ((speech + noise) / peak).astype(np.float32), (noise / peak).astype(np.float32)
