"""The part of a scene that a picture shows, and the transform that turns it so that an agent faces up."""

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes

from waycode.scene import Polylines, Scene, WaycodeError
from waycode.scene.frames import rotate, wrap_angle

MAX_ASPECT = 1.5  # height to width: paths are longer than wide, but a picture has to fit on a screen
_SCENE_MARGIN_M = 8.0  # around a whole scene
_PATH_MARGIN_M, _MIN_SIDE_M = 7.0, 30.0  # around paths


class PlottingError(WaycodeError):
    """A picture that cannot be drawn as requested."""


@dataclass(frozen=True, kw_only=True)
class Viewport:
    """A rectangle of the scene frame."""

    centre_m: tuple[float, float]
    width_m: float  # along x
    height_m: float  # along y

    @staticmethod
    def square(centre_m: tuple[float, float], *, radius_m: float) -> "Viewport":
        """A square with `radius_m` from its centre to each side."""
        if not (np.isfinite(radius_m) and radius_m > 0):
            raise PlottingError(f"the radius is {radius_m} m, expected a positive number of metres")
        return Viewport(centre_m=centre_m, width_m=2 * radius_m, height_m=2 * radius_m)

    @staticmethod
    def around(points_m: Float[np.ndarray, "P 2"]) -> "Viewport":
        """The points with a margin, at least as high as wide and at most `MAX_ASPECT` times."""
        low, high = points_m.min(axis=0), points_m.max(axis=0)
        x, y = (low + high) / 2
        width, height = np.maximum(high - low + 2 * _PATH_MARGIN_M, _MIN_SIDE_M)
        viewport = Viewport(centre_m=(float(x), float(y)), width_m=float(width), height_m=float(height))
        return viewport.with_aspect(min(max(viewport.aspect, 1.0), MAX_ASPECT))

    @property
    def aspect(self) -> float:
        """Height divided by width."""
        return self.height_m / self.width_m

    @property
    def bounds_m(self) -> tuple[float, float, float, float]:
        """Smallest x and y, largest x and y."""
        (x, y), half_width, half_height = self.centre_m, self.width_m / 2, self.height_m / 2
        return (x - half_width, y - half_height, x + half_width, y + half_height)

    def with_aspect(self, aspect: float) -> "Viewport":
        """Grows the height or the width to the given aspect; the centre stays."""
        width_m, height_m = self.width_m, self.height_m
        return replace(self, width_m=max(width_m, height_m / aspect), height_m=max(height_m, width_m * aspect))

    def scaled(self, factor: float) -> "Viewport":
        """Scales both sides; the centre stays."""
        return replace(self, width_m=factor * self.width_m, height_m=factor * self.height_m)

    def apply(self, axes: Axes) -> None:
        """Sets the limits of the axes. Call it before the layers, which read the limits."""
        left, bottom, right, top = self.bounds_m
        axes.set_xlim(left, right)
        axes.set_ylim(bottom, top)
        axes.set_aspect("equal")


def scene_viewport(
    scene: Scene, *, agent: str | None = None, radius_m: float | None = 60.0, step: int | None = None
) -> Viewport:
    """The square around an agent, or the whole scene.

    Args:
        scene: The scene to show.
        agent: Track id of the agent in the centre. None: the ego, else the first track to predict.
        radius_m: Distance from the centre to each side. None: the whole scene.
        step: Time step at which the agent is in the centre. None: the current step.
    """
    step = scene.current_step if step is None else step
    if not 0 <= step < scene.num_steps:
        raise PlottingError(f"scene {scene.id} has no step {step}: expected 0 to {scene.num_steps - 1}")
    track = _central_track(scene, agent)
    if radius_m is not None:
        return Viewport.square(_position_at(scene, track, step), radius_m=radius_m)
    points = np.concatenate([scene.tracks.position_m[scene.tracks.valid], scene.map.lanes.centrelines.points_m])
    if len(points) == 0:
        return Viewport.square((0.0, 0.0), radius_m=60.0)
    low, high = points.min(axis=0), points.max(axis=0)
    x, y = (low + high) / 2
    return Viewport.square((float(x), float(y)), radius_m=float((high - low).max()) / 2 + _SCENE_MARGIN_M)


def _central_track(scene: Scene, agent: str | None) -> int | None:
    ids = scene.tracks.ids
    if agent is not None:
        if agent not in ids:
            named = ", ".join(ids[:12]) + (", ..." if len(ids) > 12 else "")
            raise PlottingError(f"scene {scene.id} has no road user {agent!r}; available: {named}")
        return ids.index(agent)
    if scene.tracks.ego_index is not None:
        return scene.tracks.ego_index
    return int(scene.tracks.to_predict[0]) if len(scene.tracks.to_predict) else None


