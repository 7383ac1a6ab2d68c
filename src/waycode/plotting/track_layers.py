"""Track layers: road users with headings, their trails, and planned paths with boxes."""

from typing import Any, Literal

import numpy as np
import shapely
from jaxtyping import Bool, Float
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgb

from waycode.plotting.shapes import Polyline, fill, rounded_box
from waycode.plotting.style import DEFAULT_STYLE, Layer, Style
from waycode.plotting.viewport import line_width_pt, shown_bounds_m
from waycode.scene import Scene, TrackType
from waycode.scene.frames import rotate
from waycode.scene.geometry import box_corners

BOX_TIMES_S = (2.0, 4.0, 6.0, 8.0)  # after the current step
_PATH_WIDTH_M = 0.9  # of planned and recorded paths
_MIN_CHORD_M = 0.3  # shorter chords have no reliable direction: the box keeps its last heading
_MIN_TRAIL_M = 1.0  # shorter trails look like blots
_LONG_VEHICLE_M = 7.5  # trucks and buses have a windscreen at the front only
_HALO_M = 0.55  # width of the halo around highlighted road users
_CORNER_SHARE = 0.28  # radius of the corners of a box, of its shorter side
_FADE_LEVELS = 16  # steps of opacity of a fading path


def draw_tracks(
    axes: Axes,
    scene: Scene,
    *,
    step: int | None = None,
    trails: bool = True,
    highlight: int | None = None,
    style: Style = DEFAULT_STYLE,
) -> None:
    """Draws the road users observed at a step, with their past and future as trails.

    Args:
        axes: Axes with their limits set.
        scene: The scene.
        step: Time step. None: the current step.
        trails: Whether to draw past and future.
        highlight: Index of a track that gets a halo, as the tracks to predict do.
        style: Colours and widths; the ego has a colour of its own.
    """
    step = scene.current_step if step is None else step
    tracks = scene.tracks
    left, bottom, right, top = shown_bounds_m(axes)
    within = (tracks.x_m > left - 10) & (tracks.x_m < right + 10) & (tracks.y_m > bottom - 10) & (tracks.y_m < top + 10)
    # A track is drawn if any part of its trails may be within the axes.
    shown = np.flatnonzero(tracks.valid[:, step] & (within & tracks.valid).any(axis=1)).tolist()
    marked = {*tracks.to_predict.tolist(), highlight}
    if trails:
        for track in shown:
            _draw_trails(axes, scene, track, step, strong=track in marked, style=style)
    for track in shown:
        _draw_body(axes, scene, track, step, halo=track in marked, style=style)


def draw_trajectory(
    axes: Axes,
    points_m: Float[np.ndarray, "T 2"],
    *,
    colour: str,
    fade: Literal["start", "end", "none"] = "none",
    valid: Bool[np.ndarray, " T"] | None = None,
    width_m: float = 0.55,
    alpha: float = 1.0,
    layer: int = Layer.TRAILS,
) -> None:
    """Draws a path over time.

    Args:
        axes: Axes with their limits set.
        points_m: Positions in the frame of the axes.
        colour: Any colour of matplotlib.
        fade: The end at which the path becomes transparent.
        valid: Where the path is observed; gaps are not bridged. None: everywhere.
        width_m: Width on the road.
        alpha: Opacity of the end that does not fade.
        layer: Drawing order.
    """
    if len(points_m) < 2:
        return
    seen = np.ones(len(points_m), np.bool_) if valid is None else valid
    if fade == "start":
        points_m, seen = points_m[::-1], seen[::-1]
    # Consecutive segments of different opacity would show seams. Instead, many faint strokes start together at the
    # opaque end and stop one after the other; their opacities add up to `alpha`.
    levels = 1 if fade == "none" else min(_FADE_LEVELS, len(points_m) - 1)
    ends = np.linspace(len(points_m), 1, levels, endpoint=False).round().astype(int)  # longest first
    opacity = np.linspace(0, alpha, levels + 1)
    added = 1 - (1 - opacity[1:]) / (1 - opacity[:-1])
    strokes, colours = [], []
    for end, share in zip(ends, added, strict=True):
        runs = _observed_runs(points_m[: max(end, 2)], seen[: max(end, 2)])
        strokes += runs
        colours += [(*to_rgb(colour), float(share))] * len(runs)
    lines = LineCollection(strokes, colors=colours, zorder=layer)
    lines.set_linewidth(line_width_pt(axes, width_m, least_pt=1.0))
    lines.set_capstyle("butt")
    lines.set_joinstyle("round")
    axes.add_collection(lines, autolim=False)


