"""The traffic query: its images, operators, truth and profile data."""

from __future__ import annotations

import json
import pathlib

import numpy as np
import pytest

from isolane.pipeline.item import Item, ItemError, encode
from isolane.planner.live import pass_through
from isolane.planner.profiles import Replay, load_profile
from isolane.queries import centres, images
from isolane.queries.__main__ import main
from isolane.queries.registry import BUILTINS, builtin
from isolane.queries.traffic.operators import BackgroundSubtractor, ColourFilter, Detector, RedVehicles, Sampler
from isolane.queries.traffic.query import Day, Night
from isolane.queries.traffic.scene import HEIGHT, WIDTH, Conditions, Scene


def through(items: list[Item], *operators: object) -> list[Item]:
    """Items through operators, one after the other."""
    for operator in operators:
        items = [later for item in items for later in operator.process(item)]  # type: ignore[attr-defined]
    return items


def frame(paint: tuple[int, int, int] = (80, 80, 80)) -> images.Image:
    """A frame of one colour."""
    return np.full((HEIGHT, WIDTH, 3), paint, np.uint8)


def test_resizing_keeps_flat_areas_and_rounds_sides_to_steps() -> None:
    assert images.resize(frame(), 1.0).shape == (224, 384, 3)
    small = images.resize(frame((10, 200, 77)), 0.6)
    assert small.shape == (128, 224, 3)
    assert (small == (10, 200, 77)).all()


def test_resizing_agrees_with_interpolation_pixel_by_pixel() -> None:
    image = np.random.default_rng(3).integers(0, 256, (32, 48, 3)).astype(np.uint8)
    small = images.resize(image, 0.7)
    for row, column in ((0, 0), (5, 7), (15, 31)):
        y = min(max((row + 0.5) * 32 / small.shape[0] - 0.5, 0), 31)
        x = min(max((column + 0.5) * 48 / small.shape[1] - 0.5, 0), 47)
        top, left = int(y), int(x)
        bottom, right = min(top + 1, 31), min(left + 1, 47)
        wanted = (1 - (y - top)) * ((1 - (x - left)) * image[top, left] + (x - left) * image[top, right]) + (
            y - top
        ) * ((1 - (x - left)) * image[bottom, left] + (x - left) * image[bottom, right])
        assert np.abs(small[row, column] - wanted).max() <= 0.51


def test_red_is_neither_orange_nor_pink_nor_brown_at_any_brightness() -> None:
    paints = np.array([[(200, 30, 35), (228, 124, 30), (232, 130, 152), (120, 66, 44), (240, 240, 240)]], np.float64)
    for light in (1.0, 0.7, 0.5):
        assert images.red((paints * light).astype(np.uint8)).tolist() == [[True, False, False, False, False]]


def test_scenes_follow_from_their_seed_and_boxes_lie_in_the_frame() -> None:
    one, two, other = Scene(4), Scene(4), Scene(5)
    for _ in range(40):
        image, truths = one.step()
        again, _ = two.step()
        assert image.tobytes() == again.tobytes()
        for truth in truths:
            left, top, right, bottom = truth.box
            assert 0 <= left < right <= WIDTH and 0 <= top < bottom <= HEIGHT
            assert not (truth.red and truth.kind == 2)
    assert image.tobytes() != other.step()[0].tobytes()


def test_peaks_are_local_maxima_above_the_threshold() -> None:
    grid = np.full((1 + 1 + 2, 4, 5), -5.0, np.float32)
    grid[0, 1, 1], grid[0, 1, 2], grid[0, 3, 4] = 3.0, 2.0, 1.0
    grid[1, 1, 1], grid[3, 3, 4] = 0.25, 9.0
    rows, columns, chances, numbers, kinds = centres.peaks(grid, 1, 0.5)
    assert (rows.tolist(), columns.tolist()) == ([1, 3], [1, 4])
    assert chances[0] > chances[1] > 0.5
    assert numbers[0, 0] == 0.25
    assert kinds.tolist() == [0, 1]


def test_each_find_and_each_object_count_once() -> None:
    tally = centres.Tally()
    tally.add([0.0, 0.4, 9.0], [0.1, 5.0], lambda one, two: 1 - abs(one - two))
    assert (tally.right, tally.invented, tally.missed) == (1, 2, 1)
    assert tally.f1 == pytest.approx(2 / 5)
    assert centres.Tally().f1 == 1.0


def test_sampler_keeps_every_nth_frame_whenever_it_starts() -> None:
    sampler = Sampler()
    sampler.configure({"every": 3, "resize": 0.8})
    kept = through([Item(number, number / 15, {"frame": frame()}) for number in range(4, 16)], sampler)
    assert [item.id for item in kept] == [6, 9, 12, 15]
    assert kept[0].payload["holds"] == 3
    assert kept[0].payload["frame"].shape == (176, 304, 3)  # type: ignore[union-attr]


