"""Pictures of a search: what is drawn for candidates, the chosen way and the recorded one, and where."""

from pathlib import Path
from typing import Any

import matplotlib.image
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb

from scenes import bare_scene, small_scene, traffic_scene
from waycode.plotting import (
    ComparisonPanel,
    PlottingError,
    SearchPanel,
    Style,
    Viewport,
    save_comparison_picture,
    save_plan_picture,
)
from waycode.plotting.charts import draw_speed_chart
from waycode.plotting.plan_picture import PLAN_STYLE, draw_candidates, draw_comparison, new_panels
from waycode.plotting.track_layers import draw_boxes_over_time, draw_path, path_headings
from waycode.plotting.viewport import MAX_ASPECT, RigidTransform

STYLE = PLAN_STYLE
START = np.zeros(2)
Floats = np.ndarray[Any, np.dtype[np.float64]]


def fan(count: int = 3, *, steps: int = 80) -> Floats:
    """Candidates [K, T, 2] that leave the origin in different directions, 40 m long."""
    along = np.linspace(0.5, 40, steps)
    angles = np.linspace(-0.6, 0.6, count)
    return np.stack([np.stack([along * np.cos(angle), along * np.sin(angle)], axis=-1) for angle in angles])


def searched(*, chosen: int = 1, rejected: tuple[int, ...] = (), count: int = 3, rank: bool = False) -> SearchPanel:
    return SearchPanel(
        position_m=fan(count),
        rejected=np.isin(np.arange(count), rejected),
        chosen=chosen,
        rank=np.arange(count) if rank else None,
        tokens=(chosen,),
    )


def panel(radius_m: float = 45.0) -> Axes:
    (axes,) = new_panels(1, aspect=1.0, title="", style=STYLE)
    axes.set_axis_off()
    Viewport(centre_m=(0.0, 0.0), width_m=2 * radius_m, height_m=2 * radius_m).apply(axes)
    return axes


def colour_near(axes: Axes, point_m: Floats) -> tuple[int, ...]:
    """The colour of the pixel at a point."""
    canvas: Any = axes.figure.canvas
    assert isinstance(canvas, FigureCanvasAgg)
    canvas.draw()  # type: ignore[no-untyped-call]
    pixels = np.asarray(canvas.buffer_rgba())[..., :3]  # type: ignore[no-untyped-call]
    column, row = axes.transData.transform(point_m)
    return tuple(pixels[len(pixels) - 1 - int(row), int(column)].tolist())


def rgb(colour: str) -> tuple[int, ...]:
    return tuple(round(value * 255) for value in to_rgb(colour))


def test_the_chosen_candidate_is_strong_and_the_others_are_not() -> None:
    axes = panel()
    draw_candidates(axes, searched(chosen=2), start_m=START, style=STYLE)
    assert colour_near(axes, fan()[2, 40]) == rgb(STYLE.chosen)
    assert colour_near(axes, fan()[0, 40]) not in (rgb(STYLE.chosen), rgb(STYLE.paper))


def test_the_worse_a_candidate_the_fainter() -> None:
    axes = panel()
    draw_candidates(axes, searched(chosen=0, count=4, rank=True), start_m=START, style=STYLE)
    accepted: Any = axes.collections[2]  # rejected lines and their ends come first
    opacity = accepted.get_colors()[:, 3]
    assert (np.diff(opacity) < 0).all()
    assert (opacity > 0.2).all()


def test_rejected_candidates_are_dashed_and_grey() -> None:
    axes = panel()
    draw_candidates(axes, searched(rejected=(0,)), start_m=START, style=STYLE)
    lines: Any = axes.collections[0]
    assert len(lines.get_segments()) == 1
    np.testing.assert_allclose(lines.get_segments()[0][1:], fan()[0])
    assert lines.get_linestyles()[0][1] is not None  # a pattern of dashes
    np.testing.assert_allclose(lines.get_colors()[0][:3], to_rgb(STYLE.rejected))


def test_a_chosen_candidate_that_is_rejected_is_dashed() -> None:
    def dashed(rejected: tuple[int, ...]) -> bool:
        axes = panel()
        draw_candidates(axes, searched(chosen=1, rejected=rejected), start_m=START, style=STYLE)
        strong: Any = axes.collections[-2]
        np.testing.assert_allclose(strong.get_colors()[0][:3], to_rgb(STYLE.chosen))
        return strong.get_linestyles()[0][1] is not None

    assert dashed((1,))
    assert not dashed((0,))