def _observed_runs(points_m: Polyline, seen: Bool[np.ndarray, " T"]) -> list[Polyline]:
    """The stretches of a path without a gap, of two points or more."""
    cuts = np.flatnonzero(np.diff(seen.astype(np.int8))) + 1
    runs = zip(np.split(points_m, cuts), np.split(seen, cuts), strict=True)
    return [run for run, is_seen in runs if is_seen[0] and len(run) > 1]


def _draw_trails(axes: Axes, scene: Scene, track: int, step: int, *, strong: bool, style: Style) -> None:
    tracks = scene.tracks
    points, valid = tracks.position_m[track], tracks.valid[track]
    strong = strong or track == tracks.ego_index
    width_m = style.trail_width_m * (1.25 if strong else 0.8)
    parts: tuple[tuple[slice, str, Literal["start", "end"]], ...] = (
        (slice(0, step + 1), body_colour(scene, track, style), "start"),
        (slice(step, None), style.future, "end"),
    )
    for part, colour, fade in parts:
        seen = points[part][valid[part]]
        if len(seen) > 1 and np.linalg.norm(seen - seen[0], axis=1).max() > _MIN_TRAIL_M:
            draw_trajectory(
                axes, points[part], colour=colour, fade=fade, valid=valid[part], width_m=width_m,
                alpha=0.96 if strong else 0.7,
            )  # fmt: skip


def body_colour(scene: Scene, track: int, style: Style) -> str:
    """The colour of a road user: that of the ego, or of its type."""
    is_ego = track == scene.tracks.ego_index
    return style.ego if is_ego else style.tracks[TrackType(int(scene.tracks.types[track]))]


def body_shapes(scene: Scene, track: int, step: int) -> tuple[Any, Any]:
    """A road user at a step as shapely geometries: a disc for pedestrians, else a rounded box; and its dark glass."""
    tracks = scene.tracks
    kind = TrackType(int(tracks.types[track]))
    length_m, width_m = float(tracks.length_m[track]), float(tracks.width_m[track])
    centre_m = np.array([tracks.x_m[track, step], tracks.y_m[track, step]], np.float64)
    heading_rad = float(tracks.heading_rad[track, step])
    if kind == TrackType.PEDESTRIAN:
        radius_m = max(0.55, (length_m + width_m) / 4)
        shape = shapely.Point(centre_m).buffer(radius_m)
        local = [np.array([[0.8, 0.0], [-0.45, 0.55], [-0.45, -0.55]]) * radius_m]
    else:
        body = _trapezoid(length_m, width_m, front=0.5, rear=-0.5, front_side=1.0, rear_side=1.0)
        corners = centre_m + rotate(body, heading_rad)
        shape = rounded_box(corners, _CORNER_SHARE * min(length_m, width_m))
        local = _glass(kind, length_m, width_m)
    return shape, shapely.union_all([shapely.Polygon(centre_m + rotate(points, heading_rad)) for points in local])


def _draw_body(axes: Axes, scene: Scene, track: int, step: int, *, halo: bool, style: Style) -> None:
    """A road user at a step; dark glass shows where its front is."""
    shape, glass = body_shapes(scene, track, step)
    is_ego = track == scene.tracks.ego_index
    if halo and not is_ego:
        fill(axes, shape.buffer(_HALO_M), colour=style.to_predict, layer=Layer.HALOS)
    layer = Layer.HIGHLIGHTS if is_ego else Layer.BOXES
    fill(axes, shape.buffer(0.22 if is_ego else 0.12), colour="white", layer=layer)
    fill(axes, shape, colour=body_colour(scene, track, style), layer=layer)
    fill(axes, glass, colour="#17222e", layer=layer, alpha=0.62)


