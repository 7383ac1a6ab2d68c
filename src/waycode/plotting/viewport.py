"""What part of the world a picture shows, and how many points a metre has in it."""

from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes

from waycode.scene import Scene, WaycodeError

MARGIN_M = 8.0


class PlottingError(WaycodeError):
    """A picture that cannot be drawn as it was asked for."""


@dataclass(frozen=True, kw_only=True)
class Viewport:
    """A square of the scene frame."""

    centre_m: tuple[float, float]
    radius_m: float

    def __post_init__(self) -> None:
        if not (np.isfinite(self.radius_m) and self.radius_m > 0):
            raise PlottingError(f"the radius is {self.radius_m} m, expected a positive number of metres")

    @property
    def bounds_m(self) -> tuple[float, float, float, float]:
        """Least x and y, greatest x and y."""
        (x, y), radius = self.centre_m, self.radius_m
        return (x - radius, y - radius, x + radius, y + radius)

    def apply(self, axes: Axes) -> None:
        """Makes the axes show this square; the layers read from the axes what they show."""
        left, bottom, right, top = self.bounds_m
        axes.set_xlim(left, right)
        axes.set_ylim(bottom, top)
        axes.set_aspect("equal")


def view_of(
    scene: Scene, *, agent: str | None = None, radius_m: float | None = 60.0, step: int | None = None
) -> Viewport:
    """The square around a road user (the ego, if none is named); the whole scene if the radius is None."""
    step = scene.current_step if step is None else step
    if not 0 <= step < scene.num_steps:
        raise PlottingError(f"scene {scene.id} has no step {step}: expected 0 to {scene.num_steps - 1}")
    focus = _track_of(scene, agent)
    if radius_m is None:
        return _whole(scene)
    return Viewport(centre_m=_place_of(scene, focus, step), radius_m=radius_m)


def _track_of(scene: Scene, agent: str | None) -> int | None:
    """The track that a picture is about: the named one, else the ego, else the first one to predict."""
    ids = scene.tracks.ids
    if agent is not None:
        if agent not in ids:
            named = ", ".join(ids[:12]) + (", ..." if len(ids) > 12 else "")
            raise PlottingError(f"scene {scene.id} has no road user {agent!r}; available: {named}")
        return ids.index(agent)
    if scene.tracks.ego_index is not None:
        return scene.tracks.ego_index
    return int(scene.tracks.to_predict[0]) if len(scene.tracks.to_predict) else None


def _place_of(scene: Scene, track: int | None, step: int) -> tuple[float, float]:
    """Where the track is at the step, or was seen nearest to it in time; the middle of all tracks if there is none."""
    tracks = scene.tracks
    if track is not None and tracks.valid[track].any():
        seen = np.flatnonzero(tracks.valid[track])
        nearest = seen[np.abs(seen - step).argmin()]
        return (float(tracks.x_m[track, nearest]), float(tracks.y_m[track, nearest]))
    visible = tracks.valid[:, step]
    if not visible.any():
        return (0.0, 0.0)
    middle = np.median(tracks.position_m[visible, step], axis=0)
    return (float(middle[0]), float(middle[1]))


def _whole(scene: Scene) -> Viewport:
    points = np.concatenate([scene.tracks.position_m[scene.tracks.valid], scene.map.lanes.centrelines.points_m])
    if len(points) == 0:
        return Viewport(centre_m=(0.0, 0.0), radius_m=60.0)
    low, high = points.min(axis=0), points.max(axis=0)
    centre = (low + high) / 2
    return Viewport(centre_m=(float(centre[0]), float(centre[1])), radius_m=float((high - low).max()) / 2 + MARGIN_M)


def shown_bounds_m(axes: Axes) -> tuple[float, float, float, float]:
    """Least x and y, greatest x and y that the axes show."""
    (left, right), (bottom, top) = sorted(axes.get_xlim()), sorted(axes.get_ylim())
    return (left, bottom, right, top)


def points_per_metre(axes: Axes) -> float:
    """Length of a metre in printer's points, by which widths in metres become matplotlib's line widths."""
    left, bottom, right, top = shown_bounds_m(axes)
    figure = axes.get_figure(root=True)
    assert figure is not None  # noqa: S101 (axes always belong to a figure)
    box = axes.get_position(original=True)
    width_pt, height_pt = figure.get_size_inches() * 72 * (box.width, box.height)
    return float(min(width_pt / (right - left), height_pt / (top - bottom)))


def width_pt(axes: Axes, width_m: float, *, least_pt: float) -> float:
    """The line width that is `width_m` wide on the road."""
    return max(least_pt, width_m * points_per_metre(axes))
