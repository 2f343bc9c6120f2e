"""Speech from espeak-ng, for training and for the committed clips; needs its library (package espeakng-loader).

Problem: thousands of labelled commands in many voices. Units: words a minute, hertz. Method: the library's C
interface, in this process; the result is resampled from 22,050 to 16,000 Hz and silence at its ends is cut. Limits:
one thread; the same library version gives the same samples. Voices of the committed clips are not among those of the
training.
"""

from __future__ import annotations

import ctypes
import pathlib
from typing import Any

import espeakng_loader
import numpy as np

from isolane.queries.speech import grammar
from isolane.queries.speech.audio import FULL_RATE, Signal, resample, to_float
from isolane.queries.speech.clips import encode

TRAINED = (
    "en-us",
    "en",
    "en-us+m1",
    "en-us+m3",
    "en-us+m5",
    "en+m2",
    "en+m4",
    "en-us+f1",
    "en-us+f3",
    "en+f5",
    "en-gb-x-rp",
    "en-gb-x-rp+f1",
    "en-us+m6",
    "en+f3",
)
TESTED = ("en-us+f2", "en+m7", "en-us+m2", "en+f4")
#: Committed clips.
CLIPS = 64

_SYNCHRONOUS, _RATE, _PITCH, _UTF8 = 2, 1, 3, 1


class Synthesiser:
    """The library, once per process."""

    def __init__(self) -> None:
        # Any: the loader has no types.
        loader: Any = espeakng_loader
        self._library = ctypes.CDLL(loader.get_library_path())
        self.rate = int(self._library.espeak_Initialize(_SYNCHRONOUS, 0, str(loader.get_data_path()).encode(), 0))
        if self.rate <= 0:
            raise OSError("espeak-ng cannot be initialised; is its data directory complete?")
        self._parts: list[Any] = []
        kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p)

        def hear(samples: Any, count: int, _events: Any) -> int:
            if samples and count > 0:
                self._parts.append(np.ctypeslib.as_array(samples, (count,)).copy())
            return 0

        self._hear = kind(hear)
        self._library.espeak_SetSynthCallback(self._hear)

    def say(self, text: str, voice: str, words_per_minute: int, pitch: int) -> Signal:
        """The text as spoken, at FULL_RATE, with a peak of about 0.5."""
        if self._library.espeak_SetVoiceByName(voice.encode()):
            raise ValueError(f"espeak-ng has no voice {voice!r}")
        self._library.espeak_SetParameter(_RATE, words_per_minute, 0)
        self._library.espeak_SetParameter(_PITCH, pitch, 0)
        self._parts.clear()
        data = text.encode()
        self._library.espeak_Synth(data, len(data) + 1, 0, 1, 0, _UTF8, None, None)
        self._library.espeak_Synchronize()
        signal = resample(to_float(np.concatenate(self._parts)), self.rate, FULL_RATE)
        loud = np.nonzero(np.abs(signal) > 0.02 * np.abs(signal).max())[0]
        signal = signal[loud[0] : loud[-1] + 1]
        result: Signal = (signal / np.abs(signal).max() * 0.5).astype(np.float32)
        return result


def commands(count: int, voices: tuple[str, ...], seed: int) -> list[tuple[str, str, Signal]]:
    """Random commands: text, voice, signal. The four patterns are equally frequent."""
    random = np.random.default_rng([seed, 0x766F])
    by_pattern: dict[str, list[str]] = {}
    for sentence in grammar.sentences():
        by_pattern.setdefault(sentence.split()[0], []).append(sentence)
    patterns = list(by_pattern.values())
    synthesiser = Synthesiser()
    result = []
    for index in range(count):
        choices = patterns[index % len(patterns)]
        text = choices[int(random.integers(len(choices)))]
        voice = voices[int(random.integers(len(voices)))]
        signal = synthesiser.say(text, voice, int(random.integers(135, 185)), int(random.integers(35, 65)))
        result.append((text, voice, signal))
    return result


def write_clips(path: pathlib.Path) -> int:
    """Makes the committed clips again; returns the file's bytes."""
    made = commands(CLIPS, TESTED, 7)
    content = encode([signal for _, _, signal in made], [text for text, _, _ in made], [voice for _, voice, _ in made])
    path.write_bytes(content)
    return len(content)