def test_a_refused_knob_leaves_all_knobs_as_they_were() -> None:
    sampler = Sampler()
    before = dict(sampler.knobs)
    with pytest.raises(ValueError, match=r"resize = 0\.65; allowed: 0\.6, 0\.7"):
        sampler.configure({"every": 3, "resize": 0.65})
    with pytest.raises(ValueError, match="has no knob 'speed'; it has: every, resize"):
        sampler.configure({"speed": 1})
    assert sampler.knobs == before


def street(seconds: float, square_from: float) -> list[Item]:
    """A still street; from some time on a red square crosses it."""
    items = []
    for number in range(int(seconds * 15)):
        image = frame()
        image[28:36, 100:120] = (190, 30, 34)
        if number / 15 >= square_from:
            x = int(8 * (number - square_from * 15)) % (WIDTH - 40)
            image[120:140, x : x + 30] = (235, 60, 60)
        items.append(Item(number, number / 15, {"frame": image}))
    return items


def test_background_drops_still_frames_and_crops_to_what_moves() -> None:
    subtractor = BackgroundSubtractor()
    learnt = subtractor.MEMORY * subtractor.SPACING_S
    kept = through(street(10, 8), subtractor)
    assert [item.id for item in kept if learnt < item.time_s < 8] == []
    moving = [item for item in kept if item.time_s >= 8]
    assert [item.id for item in moving] == list(range(120, 150))
    crop = moving[5].payload
    x = int(8 * 5)
    assert crop["left"] <= x and crop["top"] <= 120  # type: ignore[operator]
    shape = crop["frame"].shape  # type: ignore[union-attr]
    assert crop["left"] + shape[1] >= x + 30 and crop["top"] + shape[0] >= 140  # type: ignore[operator]
    assert shape[0] * shape[1] < HEIGHT * WIDTH / 8


@pytest.mark.parametrize("every", [6, 5, 4, 3, 2])
def test_frames_that_are_not_exactly_on_time_fill_the_memory_as_fast(every: int) -> None:
    random = np.random.default_rng(every)
    kept = []
    for late_s in (0.0, 0.02):
        frames = [item for item in street(12, 9) if item.id % every == 0]
        live = [Item(item.id, item.time_s + float(random.uniform(0, late_s)), item.payload) for item in frames]
        kept.append([item.id for item in through(live, BackgroundSubtractor())])
    exact, jittered = kept
    assert len(exact) < len([item for item in street(12, 9) if item.id % every == 0])
    assert jittered == exact


def test_a_still_red_awning_counts_only_before_the_background_is_known() -> None:
    items = street(10, 99)
    assert len(through(items, ColourFilter())) == len(items)
    late = [item for item in through(items, BackgroundSubtractor(), ColourFilter()) if item.time_s > 4]
    assert late == []


def test_a_red_square_as_bright_as_the_road_escapes_the_background_subtractor() -> None:
    """The subtractor's stated limit, which makes the order of the filters matter."""
    items = street(8, 99)
    subtractor = BackgroundSubtractor()
    through(items, subtractor)
    image = frame()
    image[28:36, 100:120] = (190, 30, 34)
    image[120:140, 60:90] = (190, 30, 36)
    item = Item(len(items), 8.0, {"frame": image})
    assert through([item], subtractor) == []
    assert through([item], ColourFilter()) == [item]


def test_a_background_that_moved_to_another_tier_goes_on_as_before() -> None:
    items = street(10, 8)
    stayed, left, successor = BackgroundSubtractor(), BackgroundSubtractor(), BackgroundSubtractor()
    through(items[:90], stayed)
    through(items[:90], left)
    successor.restore(left.state())
    assert through(items[90:], successor) == through(items[90:], stayed)


def test_accuracy_is_one_for_the_truth_and_zero_for_silence() -> None:
    workload = Day(clips=2, frames=40)
    items = list(workload.items())
    assert [item.id for item in items] == list(range(80))
    truths = [
        Item(item.id, item.time_s, {"boxes": np.array([one.box for one in truth if one.red]).reshape(-1, 4)})
        for item, truth in zip(items, workload.truths, strict=True)
    ]
    assert any(len(item.payload["boxes"]) for item in truths)  # type: ignore[arg-type]
    assert workload.accuracy(truths) == 1.0
    assert workload.accuracy([]) == 0.0
    assert workload.accuracy(truths, reference=truths) == 1.0
    assert workload.accuracy([], reference=truths) == 0.0
    relevant = sum(any(one.red for one in truth) for truth in workload.truths)
    assert workload.filter_score(items) == pytest.approx((relevant / 80, 1.0))
    assert workload.filter_score([])[1] == 0.0