def _position_at(scene: Scene, track: int | None, step: int) -> tuple[float, float]:
    """The track's position at the valid step nearest to `step`; without a track the median of all positions."""
    tracks = scene.tracks
    if track is not None and tracks.valid[track].any():
        valid_steps = np.flatnonzero(tracks.valid[track])
        nearest = valid_steps[np.abs(valid_steps - step).argmin()]
        return (float(tracks.x_m[track, nearest]), float(tracks.y_m[track, nearest]))
    valid = tracks.valid[:, step]
    if not valid.any():
        return (0.0, 0.0)
    x, y = np.median(tracks.position_m[valid, step], axis=0)
    return (float(x), float(y))


@dataclass(frozen=True, kw_only=True)
class RigidTransform:
    """Moves a point of the scene frame to the origin, then rotates counter-clockwise around it."""

    centre_m: Float[np.ndarray, "2"]  # the point that becomes the origin
    angle_rad: float  # of the rotation

    @staticmethod
    def facing_up(scene: Scene, agent: int) -> "RigidTransform":
        """Puts the agent's current position at the origin and its current heading along +y."""
        heading_rad = scene.tracks.heading_rad[agent, scene.current_step]
        centre_m = scene.tracks.position_m[agent, scene.current_step].astype(np.float64)
        return RigidTransform(centre_m=centre_m, angle_rad=float(np.pi / 2 - heading_rad))

    def points(self, points_m: Float[np.ndarray, "*shape 2"]) -> Float[np.ndarray, "*shape 2"]:
        """Transforms points of the scene frame."""
        return rotate(points_m - self.centre_m, self.angle_rad)

    def scene(self, scene: Scene) -> Scene:
        """Transforms everything that is drawn. `origin_m` is kept, so world positions are no longer right."""
        tracks, features = scene.tracks, scene.map
        position = self._points32(tracks.position_m)
        velocity = rotate(np.stack([tracks.vx_mps, tracks.vy_mps], axis=-1), self.angle_rad).astype(np.float32)
        moved = replace(
            tracks,
            x_m=position[..., 0],
            y_m=position[..., 1],
            heading_rad=wrap_angle(tracks.heading_rad + self.angle_rad).astype(np.float32),
            vx_mps=velocity[..., 0],
            vy_mps=velocity[..., 1],
        )
        values = {field.name: getattr(features, field.name) for field in fields(features)}
        polylines: dict[str, Any] = {
            name: self._polylines(value) for name, value in values.items() if isinstance(value, Polylines)
        }
        moved_map = replace(
            features,
            lanes=replace(features.lanes, centrelines=self._polylines(features.lanes.centrelines)),
            stop_signs=replace(features.stop_signs, position_m=self._points32(features.stop_signs.position_m)),
            **polylines,
        )
        signals = replace(scene.signals, stop_point_m=self._points32(scene.signals.stop_point_m))
        return replace(scene, tracks=moved, map=moved_map, signals=signals)

    def _points32(self, points_m: Float[np.ndarray, "*shape 2"]) -> Float[np.ndarray, "*shape 2"]:
        return self.points(points_m).astype(np.float32)

    def _polylines(self, polylines: Polylines) -> Polylines:
        return Polylines(self._points32(polylines.points_m), polylines.starts)


def shown_bounds_m(axes: Axes) -> tuple[float, float, float, float]:
    """Smallest x and y, largest x and y that the axes show."""
    (left, right), (bottom, top) = sorted(axes.get_xlim()), sorted(axes.get_ylim())
    return (left, bottom, right, top)


def points_per_metre(axes: Axes) -> float:
    """Length of a metre in typographic points, the unit of matplotlib's line widths."""
    left, bottom, right, top = shown_bounds_m(axes)
    figure = axes.get_figure(root=True)
    assert figure is not None  # noqa: S101 (axes always belong to a figure)
    box = axes.get_position(original=True)
    width_pt, height_pt = figure.get_size_inches() * 72 * (box.width, box.height)
    return float(min(width_pt / (right - left), height_pt / (top - bottom)))


def line_width_pt(axes: Axes, width_m: float, *, least_pt: float) -> float:
    """Line width in points of a line that is `width_m` wide on the road, at least `least_pt`."""
    return max(least_pt, width_m * points_per_metre(axes))
