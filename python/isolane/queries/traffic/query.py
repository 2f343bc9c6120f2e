"""Data and measures of the traffic query.

Problem: how well does a pipeline find the red vehicles of each frame? Units: frames, pixels. Method: six scenes of
250 frames (17 seconds each); a result holds from its frame until the sampler's next one, as a viewer would see it;
the accuracy is the F1 of boxes over all frames, a found box being right if it overlaps a true one by 0.3
(intersection over union). A frame is the sample of the filters' precision and recall, relevant if a red vehicle is
in it. Limits: flat synthetic scenes (`scene`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from isolane.pipeline.item import Array, Item
from isolane.queries.centres import Box, Tally, overlap
from isolane.queries.operator import array, number
from isolane.queries.traffic.scene import FRAME_RATE, Conditions, Scene, Truth
from isolane.queries.workload import Clips, ratio

#: Overlap from which a box is the same vehicle: held results lag behind, by up to half a car at the lowest rate.
SAME_VEHICLE = 0.3
#: First seed of the scenes by day and by night; trainings begin at 1000.
DAY_SEED, NIGHT_SEED = 10, 50


class Day:
    """The query's data: a camera by day."""

    conditions = Conditions()
    seed = DAY_SEED

    def __init__(self, clips: int = 6, frames: int = 250) -> None:
        self._items: Clips[list[Truth]] = Clips(clips, frames, self._make)

    def _make(self, clip: int) -> tuple[list[Item], list[list[Truth]]]:
        scene = Scene(self.seed + clip, self.conditions)
        items, truths = [], []
        for frame in range(self._items.length):
            image, truth = scene.step()
            position = clip * self._items.length + frame
            items.append(Item(position, position / FRAME_RATE, {"frame": image}))
            truths.append(truth)
        return items, truths

    def items(self) -> Sequence[Item]:
        """Frames as the camera takes them."""
        return self._items

    @property
    def truths(self) -> list[list[Truth]]:
        """What is in each frame."""
        return self._items.truths()

    def accuracy(self, outputs: Sequence[Item], reference: Sequence[Item] | None = None) -> float:
        """F1 of red vehicles' boxes over all frames, against the truth or another pipeline's outputs."""
        if reference is None:
            return self.accuracy_of(outputs, range(len(self._items)))
        return _f1(zip(self._by_frame(outputs), self._by_frame(reference), strict=True))

    def accuracy_of(self, outputs: Sequence[Item], ids: Sequence[int]) -> float:
        """The same over these frames, against the truth."""
        found = self._by_frame(outputs)
        return _f1((found[frame], [one.box for one in self._items.truth(frame) if one.red]) for frame in ids)

    def filter_score(self, passed: Sequence[Item]) -> tuple[float, float]:
        """Precision and recall of frames with a red vehicle; a passed frame counts for all frames that it holds for."""
        relevant = [any(one.red for one in truth) for truth in self.truths]
        covered = [False] * len(relevant)
        for item in passed:
            for frame in range(item.id, min(len(covered), item.id + _holds(item))):
                covered[frame] = True
        both = sum(a and b for a, b in zip(relevant, covered, strict=True))
        return ratio(both, sum(covered)), ratio(both, sum(relevant))

    def _by_frame(self, outputs: Sequence[Item]) -> list[list[Box]]:
        """The boxes that a viewer sees at each frame."""
        frames: list[list[Box]] = [[] for _ in range(len(self._items))]
        for item in outputs:
            boxes: Array = array(item, "boxes", 2)
            seen = [(float(box[0]), float(box[1]), float(box[2]), float(box[3])) for box in boxes]
            for frame in range(item.id, min(len(frames), item.id + _holds(item))):
                frames[frame] = seen
        return frames


class Night(Day):
    """The same streets with half of the light and a noisier sensor."""

    conditions = Conditions(darkness=0.5, noise=9.0)
    seed = NIGHT_SEED


def _f1(frames: Iterable[tuple[list[Box], list[Box]]]) -> float:
    """The F1 of found boxes, each frame's beside the true ones."""
    tally = Tally()
    for found, truth in frames:
        tally.add(found, truth, lambda one, two: max(0.0, overlap(one, two) - SAME_VEHICLE))
    return tally.f1


def _holds(item: Item) -> int:
    return max(1, int(number(item, "holds", 1.0)))