def test_a_result_holds_until_the_next_sampled_frame_and_no_longer() -> None:
    workload = Day(clips=1, frames=12)
    box = np.array([[10.0, 10.0, 50.0, 30.0]])
    sampled = [Item(0, 0.0, {"boxes": box, "holds": 4.0}), Item(8, 0.5, {"boxes": box, "holds": 4.0})]
    full = [Item(number, 0.0, {"boxes": box}) for number in (0, 1, 2, 3, 8, 9, 10, 11)]
    assert workload.accuracy(sampled, reference=full) == 1.0


def test_the_large_detector_finds_red_vehicles_and_the_small_one_fewer() -> None:
    workload = Day(clips=2, frames=120)
    accuracies = {}
    for model in ("small", "large"):
        sampler, detector = Sampler(), Detector()
        sampler.configure({"every": 4, "resize": 0.9})
        detector.configure({"model": model})
        found = through(list(workload.items()), sampler, detector, RedVehicles())
        assert len(found) == 60
        accuracies[model] = workload.accuracy(found)
    assert accuracies["large"] > 0.8
    assert accuracies["large"] > accuracies["small"] + 0.1


def test_an_item_without_a_frame_is_refused_by_name() -> None:
    for operator in (Sampler(), BackgroundSubtractor(), ColourFilter(), Detector()):
        with pytest.raises(ItemError, match="item 0: needs an array 'frame'; it carries audio"):
            operator.process(Item(0, 0.0, {"audio": 1.0}))


def test_night_is_darker_than_day() -> None:
    day, night = (np.mean(workload(1, 5).items()[4].payload["frame"]) for workload in (Day, Night))
    assert night < 0.7 * day
    assert Conditions().darkness < Night.conditions.darkness


@pytest.mark.parametrize("scene", ["day", "night"])
def test_the_committed_profile_has_every_launch(scene: str) -> None:
    query, file = builtin("traffic").query(), builtin("traffic").profile(scene)
    replay = Replay(query, load_profile(file))
    for order in query.orders():
        for configuration in query.configurations():
            launch = replay.launch(order, configuration)
            assert 0 < launch.accuracy <= 1 and launch.launch_cost_s > 0
    assert len(query.orders()) == 2


def test_the_committed_profile_says_what_the_pipeline_does() -> None:
    """One configuration over all the data again: accuracy, pass rates and bytes; times are another machine's."""
    query = builtin("traffic").query()
    order = query.orders()[1]
    configuration = query.configuration({"camera": {"every": 6, "resize": 0.6}, "detector": {"model": "medium"}})
    recorded = Replay(query, load_profile(builtin("traffic").profile("day"))).launch(order, configuration)
    workload = Day()
    sampler, detector = Sampler(), Detector()
    sampler.configure({"every": 6, "resize": 0.6})
    detector.configure({"model": "medium"})
    items = list(workload.items())
    for name, operator in zip(
        order, (sampler, ColourFilter(), BackgroundSubtractor(), detector, RedVehicles()), strict=True
    ):
        items, result = pass_through(query.operator(name), operator, items)
        assert result.pass_rate == pytest.approx(recorded.operators[name].pass_rate, rel=1e-4), name
        assert result.output_bytes == pytest.approx(recorded.operators[name].output_bytes, rel=0.01), name
    assert sum(len(encode(item)) for item in items) > 0
    # Another version of the runtime may round another box over a threshold.
    assert workload.accuracy(items) == pytest.approx(recorded.accuracy, abs=0.01)


def test_examples_are_the_packages_own_queries() -> None:
    examples = pathlib.Path(__file__).parents[2] / "examples"
    if not examples.is_dir():
        pytest.skip("no examples beside the package: not in the repository")
    for name, found in BUILTINS.items():
        assert (examples / f"{name}.yaml").read_text() == found.file.read_text()
        assert found.query().name == name


def test_profiles_stay_small() -> None:
    """All of them together, and what they are of."""
    files = [found.profile(scene) for found in BUILTINS.values() for scene in found.scenes]
    assert sum(file.stat().st_size for file in files) <= 700_000
    for file in files:
        assert "one thread" in load_profile(file).machine


def test_unknown_queries_and_scenes_are_refused_with_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", "traffik"]) == 2
    assert "there is no built-in query 'traffik'; there are traffic, driving, speech" in capsys.readouterr().err
    assert main(["profile", "traffic", "--scene", "fog"]) == 2
    assert "query traffic has no scene 'fog'; it has day, night" in capsys.readouterr().err
    assert main(["list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [(one["query"], one["orders"], one["configurations"]) for one in listed] == [
        ("traffic", 2, 75),
        ("driving", 2, 75),
        ("speech", 2, 150),
    ]