def _glass(kind: TrackType, length_m: float, width_m: float) -> list[Polyline]:
    """The windows of vehicles, a wedge for others, in the frame of the body."""
    if kind == TrackType.VEHICLE and length_m > _LONG_VEHICLE_M:
        inset = 0.5 / length_m
        parts = [{"front": 0.5 - inset, "rear": 0.5 - 3 * inset, "front_side": 0.78, "rear_side": 0.78}]
    elif kind == TrackType.VEHICLE and length_m > 2.5:
        parts = [
            {"front": 0.25, "rear": 0.08, "front_side": 0.84, "rear_side": 0.66},
            {"front": -0.28, "rear": -0.39, "front_side": 0.62, "rear_side": 0.76},
        ]
    else:
        parts = [{"front": 0.42, "rear": -0.1, "front_side": 0.04, "rear_side": 0.8}]
    return [_trapezoid(length_m, width_m, **part) for part in parts]


def _trapezoid(
    length_m: float, width_m: float, *, front: float, rear: float, front_side: float, rear_side: float
) -> Float[np.ndarray, "4 2"]:
    """A part of a box: its ends in fractions of the length from the centre, its sides in fractions of the width."""
    front_m, rear_m = front * length_m, rear * length_m
    front_half_m, rear_half_m = front_side * width_m / 2, rear_side * width_m / 2
    return np.array([[front_m, front_half_m], [front_m, -front_half_m], [rear_m, -rear_half_m], [rear_m, rear_half_m]])


def draw_path(axes: Axes, path_m: Float[np.ndarray, "T 2"], *, colour: str, dashed: bool = False) -> None:
    """Draws a strong line with a white seam; dashed lines mark plans that the variance gate rejects."""
    width = line_width_pt(axes, _PATH_WIDTH_M, least_pt=2.6)
    seam = LineCollection([path_m], colors="white", linewidths=width + 1.8, zorder=Layer.HALOS, alpha=0.9)
    line = LineCollection([path_m], colors=colour, linewidths=width, zorder=Layer.HALOS)
    if dashed:
        line.set_linestyle((0, (2.2, 1.1)))
    for collection in (seam, line):
        collection.set_joinstyle("round")
        collection.set_capstyle("butt" if dashed else "round")
        axes.add_collection(collection, autolim=False)


def draw_boxes_over_time(
    axes: Axes, path_m: Float[np.ndarray, "T 2"], scene: Scene, *, agent: int, colour: str
) -> None:
    """Draws the agent's bounding box every 2 s, up to 8 s.

    Args:
        axes: Axes with their limits set.
        path_m: Positions of the agent's centre at the current and the following steps.
        scene: Gives the size and the current heading of the agent.
        agent: Index of the track.
        colour: Any colour of matplotlib.
    """
    steps = [round(time_s / scene.dt_s) for time_s in BOX_TIMES_S]
    steps = [step for step in steps if step < len(path_m)]
    heading = path_headings(path_m, start_rad=float(scene.tracks.heading_rad[agent, scene.current_step]))
    size = np.array([scene.tracks.length_m[agent], scene.tracks.width_m[agent]], np.float64)
    length_m, width_m = np.broadcast_to(size[:, None], (2, len(steps)))
    for corners in box_corners(path_m[steps].astype(np.float64), heading[steps], length_m=length_m, width_m=width_m):
        shape = rounded_box(corners, _CORNER_SHARE * float(size.min()))
        fill(axes, shape.buffer(0.15), colour="white", layer=Layer.BOXES, alpha=0.9)
        fill(axes, shape, colour=colour, layer=Layer.BOXES, alpha=0.75)


def path_headings(path_m: Float[np.ndarray, "T 2"], *, start_rad: float, reach: int = 5) -> Float[np.ndarray, " T"]:
    """Heading at each point of a path.

    The direction of a single step of 0.1 s is mostly noise, above all at the end of a decoded path.

    Args:
        path_m: Positions at consecutive steps.
        start_rad: Heading until the path first moves; later, a standing agent keeps its last heading.
        reach: Steps to both sides over which the direction is measured.
    """
    index = np.arange(len(path_m))
    chord = path_m[np.minimum(index + reach, len(path_m) - 1)] - path_m[np.maximum(index - reach, 0)]
    moved = np.linalg.norm(chord, axis=1) > _MIN_CHORD_M
    last = np.maximum.accumulate(np.where(moved, index, -1))
    angle = np.arctan2(chord[:, 1], chord[:, 0])
    return np.where(last >= 0, angle[np.maximum(last, 0)], start_rad)
