"""What moves: bodies with headings, and trails."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import shapely
from jaxtyping import Bool, Float, Int
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgb

from waycode.plotting.shapes import Points, fill, rounded_boxes
from waycode.plotting.style import Layer, Style
from waycode.plotting.viewport import shown_bounds_m, width_pt
from waycode.scene import Scene, TrackType
from waycode.scene.frames import rotate

STANDING_M = 1.0  # a trail shorter than this is a blot, not a trail
LONG_VEHICLE_M = 7.5
HALO_M = 0.55
FADE_LEVELS = 16


@dataclass(frozen=True)
class _Body:
    """A road user at one step."""

    track: int
    kind: TrackType
    centre_m: Float[np.ndarray, "2"]
    heading_rad: float
    length_m: float
    width_m: float


def draw_tracks(
    axes: Axes,
    scene: Scene,
    *,
    step: int | None = None,
    trails: bool = True,
    highlight: int | None = None,
    style: Style | None = None,
) -> None:
    """Draws the road users that are seen at the step, where they came from and where they will go.

    The ego has a colour of its own; the track `highlight` and the tracks to predict have a halo.
    """
    style = style or Style()
    step = scene.current_step if step is None else step
    bodies = [_body(scene, int(track), step) for track in _visible(axes, scene, step)]
    marked = {int(track) for track in scene.tracks.to_predict} | ({highlight} if highlight is not None else set())
    if trails:
        for body in bodies:
            _draw_trails(axes, scene, body.track, step, strong=body.track in marked, style=style)
    for body in bodies:
        shape = _shape(body)
        is_ego = body.track == scene.tracks.ego_index
        if body.track in marked and not is_ego:
            fill(axes, shape.buffer(HALO_M), colour=style.to_predict, layer=Layer.HALOS)
        _draw_body(axes, body, shape, colour=style.ego if is_ego else style.tracks[body.kind], is_ego=is_ego)


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
    """Draws a path over time; `fade` names the end at which it becomes transparent. Gaps in `valid` are not bridged."""
    if len(points_m) < 2:
        return
    seen = np.ones(len(points_m), np.bool_) if valid is None else valid
    if fade == "start":
        points_m, seen = points_m[::-1], seen[::-1]
    # Segments of different opacity would show seams. So the strong end of the path is covered by many long, faint
    # strokes that end one after the other; their opacities add up to `alpha`.
    levels = 1 if fade == "none" else min(FADE_LEVELS, len(points_m) - 1)
    ends = np.linspace(len(points_m), 1, levels, endpoint=False).round().astype(int)  # the longest first
    opacity = np.linspace(0, alpha, levels + 1)
    added = 1 - (1 - opacity[1:]) / (1 - opacity[:-1])
    strokes, colours = [], []
    for end, share in zip(ends, added, strict=True):
        runs = _runs(points_m[: max(end, 2)], seen[: max(end, 2)])
        strokes += runs
        colours += [(*to_rgb(colour), float(share))] * len(runs)
    lines = LineCollection(strokes, colors=colours, zorder=layer)
    lines.set_linewidth(width_pt(axes, width_m, least_pt=1.0))
    lines.set_capstyle("butt")
    lines.set_joinstyle("round")
    axes.add_collection(lines, autolim=False)


def _runs(points_m: Points, seen: Bool[np.ndarray, " T"]) -> list[Points]:
    """The stretches of a path without a gap, of two points or more."""
    cuts = np.flatnonzero(np.diff(seen.astype(np.int8))) + 1
    runs = zip(np.split(points_m, cuts), np.split(seen, cuts), strict=True)
    return [run for run, is_seen in runs if is_seen[0] and len(run) > 1]


def _visible(axes: Axes, scene: Scene, step: int) -> Int[np.ndarray, " V"]:
    """Tracks seen at the step whose past or future may lie within the axes."""
    left, bottom, right, top = shown_bounds_m(axes)
    tracks = scene.tracks
    within = (tracks.x_m > left - 10) & (tracks.x_m < right + 10) & (tracks.y_m > bottom - 10) & (tracks.y_m < top + 10)
    return np.flatnonzero(tracks.valid[:, step] & (within & tracks.valid).any(axis=1))


def _body(scene: Scene, track: int, step: int) -> _Body:
    tracks = scene.tracks
    return _Body(
        track=track,
        kind=TrackType(int(tracks.types[track])),
        centre_m=np.array([tracks.x_m[track, step], tracks.y_m[track, step]], np.float64),
        heading_rad=float(tracks.heading_rad[track, step]),
        length_m=float(tracks.length_m[track]),
        width_m=float(tracks.width_m[track]),
    )


def _draw_trails(axes: Axes, scene: Scene, track: int, step: int, *, strong: bool, style: Style) -> None:
    tracks = scene.tracks
    points, valid = tracks.position_m[track], tracks.valid[track]
    is_ego = track == tracks.ego_index
    body_colour = style.ego if is_ego else style.tracks[TrackType(int(tracks.types[track]))]
    strong = strong or is_ego
    width_m = style.trail_width_m * (1.25 if strong else 0.8)
    parts: tuple[tuple[slice, str, Literal["start", "end"]], ...] = (
        (slice(0, step + 1), body_colour, "start"),
        (slice(step, None), style.future, "end"),
    )
    for part, colour, fade in parts:
        seen = points[part][valid[part]]
        if len(seen) > 1 and np.linalg.norm(seen - seen[0], axis=1).max() > STANDING_M:
            draw_trajectory(
                axes, points[part], colour=colour, fade=fade, valid=valid[part], width_m=width_m,
                alpha=0.96 if strong else 0.7,
            )  # fmt: skip


def _shape(body: _Body) -> Any:
    if body.kind == TrackType.PEDESTRIAN:
        return shapely.Point(body.centre_m).buffer(_pedestrian_radius_m(body))
    corners = _corners(body, front=0.5, rear=-0.5, side=1.0)
    return rounded_boxes([corners], [0.28 * min(body.length_m, body.width_m)])[0]


def _pedestrian_radius_m(body: _Body) -> float:
    return max(0.55, (body.length_m + body.width_m) / 4)


def _corners(
    body: _Body, *, front: float, rear: float, side: float, front_side: float | None = None
) -> Float[np.ndarray, "4 2"]:
    """A part of the box, given in fractions of its length (from the centre) and of its width."""
    half, front_half = side * body.width_m / 2, (side if front_side is None else front_side) * body.width_m / 2
    f, r = front * body.length_m, rear * body.length_m
    local = np.array([[f, front_half], [f, -front_half], [r, -half], [r, half]])
    corners: Float[np.ndarray, "4 2"] = body.centre_m + rotate(local, body.heading_rad)
    return corners


def _draw_body(axes: Axes, body: _Body, shape: Any, *, colour: str, is_ego: bool) -> None:
    layer = Layer.HIGHLIGHTS if is_ego else Layer.BOXES
    fill(axes, shape.buffer(0.22 if is_ego else 0.12), colour="white", layer=layer)
    fill(axes, shape, colour=colour, layer=layer)
    glass = [shapely.Polygon(corners) for corners in _glass(body)]
    fill(axes, shapely.union_all(glass), colour="#17222e", layer=layer, alpha=0.62)


def _glass(body: _Body) -> list[Points]:
    """What tells front from rear: windows of cars, a wedge for the rest."""
    if body.kind == TrackType.VEHICLE and body.length_m > LONG_VEHICLE_M:
        inset = 0.5 / body.length_m
        return [_corners(body, front=0.5 - inset, rear=0.5 - 3 * inset, side=0.78)]
    if body.kind == TrackType.VEHICLE and body.length_m > 2.5:
        windscreen = _corners(body, front=0.25, rear=0.08, side=0.66, front_side=0.84)
        rear_window = _corners(body, front=-0.28, rear=-0.39, side=0.76, front_side=0.62)
        return [windscreen, rear_window]
    if body.kind == TrackType.PEDESTRIAN:
        radius = _pedestrian_radius_m(body)
        wedge = np.array([[0.8, 0.0], [-0.45, 0.55], [-0.45, -0.55]]) * radius
        return [body.centre_m + rotate(wedge, body.heading_rad)]
    return [_corners(body, front=0.42, rear=-0.1, side=0.8, front_side=0.04)]
