"""Pictures: what is drawn where, in which colour, and that nothing else of the process is touched."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib.image
import numpy as np
import pytest
import shapely
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb

from scenes import bare_scene, small_scene, traffic_scene
from waycode.plotting import (
    PlottingError,
    Style,
    Viewport,
    draw_map,
    draw_scene,
    draw_signals,
    draw_trajectory,
    new_axes,
    save_contact_sheet,
    save_scene_picture,
    scene_viewport,
)
from waycode.plotting.map_layers import zebra_stripes
from waycode.plotting.shapes import dashes, offset_polyline, outline_path
from waycode.plotting.viewport import line_width_pt, points_per_metre
from waycode.scene import LineType, MapFeatures, Polylines, Scene, Signals, SignalState

STYLE = Style()
Pixels = np.ndarray[Any, np.dtype[np.uint8]]


def pixels_of(axes: Axes) -> Pixels:
    canvas: Any = axes.figure.canvas
    assert isinstance(canvas, FigureCanvasAgg)
    canvas.draw()  # type: ignore[no-untyped-call]
    return np.asarray(canvas.buffer_rgba())[..., :3]  # type: ignore[no-untyped-call]


def colour_at(axes: Axes, x_m: float, y_m: float) -> tuple[int, ...]:
    pixels = pixels_of(axes)
    column, row = axes.transData.transform((x_m, y_m))
    return tuple(pixels[len(pixels) - 1 - int(row), int(column)].tolist())


def is_colour(pixels: Pixels, colour: str, tolerance: int = 12) -> np.ndarray[Any, np.dtype[np.bool_]]:
    wanted = np.round(np.array(to_rgb(colour)) * 255)
    return (np.abs(pixels.astype(int) - wanted) <= tolerance).all(axis=-1)


def rgb(colour: str) -> tuple[int, ...]:
    return tuple(round(value * 255) for value in to_rgb(colour))


def blank_axes(radius_m: float = 20.0) -> Axes:
    axes = new_axes(size_in=5.0)
    axes.set_axis_off()
    Viewport.square((0.0, 0.0), radius_m=radius_m).apply(axes)
    return axes


def test_a_picture_is_a_png_of_the_size_asked_for(tmp_path: Path) -> None:
    path = save_scene_picture(small_scene(), tmp_path / "new" / "scene.png", size_in=4.0, dots_per_inch=100)
    assert path.read_bytes().startswith(b"\x89PNG")
    assert matplotlib.image.imread(path).shape[:2] == (455, 400)  # as wide as asked for, and 0.55 in for the title


def test_the_same_scene_gives_the_same_picture(tmp_path: Path) -> None:
    for name in ("one.png", "two.png"):
        save_scene_picture(small_scene(), tmp_path / name, size_in=3.0)
    assert (tmp_path / "one.png").read_bytes() == (tmp_path / "two.png").read_bytes()


def test_the_ego_is_in_the_middle_in_its_own_colour() -> None:
    axes = draw_scene(small_scene(), radius_m=30.0)
    pixels = pixels_of(axes)
    rows, columns = np.nonzero(is_colour(pixels, STYLE.ego))
    near = (np.abs(columns - pixels.shape[1] / 2) < 60) & (np.abs(rows - pixels.shape[0] / 2) < 60)
    assert near.sum() > 500
    assert near.sum() > 0.8 * len(near)  # what remains is the legend


def test_another_road_user_can_be_in_the_middle() -> None:
    scene = small_scene()
    middle = scene_viewport(scene, agent="walker", radius_m=10.0).centre_m
    assert middle == pytest.approx((scene.tracks.x_m[1, 1], 8.0))


def test_the_view_falls_back_where_there_is_no_ego() -> None:
    assert scene_viewport(bare_scene(), radius_m=5.0).centre_m == (0.0, 0.0)
    without_ego = replace(small_scene(), tracks=replace(small_scene().tracks, ego_index=None))
    assert scene_viewport(without_ego).centre_m == scene_viewport(small_scene()).centre_m  # the first track to predict


def test_the_view_follows_an_ego_that_is_not_seen_now() -> None:
    scene = small_scene()
    tracks = replace(scene.tracks, ego_index=3)  # seen at step 0 only
    assert scene_viewport(replace(scene, tracks=tracks), step=4).centre_m == (0.0, 2.0)
    draw_scene(replace(scene, tracks=tracks), step=4)


def test_the_whole_scene_holds_every_lane_and_track() -> None:
    scene = traffic_scene(0)
    left, bottom, right, top = scene_viewport(scene, radius_m=None).bounds_m
    points = np.concatenate([scene.map.lanes.centrelines.points_m, scene.tracks.position_m[scene.tracks.valid]])
    assert np.all((points > (left, bottom)) & (points < (right, top)))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"agent": "nobody"}, "has no road user 'nobody'; available: car, walker, rider, thing"),
        ({"step": 5}, "has no step 5: expected 0 to 4"),
        ({"step": -1}, "has no step -1: expected 0 to 4"),
        ({"radius_m": 0.0}, "expected a positive number"),
        ({"radius_m": float("nan")}, "expected a positive number"),
    ],
)
def test_impossible_views_are_refused_in_a_sentence(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(PlottingError, match=sentence):
        draw_scene(small_scene(), **options)


@pytest.mark.parametrize("name", ["scene.txt", "scene", "folder.png"])
def test_only_picture_files_are_written(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(PlottingError, match="cannot draw to"):
        save_scene_picture(small_scene(), tmp_path / name)


@pytest.mark.parametrize(
    "scene",
    [
        bare_scene(),
        small_scene(),
        traffic_scene(1),
        replace(small_scene(), map=MapFeatures(), signals=Signals(), route=None),
        replace(small_scene(), signals=Signals()),
        replace(small_scene(), current_step=0),
        replace(small_scene(), current_step=4),
    ],
    ids=["bare", "small", "traffic", "no map", "no lights", "no past", "no future"],
)
def test_every_kind_of_scene_can_be_drawn(scene: Scene) -> None:
    scene.validate()
    for radius_m in (20.0, None):
        axes = draw_scene(scene, radius_m=radius_m)
        assert np.unique(pixels_of(axes).reshape(-1, 3), axis=0).shape[0] > 10


def test_lanes_over_lanes_are_not_darker() -> None:
    axes = blank_axes()
    scene = small_scene()
    draw_map(axes, replace(scene, map=replace(scene.map, drivable_areas=Polylines.of([]))))
    assert colour_at(axes, 15.0, 4.0) == rgb(STYLE.asphalt)  # one lane
    assert colour_at(axes, 15.0, 1.75) == rgb(STYLE.asphalt)  # where the two lanes meet
    assert colour_at(axes, -15.0, 10.0) == rgb(STYLE.paper)


def test_paint_is_white_or_yellow_and_broken_or_solid() -> None:
    line = np.array([[-15, 0], [15, 0]], np.float32)
    for kind, colour, at_gap in (
        (LineType.SOLID_SINGLE_YELLOW, STYLE.yellow_paint, True),
        (LineType.BROKEN_SINGLE_WHITE, STYLE.white_paint, False),
    ):
        axes = blank_axes()
        features = MapFeatures(road_lines=Polylines.of([line]), road_line_types=np.array([kind], np.int8))
        draw_map(axes, replace(bare_scene(), map=features), style=replace(STYLE, paint_width_m=1.0))
        assert colour_at(axes, -13.5, 0.0) == rgb(colour)  # on the first dash
        assert (colour_at(axes, -10.0, 0.0) == rgb(colour)) == at_gap


def test_dashes_follow_the_line_and_keep_its_corners() -> None:
    corner = np.array([[0.0, 0.0], [2.0, 0.0], [2.0, 6.0]])
    first, second = dashes(corner, dash_m=3.0, gap_m=4.0)
    np.testing.assert_allclose(first, [[0, 0], [2, 0], [2, 1]])
    np.testing.assert_allclose(second, [[2, 5], [2, 6]])


def test_beside_is_to_the_left() -> None:
    np.testing.assert_allclose(offset_polyline(np.array([[0.0, 0.0], [5.0, 0.0]]), 0.5), [[0, 0.5], [5, 0.5]])


@pytest.mark.parametrize(("driving_rad", "wide_m"), [(None, 0.55), (np.pi / 2, 0.55), (0.0, 8.0)])
def test_zebra_stripes_run_the_way_of_the_traffic(driving_rad: float | None, wide_m: float) -> None:
    crosswalk = shapely.box(0, 0, 8, 3)
    stripes = shapely.get_parts(zebra_stripes(crosswalk, driving_rad=driving_rad))
    assert len(stripes) == (7 if wide_m < 1 else 2)
    for stripe in stripes:
        left, _, right, _ = stripe.bounds
        assert right - left == pytest.approx(wide_m)
    assert crosswalk.buffer(1e-6).contains(shapely.union_all(stripes))


def test_holes_stay_holes() -> None:
    ring = shapely.box(0, 0, 10, 10).difference(shapely.box(4, 4, 6, 6))
    outline = outline_path(ring)
    assert outline is not None
    assert outline_path(shapely.Point(0, 0)) is None
    axes = new_axes()
    draw_scene(replace(bare_scene(), map=MapFeatures(drivable_areas=Polylines.of([np.zeros((3, 2))]))), axes)


def test_a_light_has_the_colour_of_its_state_now() -> None:
    scene = small_scene()
    states = np.array(
        [[SignalState.GO, SignalState.STOP, SignalState.GO, SignalState.CAUTION, SignalState.GO]], np.int8
    )
    scene = replace(scene, signals=replace(scene.signals, states=states))
    for step, state in enumerate((SignalState.GO, SignalState.STOP, SignalState.GO, SignalState.CAUTION)):
        axes = blank_axes()
        draw_signals(axes, scene, step=step)
        assert colour_at(axes, 18.0, 0.0) == rgb(STYLE.signals[state])


def test_an_unknown_light_is_grey() -> None:
    scene = small_scene()
    unseen = replace(scene.signals, states=scene.signals.states * np.int8(0), valid=np.zeros((1, 5), np.bool_))
    axes = blank_axes()
    draw_signals(axes, replace(scene, signals=unseen))
    assert colour_at(axes, 18.0, 0.0) == rgb(STYLE.signals[SignalState.UNKNOWN])


def test_lights_that_disagree_at_one_place_share_the_bar() -> None:
    scene = small_scene()
    signals = Signals(
        lanes=np.array([1, 2], np.int32),
        stop_point_m=np.array([[18, 0], [18, 0]], np.float32),
        states=np.array([[SignalState.STOP] * 5, [SignalState.GO] * 5], np.int8),
        valid=np.ones((2, 5), np.bool_),
    )
    axes = blank_axes(radius_m=25.0)
    draw_signals(axes, replace(scene, signals=signals))
    pixels = pixels_of(axes)
    assert is_colour(pixels, STYLE.signals[SignalState.STOP]).sum() > 20
    assert is_colour(pixels, STYLE.signals[SignalState.GO]).sum() > 20


@pytest.mark.parametrize(("fade", "rises"), [("start", -1), ("end", 1), ("none", 0)])
def test_trajectories_fade_towards_one_end(fade: Any, rises: int) -> None:
    axes = blank_axes()
    points = np.stack([np.linspace(-15, 15, 61), np.zeros(61)], axis=-1)
    draw_trajectory(axes, points, colour="black", fade=fade, width_m=2.0)
    brightness = np.array([sum(colour_at(axes, x, 0.0)) for x in (-14.0, -7.0, 0.0, 7.0, 14.0)])
    assert np.all(np.sign(np.diff(brightness)) == rises)


def test_trajectories_are_not_drawn_over_gaps() -> None:
    axes = blank_axes()
    points = np.stack([np.linspace(-15, 15, 31), np.zeros(31)], axis=-1)
    draw_trajectory(axes, points, colour="black", valid=np.abs(points[:, 0]) > 5, width_m=2.0)
    assert colour_at(axes, 0.0, 0.0) == rgb(STYLE.paper)
    assert colour_at(axes, -10.0, 0.0) == colour_at(axes, 10.0, 0.0) == (0, 0, 0)
    draw_trajectory(axes, points[:1], colour="black")
    draw_trajectory(axes, points, colour="black", valid=np.zeros(31, np.bool_))


def test_trails_can_be_left_out() -> None:
    scene = small_scene(num_steps=91)
    with_trails, without = (pixels_of(draw_scene(scene, radius_m=30.0, trails=trails)) for trails in (True, False))
    assert is_colour(with_trails, STYLE.future, 40).sum() > 2 * is_colour(without, STYLE.future, 40).sum()


def test_widths_are_metres_with_a_least_width() -> None:
    axes = blank_axes(radius_m=10.0)
    assert points_per_metre(axes) == pytest.approx(5 * 72 * 0.95 / 20)
    assert line_width_pt(axes, 2.0, least_pt=1.0) == pytest.approx(2 * points_per_metre(axes))
    assert line_width_pt(axes, 0.001, least_pt=1.0) == 1.0


def test_a_contact_sheet_has_a_tile_per_scene(tmp_path: Path) -> None:
    scenes = [small_scene("a"), bare_scene("a name that is far too long for a tile of this size"), small_scene("c")]
    path = save_contact_sheet(scenes, tmp_path / "sheet.png", tile_in=2.0, dots_per_inch=50)
    assert matplotlib.image.imread(path).shape[:2] == (218, 200)
    with pytest.raises(PlottingError, match="0 scenes"):
        save_contact_sheet([], tmp_path / "sheet.png")


def test_drawing_touches_no_state_of_the_process() -> None:
    program = (
        "import sys, matplotlib; before = matplotlib.rcParams.copy()\n"
        "from scenes import small_scene\n"
        "from waycode.plotting import draw_scene\n"
        "draw_scene(small_scene())\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
        "assert all(before._get(name) == matplotlib.rcParams._get(name) for name in before)\n"
    )
    tests = Path(__file__).parent
    result = subprocess.run([sys.executable, "-c", program], cwd=tests, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


@pytest.mark.real_data
def test_real_scenes_can_be_drawn(shared_data: Path, tmp_path: Path) -> None:
    from waycode.sources.gpudrive import GpuDriveSource

    source = GpuDriveSource(shared_data / "womd-json" / "training")
    for number, reference in enumerate(source.references()[:3]):
        path = save_scene_picture(source.read(reference), tmp_path / f"{number}.png", size_in=4.0)
        assert path.stat().st_size > 5000


@pytest.mark.parametrize("scene_id", ["$\\frac{1$", "a$b$c", "x" * 5000, "two\nlines\t\0", "{}%s\\"])
def test_text_from_data_is_not_interpreted(tmp_path: Path, scene_id: str) -> None:
    scene = replace(small_scene(scene_id), tags=("$x^{", "\\alpha"))
    assert save_scene_picture(scene, tmp_path / "scene.png").stat().st_size > 1000
    assert save_contact_sheet([scene, scene], tmp_path / "sheet.pdf").stat().st_size > 1000