def test_candidates_begin_where_the_agent_is() -> None:
    axes = panel()
    draw_candidates(axes, searched(), start_m=np.array([3.0, -2.0]), style=STYLE)
    lines: Any = axes.collections[2]
    assert [tuple(segment[0]) for segment in lines.get_segments()] == [(3.0, -2.0)] * 2


def test_a_panel_names_a_candidate_that_is_there() -> None:
    with pytest.raises(PlottingError, match="candidate 3 is chosen, expected one of 3"):
        searched(chosen=3)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        pytest.param([[0, 0], [0, 1], [0, 2]], [np.pi / 2] * 3, id="straight"),
        pytest.param([[0, 0], [0, 0], [0, 0]], [0.7] * 3, id="standing keeps the given heading"),
        pytest.param([[0, 0], [0, 0], [1, 0], [2, 0]], [0.7, 0.0, 0.0, 0.0], id="starts"),
        pytest.param([[0, 0], [1, 0], [1, 0], [1, 0]], [0.0, 0.0, 0.0, 0.0], id="stops"),
    ],
)
def test_headings_along_a_path(path: list[list[float]], expected: list[float]) -> None:
    np.testing.assert_allclose(path_headings(np.array(path, float), start_rad=0.7, reach=1), expected)


def test_boxes_stand_every_two_seconds() -> None:
    scene = small_scene()  # 0.1 s per step
    axes = panel()
    path = np.stack([np.linspace(0, 40, 81), np.zeros(81)], axis=-1)  # 5 m/s
    draw_boxes_over_time(axes, path, scene, agent=0, colour=STYLE.chosen)
    centres = [patch.get_path().get_extents().get_points().mean(axis=0)[0] for patch in axes.patches]
    np.testing.assert_allclose(centres[1::2], [10, 20, 30, 40], atol=1e-6)  # each has a white seam under it


def test_the_original_is_blue_and_the_found_way_green() -> None:
    axes = panel()
    ways = fan(2)
    compared = ComparisonPanel(scene=small_scene(), agent=0, recorded_m=ways[0], planned_m=ways[1])
    assert [colour for colour, _ in compared.coloured_paths_m(STYLE)] == [STYLE.original, STYLE.chosen]
    draw_comparison(axes, compared, style=STYLE)
    assert colour_near(axes, ways[0, 30]) == rgb(STYLE.original)
    assert colour_near(axes, ways[1, 30]) == rgb(STYLE.chosen)


def test_a_way_has_a_least_width() -> None:
    axes = panel(radius_m=5000.0)
    draw_path(axes, fan()[0], colour=STYLE.chosen)
    widths = [float(collection.get_linewidth()[0]) for collection in axes.collections]  # type: ignore[index]
    assert widths[1] == pytest.approx(2.6)


def test_the_chart_shows_speeds_and_stays_out_of_the_way() -> None:
    axes = panel()
    paths = [np.stack([np.linspace(0, 40, 81), np.linspace(0, 40, 81)], axis=-1)]  # to the upper right
    chart = draw_speed_chart(axes, paths, colours=[STYLE.chosen], dt_s=0.1, style=STYLE)
    np.testing.assert_allclose(np.asarray(chart.lines[0].get_ydata(), float), np.full(80, np.sqrt(2) * 5.0))
    assert chart.lines[0].get_xdata()[-1] == pytest.approx(8.0)  # type: ignore[index]
    box = axes.patches[0].get_bbox()  # type: ignore[attr-defined]
    assert box.x1 < 0.5 < box.y0  # the upper left corner


@pytest.mark.parametrize(
    ("points", "width_m", "height_m"),
    [
        pytest.param([[0, 0], [0, 46]], 40.0, 60.0, id="long: as high as may be"),
        pytest.param([[0, 0], [40, 46]], 54.0, 60.0, id="in between"),
        pytest.param([[0, 0], [46, 0]], 60.0, 60.0, id="never wider than high"),
        pytest.param([[0, 0], [1, 1]], 30.0, 30.0, id="never too near"),
    ],
)
def test_a_viewport_holds_its_points(points: list[list[float]], width_m: float, height_m: float) -> None:
    viewport = Viewport.around(np.array(points, float))
    assert (viewport.width_m, viewport.height_m) == pytest.approx((width_m, height_m))
    assert 1.0 <= viewport.aspect <= MAX_ASPECT


