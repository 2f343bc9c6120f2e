"""The driving query: rays, filters, truth and profile data."""

from __future__ import annotations

import numpy as np
import pytest

from isolane.pipeline.item import Array, Item, ItemError
from isolane.planner.live import pass_through
from isolane.planner.profiles import Replay, load_profile
from isolane.queries.lidar.operators import Detector, GroundRemoval, Obstacles, Scanner, Voxelisation, grid
from isolane.queries.lidar.query import Clear, Rain
from isolane.queries.lidar.scan import SENSOR_HEIGHT, WATCHED, Conditions, Street
from isolane.queries.registry import builtin


def cloud(item: Item) -> Array:
    """The item's points."""
    points = item.payload["points"]
    assert isinstance(points, np.ndarray)
    return points


def test_scans_follow_from_their_seed() -> None:
    one, two, other = (Street(seed).step() for seed in (3, 3, 4))
    assert one[0].tobytes() == two[0].tobytes() and one[1] == two[1]
    assert one[0].tobytes() != other[0].tobytes()


def test_points_of_an_object_lie_on_it() -> None:
    points, truths, kinds = Street(5, Conditions(noise_m=0.0, lost=0.0)).step()
    assert {truth.kind for truth in truths} == {0, 1, 2}
    for truth in truths:
        reach = (2.7, 0.6, 0.8)[truth.kind]
        near = np.hypot(points[:, 0] - truth.x, points[:, 1] - truth.y) < reach
        assert int(((kinds == truth.kind) & near).sum()) >= truth.points


def test_points_behind_are_hidden() -> None:
    """Along each direction a box hides points that are farther and lower: nothing shines through."""
    points, _, kinds = Street(6, Conditions(noise_m=0.0, lost=0.0, clutter=0)).step()
    angle = np.round((np.arctan2(points[:, 1], points[:, 0]) % (2 * np.pi)) / (2 * np.pi) * 900 - 0.5).astype(int)
    rise = points[:, 2] / np.hypot(points[:, 0], points[:, 1])
    ray = angle * 1000 + np.round(rise * 400).astype(int)
    assert len(np.unique(ray)) == len(ray)
    assert (kinds >= 0).any()


def plane(slope: float, count: int = 4000, seed: int = 1) -> Array:
    """A sloping ground with a block of 1 m on it."""
    random = np.random.default_rng(seed)
    x, y = random.uniform(-20, 20, (2, count))
    z = -SENSOR_HEIGHT + slope * x + random.normal(0, 0.02, count)
    block = (np.abs(x - 5) < 2) & (np.abs(y) < 2)
    z[block] += random.uniform(0.15, 1.0, int(block.sum()))
    return np.column_stack([x, y, z, np.full(count, 0.5)]).astype(np.float32)


@pytest.mark.parametrize("slope", [0.0, 0.05, -0.1])
def test_the_ground_goes_and_what_stands_on_it_stays_at_its_height(slope: float) -> None:
    removal = GroundRemoval()
    removal.configure({"distance_m": 0.1})
    points = plane(slope)
    (item,) = removal.process(Item(3, 0.0, {"points": points}))
    kept = cloud(item)
    assert (np.abs(kept[:, 0] - 5) < 2.01).all() and (np.abs(kept[:, 1]) < 2.01).all()
    block = (np.abs(points[:, 0] - 5) < 2) & (np.abs(points[:, 1]) < 2)
    assert len(kept) >= 0.95 * block.sum()
    assert 0.9 < kept[:, 2].max() + SENSOR_HEIGHT < 1.1
    assert removal.process(Item(3, 0.0, {"points": points}))[0] == item


def test_voxels_agree_with_a_mean_cube_by_cube() -> None:
    voxels = Voxelisation()
    voxels.configure({"voxel_m": 0.4})
    points = plane(0.02, 600)
    (item,) = voxels.process(Item(0, 0.0, {"points": points}))
    cubes: dict[tuple[int, ...], list[Array]] = {}
    for point in points:
        cubes.setdefault(tuple(np.floor(point[:3] / np.float32(0.4)).astype(int)), []).append(point)
    wanted = np.array([np.mean(members, axis=0) for _, members in sorted(cubes.items())])
    assert np.allclose(cloud(item), wanted, atol=1e-4)


def test_smaller_voxels_and_nearer_ground_leave_more_points() -> None:
    scan = Clear(1, 1).items()[0]
    sizes = []
    for distance, side in ((0.5, 0.5), (0.3, 0.3), (0.1, 0.1)):
        ground, voxels = GroundRemoval(), Voxelisation()
        ground.configure({"distance_m": distance})
        voxels.configure({"voxel_m": side})
        sizes.append(len(cloud(voxels.process(ground.process(scan)[0])[0])))
    assert sizes == sorted(sizes) and sizes[0] < sizes[2] / 2


