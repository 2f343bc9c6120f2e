"""Operators of the speech query: microphone, sampler, noise gate, recogniser, decoder.

Problem: which command was spoken, in noise. Units: hertz, seconds. Payload: "audio" (16-bit samples), "rate_hz",
then "scores" (frames x words, logarithms) and "text". Method: see each class. Sampler and gate may be in either
order: a gate before the sampler sees all frequencies and costs more. Limits: one command a clip.
"""

from __future__ import annotations

import functools

import numpy as np
import numpy.typing as npt

from isolane.pipeline.item import Item
from isolane.queries.onnx import own_net
from isolane.queries.operator import Operator, array, number
from isolane.queries.speech import grammar
from isolane.queries.speech.audio import FULL_RATE, Signal, features, resample, to_float, to_int

Doubles = npt.NDArray[np.float64]


def _audio(item: Item) -> tuple[Signal, int]:
    samples = array(item, "audio", 1)
    return to_float(samples), round(number(item, "rate_hz", FULL_RATE))


class Microphone(Operator):
    """The source: a clip as it was recorded."""

    def process(self, item: Item) -> list[Item]:
        """The clip with its rate; nothing where it is empty."""
        samples = array(item, "audio", 1)
        return [item.with_payload(rate_hz=number(item, "rate_hz", FULL_RATE))] if len(samples) else []


class Sampler(Operator):
    """Lowers the sampling rate."""

    KNOBS = {"rate_hz": (8000, 10000, 12000, 14000, 16000)}

    def process(self, item: Item) -> list[Item]:
        """The clip at the knob's rate; one that is lower already stays as it is."""
        signal, rate = _audio(item)
        new_rate = int(self.knobs["rate_hz"])
        if new_rate >= rate:
            return [item]
        return [item.with_payload(audio=to_int(resample(signal, rate, new_rate)), rate_hz=float(new_rate))]


