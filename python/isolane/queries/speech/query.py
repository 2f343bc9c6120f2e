"""Data and measures of the speech query.

Problem: how many words of spoken commands come out right? Units: words, decibels. Method: the committed clips, each
in noise made from its own seed; the accuracy is one minus the word error rate (substitutions, insertions and
deletions over words spoken), at least zero. For precision and recall of the filters a sample is a cell of the
spectrogram (25 ms, 40 Hz): relevant where speech is louder than noise, passed where the filtered clip keeps a
quarter of the power. Limits: synthetic voices, closed vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from isolane.pipeline.item import Item
from isolane.queries.operator import array, number
from isolane.queries.speech import grammar
from isolane.queries.speech.audio import FULL_RATE, power, resample, to_float, to_int
from isolane.queries.speech.clips import noisy, spoken
from isolane.queries.workload import Clips, ratio

#: Seconds between commands.
GAP_S = 4.0
#: Power of a cell, relative to full scale, below which it counts as silence.
SILENT = 1e-5
#: Share of a cell's power from which it passed.
PASSED = 0.25

#: The words, and of each cell its power in the mixture and whether speech dominates.
Truth = tuple[str, npt.NDArray[np.float64], npt.NDArray[np.bool_]]


class Home:
    """The query's data: a living room with a street outside."""

    #: Speech over noise, lowest and highest.
    ratio_db = (0.0, 14.0)
    seed = 10

    def __init__(self, clips: int = 0) -> None:
        count = len(spoken())
        self._items: Clips[Truth] = Clips(min(clips, count) or count, 1, self._make)

    def _make(self, clip: int) -> tuple[list[Item], list[Truth]]:
        text, _, clean = spoken()[clip]
        others = [signal for index, (_, _, signal) in enumerate(spoken()) if index != clip]
        random = np.random.default_rng([self.seed, clip, 0x7370])
        mixture, noise = noisy(clean, others, random, float(random.uniform(*self.ratio_db)))
        cells, noise_cells = power(mixture, FULL_RATE), power(noise, FULL_RATE)
        speech_cells = power(mixture - noise, FULL_RATE)
        relevant = (speech_cells > noise_cells) & (speech_cells > SILENT)
        item = Item(clip, clip * GAP_S, {"audio": to_int(mixture), "rate_hz": float(FULL_RATE)})
        return [item], [(text, cells, relevant)]

    def items(self) -> Sequence[Item]:
        """Clips as the microphone records them."""
        return self._items

    @property
    def texts(self) -> list[str]:
        """What is said in each clip."""
        return [text for text, _, _ in self._items.truths()]

    def accuracy(self, outputs: Sequence[Item], reference: Sequence[Item] | None = None) -> float:
        """One minus the word error rate, against the truth or another pipeline's outputs."""
        if reference is None:
            return self.accuracy_of(outputs, range(len(self._items)))
        return _one_minus_errors(outputs, {item.id: str(item.payload["text"]).split() for item in reference})

    def accuracy_of(self, outputs: Sequence[Item], ids: Sequence[int]) -> float:
        """The same of these clips, against the truth."""
        return _one_minus_errors(outputs, {clip: self._items.truth(clip)[0].split() for clip in ids})

    def filter_score(self, passed: Sequence[Item]) -> tuple[float, float]:
        """Precision and recall of cells in which speech is louder than noise."""
        truths = self._items.truths()
        both = through = 0
        for item in passed:
            _, cells, relevant = truths[item.id]
            rate = round(number(item, "rate_hz", FULL_RATE))
            signal = resample(to_float(array(item, "audio", 1)), rate, FULL_RATE)
            whole = np.pad(signal, (0, FULL_RATE))
            kept = power(whole, FULL_RATE)
            kept = np.pad(kept, ((0, max(0, len(cells) - len(kept))), (0, 0)))[: len(cells)]
            there = (kept >= PASSED * cells) & (kept > SILENT * PASSED)
            both += int((there & relevant).sum())
            through += int(there.sum())
        return ratio(both, through), ratio(both, sum(int(relevant.sum()) for _, _, relevant in truths))


class Party(Home):
    """The same commands in louder noise."""

    ratio_db = (-5.0, 5.0)
    seed = 50


def _one_minus_errors(outputs: Sequence[Item], wanted: Mapping[int, list[str]]) -> float:
    """One minus the word error rate of the clips whose words are `wanted`."""
    heard = {item.id: str(item.payload["text"]).split() for item in outputs}
    wrong = sum(grammar.mistakes(words, heard.get(clip, [])) for clip, words in wanted.items())
    return max(0.0, 1 - ratio(wrong, sum(map(len, wanted.values())))) if wanted else 1.0