def test_the_scanner_drops_points_that_are_no_numbers() -> None:
    points = plane(0.0, 100)
    points[3, 1], points[7, 0] = np.nan, 1e9
    (item,) = Scanner().process(Item(0, 0.0, {"points": points}))
    assert len(cloud(item)) == 98


def test_the_grid_counts_points_by_place_and_height() -> None:
    points = np.array(
        [[0.0, 0.0, -1.0, 0.5], [0.1, 0.1, -1.1, 0.7], [0.0, 0.0, 0.4, 0.9], [WATCHED + 1, 0, 0, 1]], np.float32
    )
    seen = grid(points)
    row, column = (int(value) for value in np.argwhere(seen[1] > 0)[0])
    assert seen[1, row, column] == pytest.approx(np.log1p(2))
    assert seen[4, row, column] == pytest.approx(np.log1p(1))
    assert seen[-2, row, column] == pytest.approx(2.2)
    assert seen[-1, row, column] == pytest.approx(0.7)
    assert np.count_nonzero(seen) == 4


def test_finds_near_each_other_are_one_obstacle() -> None:
    places = np.array([[5.0, 0.0], [5.2, 0.1], [9.0, 0.0]], np.float32)
    payload = {
        "centres": places,
        "kinds": np.array([0, 1, 1], np.uint8),
        "chances": np.array([0.9, 0.8, 0.7], np.float32),
    }
    (item,) = Obstacles().process(Item(0, 0.0, {**payload}))
    assert np.array_equal(item.payload["centres"], places[[0, 2]])  # type: ignore[arg-type]
    assert item.payload["nearest_m"] == 5.0


def test_accuracy_is_one_for_the_truth_and_zero_for_silence() -> None:
    workload = Clear(2, 2)
    truths = [
        Item(
            number,
            0.0,
            {
                "centres": np.array([place for _, *place in objects]).reshape(-1, 2),
                "kinds": np.array([kind for kind, *_ in objects], np.uint8),
            },
        )
        for number, (objects, _) in enumerate(workload.truths)
    ]
    assert workload.accuracy(truths) == 1.0
    assert workload.accuracy([]) == 0.0
    assert workload.accuracy(truths, reference=truths) == 1.0
    moved = [item.with_payload(centres=item.payload["centres"] + 5) for item in truths]  # type: ignore[operator]
    assert workload.accuracy(moved) < 0.3
    precision, recall = workload.filter_score(workload.items())
    assert recall == 1.0 and 0.0 < precision < 0.5
    assert workload.filter_score([]) == (1.0, 0.0)


def test_rain_loses_points_and_adds_ghosts() -> None:
    clear, rain = (len(cloud(workload(1, 1).items()[0])) for workload in (Clear, Rain))
    assert rain < clear
    with pytest.raises(ItemError, match="item 2: needs an array 'points'; it carries nothing"):
        GroundRemoval().process(Item(2, 0.0, {}))


@pytest.mark.parametrize("scene", ["clear", "rain"])
def test_the_committed_profile_has_every_launch(scene: str) -> None:
    query = builtin("driving").query()
    replay = Replay(query, load_profile(builtin("driving").profile(scene)))
    assert len(query.orders()) == 2
    for order in query.orders():
        for configuration in query.configurations():
            assert 0 < replay.launch(order, configuration).accuracy <= 1


def test_the_committed_profile_says_what_the_pipeline_does() -> None:
    query = builtin("driving").query()
    order = query.orders()[0]
    settings = {"ground": {"distance_m": 0.3}, "voxels": {"voxel_m": 0.3}, "detector": {"model": "medium"}}
    recorded = Replay(query, load_profile(builtin("driving").profile("clear"))).launch(
        order, query.configuration(settings)
    )
    workload = Clear()
    items = list(workload.items())
    for name, operator in zip(
        order, (Scanner(), GroundRemoval(), Voxelisation(), Detector(), Obstacles()), strict=True
    ):
        operator.configure(settings.get(name, {}))
        items, result = pass_through(query.operator(name), operator, items)
        assert result.pass_rate == pytest.approx(recorded.operators[name].pass_rate, rel=1e-4), name
        assert result.output_bytes == pytest.approx(recorded.operators[name].output_bytes, rel=0.02), name
    assert workload.accuracy(items) == pytest.approx(recorded.accuracy, abs=0.01)