class Gate(Operator):
    """Quietens what does not rise above the noise (spectral gating); the clip keeps its length.

    The noise of each bin is its 30th percentile over the clip's frames; the gain is a smooth step where a cell exceeds
    it, averaged over `mask_hz` of frequency and five frames. Narrow masks follow speech more closely, wide ones ring
    less.
    """

    KNOBS = {"mask_hz": (4000, 3000, 2000, 1000, 500)}
    #: Frame and step; a cell counts as speech from this multiple of the noise's magnitude; what remains of noise.
    FRAME_S, STEP_S, OVER, LEAST = 0.032, 0.008, 2.2, 0.15

    def process(self, item: Item) -> list[Item]:
        """The gated clip."""
        signal, rate = _audio(item)
        frame, step = round(self.FRAME_S * rate) // 2 * 2, round(self.STEP_S * rate)
        window = np.hanning(frame + 1)[:-1]
        padded = np.pad(signal, (frame, frame + (-len(signal)) % step))
        frames = np.lib.stride_tricks.sliding_window_view(padded, frame)[::step]
        spectrum = np.fft.rfft(frames * window, axis=1)
        size = np.abs(spectrum)
        inner = size[frame // step : -(frame // step) or None]
        noise = np.percentile(inner, 30, axis=0) + 1e-6
        excess = np.clip(size / (self.OVER * noise), 1e-3, 1e3) ** 3
        gain = excess / (1 + excess)
        bins = max(1, round(float(self.knobs["mask_hz"]) / (rate / frame)))
        gain = _smooth(_smooth(gain, min(bins, gain.shape[1]), 1), 5, 0)
        gain = self.LEAST + (1 - self.LEAST) * gain
        rebuilt = np.zeros(len(padded))
        weight = np.zeros(len(padded))
        parts = np.fft.irfft(spectrum * gain, frame, axis=1) * window
        for index in range(len(parts)):
            rebuilt[index * step : index * step + frame] += parts[index]
            weight[index * step : index * step + frame] += window**2
        clean = (rebuilt / np.maximum(weight, 0.1))[frame : frame + len(signal)]
        return [item.with_payload(audio=to_int(clean))]


def _smooth(values: Doubles, width: int, axis: int) -> Doubles:
    """Running mean along an axis, over fewer values at the ends."""
    if width < 2:
        return values
    length = values.shape[axis]
    total = np.cumsum(np.insert(values, 0, 0.0, axis=axis), axis=axis)
    high = np.minimum(np.arange(length) + (width + 1) // 2, length)
    low = np.maximum(np.arange(length) - width // 2, 0)
    count = (high - low).reshape((-1, 1) if axis == 0 else (1, -1))
    result: Doubles = (np.take(total, high, axis) - np.take(total, low, axis)) / count
    return result


class Recogniser(Operator):
    """Scores words over time with one of three nets."""

    KNOBS = {"model": ("small", "medium", "large")}

    def changed(self) -> None:
        """Loads the model before the next item needs it."""
        own_net("speech", f"recogniser_{self.knobs['model']}")

    def process(self, item: Item) -> list[Item]:
        """Logarithms of the chance of each word (0: none) by frame, in place of the audio."""
        signal, rate = _audio(item)
        x = features(signal, rate)
        output = own_net("speech", f"recogniser_{self.knobs['model']}").run(x[None, :, None])[0][0, :, 0].T
        highest = output.max(axis=1, keepdims=True)
        scores = output - highest - np.log(np.exp(output - highest).sum(axis=1, keepdims=True))
        return [Item(item.id, item.time_s, {"scores": scores.astype(np.float32)})]


@functools.cache
def _states() -> tuple[npt.NDArray[np.intp], npt.NDArray[np.bool_], npt.NDArray[np.intp]]:
    """Of each sentence: words with blanks between, padded; where a state may be reached by a skip; last states."""
    listed = [grammar.numbers(sentence) for sentence in grammar.sentences()]
    width = 2 * max(map(len, listed)) + 1
    words = np.zeros((len(listed), width), np.intp)
    for row, sentence in zip(words, listed, strict=True):
        row[1 : 2 * len(sentence) : 2] = sentence
    skip = np.zeros_like(words, np.bool_)
    skip[:, 3::2] = (words[:, 3::2] != words[:, 1:-2:2]) & (words[:, 3::2] > 0)
    return words, skip, np.array([2 * len(sentence) for sentence in listed])


def best_sentence(scores: npt.NDArray[np.float32]) -> str:
    """The grammar's sentence of the greatest likelihood: the sum over all alignments (CTC), all sentences at once."""
    words, skip, last = _states()
    low = -1e9
    alpha = np.full(words.shape, low)
    alpha[:, 0], alpha[:, 1] = scores[0, 0], scores[0][words[:, 1]]
    for frame in scores[1:]:
        one = np.concatenate([np.full((len(alpha), 1), low), alpha[:, :-1]], axis=1)
        two = np.where(skip, np.concatenate([np.full((len(alpha), 2), low), alpha[:, :-2]], axis=1), low)
        alpha = np.logaddexp(np.logaddexp(alpha, one), two) + frame[words]
    rows = np.arange(len(words))
    total = np.logaddexp(alpha[rows, last], alpha[rows, last - 1])
    return grammar.sentences()[int(total.argmax())]


def likeliest_words(scores: npt.NDArray[np.float32]) -> str:
    """The likeliest word of each frame, repetitions and blanks dropped."""
    best = scores.argmax(axis=1)
    changed = np.concatenate([[True], best[1:] != best[:-1]])
    return " ".join(grammar.WORDS[word - 1] for word in best[changed & (best > 0)])


class Decoder(Operator):
    """The post: words from scores, freely (greedy) or as the grammar's likeliest sentence."""

    KNOBS = {"search": ("greedy", "grammar")}

    def process(self, item: Item) -> list[Item]:
        """The text in place of the scores."""
        scores = array(item, "scores", 2)
        text = best_sentence(scores) if self.knobs["search"] == "grammar" else likeliest_words(scores)
        return [Item(item.id, item.time_s, {"text": text})]