def test_turning_a_scene_keeps_all_distances() -> None:
    scene = traffic_scene(0)
    transform = RigidTransform(centre_m=np.array([12.0, -7.0]), angle_rad=0.9)
    turned = transform.scene(scene)
    before, after = scene.tracks, turned.tracks
    lane, stop = scene.map.lanes.centrelines.points_m[0], scene.signals.stop_point_m[0]
    moved_lane, moved_stop = turned.map.lanes.centrelines.points_m[0], turned.signals.stop_point_m[0]
    assert np.linalg.norm(moved_lane - moved_stop) == pytest.approx(np.linalg.norm(lane - stop), abs=1e-3)
    np.testing.assert_allclose(
        np.linalg.norm(after.position_m[0] - moved_lane, axis=-1),
        np.linalg.norm(before.position_m[0] - lane, axis=-1),
        atol=1e-3,
    )
    np.testing.assert_allclose(after.speed_mps, before.speed_mps, atol=1e-4)
    np.testing.assert_allclose(transform.points(np.array([[12.0, -7.0]])), [[0, 0]], atol=1e-12)
    np.testing.assert_allclose(np.cos(after.heading_rad - before.heading_rad - 0.9), 1, atol=1e-6)


def test_everything_on_the_map_turns() -> None:
    scene = small_scene()
    turned = RigidTransform(centre_m=np.zeros(2), angle_rad=np.pi).scene(scene).map
    for name in ("road_lines", "road_edges", "crosswalks", "speed_bumps", "driveways", "drivable_areas"):
        np.testing.assert_allclose(getattr(turned, name).points_m, -getattr(scene.map, name).points_m, atol=1e-4)
    np.testing.assert_allclose(turned.stop_signs.position_m, -scene.map.stop_signs.position_m, atol=1e-4)


def test_a_comparison_faces_up() -> None:
    ahead = np.stack([np.linspace(1, 40, 80), np.zeros(80)], axis=-1)  # the car drives along +x
    scene = small_scene()
    turned = ComparisonPanel(scene=scene, agent=0, planned_m=ahead + scene.tracks.position_m[0, 1]).facing_up()
    assert turned.planned_m is not None
    np.testing.assert_allclose(turned.planned_m, ahead[:, ::-1], atol=1e-4)
    np.testing.assert_allclose(turned.start_m, 0, atol=1e-6)
    assert turned.recorded_m is None


def draw(path: Path, **more: Any) -> Path:
    arguments: dict[str, Any] = {"agent": 0, "search": [searched(), searched(rejected=(0,))], "planned_m": fan()[1]}
    return save_plan_picture(small_scene(), path, dots_per_inch=40, **arguments | more)


def test_a_search_is_a_row_of_panels(tmp_path: Path) -> None:
    two = matplotlib.image.imread(draw(tmp_path / "two.png"))
    one = matplotlib.image.imread(draw(tmp_path / "one.png", search=[searched()]))
    panel_px, gap_px = 3.3 * 40, 0.14 * 40
    assert two.shape[1] - one.shape[1] == pytest.approx(panel_px + gap_px, abs=1)


def test_the_same_search_gives_the_same_picture(tmp_path: Path) -> None:
    more = {"recorded_m": fan()[0], "goal_m": (30.0, 5.0), "route": True, "speeds": True, "title": "a title"}
    assert draw(tmp_path / "a.png", **more).read_bytes() == draw(tmp_path / "b.png", **more).read_bytes()


def test_a_goal_is_drawn(tmp_path: Path) -> None:
    def share(**more: Any) -> float:
        pixels = matplotlib.image.imread(draw(tmp_path / "goal.png", **more))[..., :3]
        return float((np.abs(pixels - np.array(to_rgb(Style().goal))).max(axis=-1) < 0.03).mean())

    assert share(goal_m=(30.0, 5.0)) > share() == 0.0


def test_comparisons_stand_side_by_side(tmp_path: Path) -> None:
    panels = [
        ComparisonPanel(scene=small_scene(), agent=0, planned_m=fan()[0], recorded_m=fan()[1][:30], caption="A"),
        ComparisonPanel(scene=traffic_scene(1), agent=0, planned_m=fan()[2], caption="B", detail="the same"),
        ComparisonPanel(scene=bare_scene(), agent=0, recorded_m=fan()[1]),
    ]
    path = save_comparison_picture(panels, tmp_path / "panels.png", dots_per_inch=40)
    assert matplotlib.image.imread(path).shape[1] == int((2 * 0.2 + 3 * 3.3 + 2 * 0.14) * 40)


def test_empty_pictures_are_refused(tmp_path: Path) -> None:
    with pytest.raises(PlottingError, match="search of 0 tokens"):
        draw(tmp_path / "none.png", search=[])
    with pytest.raises(PlottingError, match="0 panels"):
        save_comparison_picture([], tmp_path / "none.png")
    with pytest.raises(PlottingError, match=r"\.txt"):
        draw(tmp_path / "none.txt")
