"""A path to drive along, densely and evenly sampled, and the traffic lights on it.

Axes: P points of the path, q points of a rough line, G signalled lanes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float, Shaped
from scipy.signal import savgol_filter
from scipy.spatial import cKDTree

from waycode.scene import Lanes, Signals, SignalState
from waycode.scene.geometry import arclengths, directions, forward, interpolate, resample
from waycode.scene.lane_graph import UNKNOWN_LANE_WIDTH_M

SPACING_M = 0.5
RED_STATES = (SignalState.STOP, SignalState.ARROW_STOP)
_SMOOTHING_POINTS = 13  # Savitzky-Golay of second order over 6 m: removes kinks of a centreline, keeps its bends
_MAX_LATERAL_MPS2 = 3.0  # in bends
_ANTICIPATION_MPS2 = 1.5  # deceleration before a slower stretch
_ON_PATH_M = 1.5  # less than half a lane width: a stop point on the next lane is not on the path


@dataclass(frozen=True)
class Path:
    """Points `SPACING_M` apart, with properties of the lane at each."""

    points_m: Float[np.ndarray, "P 2"]
    heading_rad: Float[np.ndarray, " P"]  # unwrapped
    limit_mps: Float[np.ndarray, " P"]  # speed limit, where `limit_known`
    limit_known: Bool[np.ndarray, " P"]
    half_width_m: Float[np.ndarray, " P"]  # half of the lane's width
    in_junction: Bool[np.ndarray, " P"]

    @property
    def length_m(self) -> float:
        return SPACING_M * (len(self.points_m) - 1)

    @cached_property
    def _tree(self) -> cKDTree:
        return cKDTree(self.points_m)

    def project(
        self, position_m: Float[np.ndarray, "*shape 2"]
    ) -> tuple[Float[np.ndarray, "*shape"], Float[np.ndarray, "*shape"]]:
        """Arclength of the nearest point and signed offset from it (left positive); the ends are extended straight.

        Uses the nearest of the dense points, which is faster than a search over segments.
        """
        _, nearest = self._tree.query(position_m)
        away = position_m - self.points_m[nearest]
        cos, sin = np.cos(self.heading_rad[nearest]), np.sin(self.heading_rad[nearest])
        along = SPACING_M * nearest + away[..., 0] * cos + away[..., 1] * sin
        return np.asarray(along), np.asarray(away[..., 1] * cos - away[..., 0] * sin)

    def index_at(self, along_m: Float[np.ndarray, "*shape"]) -> np.ndarray:
        """Index of the point nearest to each arclength."""
        return np.asarray(np.clip(np.round(along_m / SPACING_M).astype(np.int64), 0, len(self.points_m) - 1))

    def pose_at(
        self, along_m: Float[np.ndarray, "*shape"], offset_m: Float[np.ndarray, "*shape"]
    ) -> tuple[Float[np.ndarray, "*shape 2"], Float[np.ndarray, "*shape"]]:
        """Position and heading at arclengths and offsets to the left; the ends are extended straight."""
        at = np.clip(along_m / SPACING_M, 0, len(self.points_m) - 1)
        before = np.minimum(at.astype(np.int64), len(self.points_m) - 2)
        share = at - before
        heading = (1 - share) * self.heading_rad[before] + share * self.heading_rad[before + 1]
        ahead = forward(heading)
        left = np.stack([-ahead[..., 1], ahead[..., 0]], axis=-1)
        on_path = (1 - share)[..., None] * self.points_m[before] + share[..., None] * self.points_m[before + 1]
        beyond = (along_m - at * SPACING_M)[..., None]
        return on_path + beyond * ahead + offset_m[..., None] * left, heading

    def speed_profile(self, *, fallback_mps: float) -> Float[np.ndarray, " P"]:
        """Target speed at each point: the limit, less in bends, braking in time for slower stretches ahead.

        Args:
            fallback_mps: speed where the limit is not known.
        """
        curvature = np.abs(np.gradient(self.heading_rad, SPACING_M))
        bend = np.sqrt(_MAX_LATERAL_MPS2 / np.maximum(curvature, 1e-4))
        squared = np.minimum(np.where(self.limit_known, self.limit_mps, fallback_mps), bend) ** 2
        # v(s)^2 <= v(s')^2 + 2 b (s' - s) for every later s'.
        reach = 2 * _ANTICIPATION_MPS2 * SPACING_M * np.arange(len(squared))
        return np.sqrt(np.minimum.accumulate((squared + reach)[::-1])[::-1] - reach)


# One point of a rough line, from which a `Path` is made; the columns are those of `Path`.
PATH_ROW = np.dtype(
    [
        ("points_m", np.float64, 2),
        ("limit_mps", np.float64),
        ("limit_known", np.bool_),
        ("half_width_m", np.float64),
        ("in_junction", np.bool_),
    ]
)


def path_rows(
    points_m: Float[np.ndarray, "q 2"],
    *,
    limit_mps: float | Float[np.ndarray, " q"] = 0.0,
    limit_known: bool | Bool[np.ndarray, " q"] = False,
    half_width_m: float = UNKNOWN_LANE_WIDTH_M / 2,
    in_junction: bool = False,
) -> Shaped[np.ndarray, " q"]:
    """An array of `PATH_ROW`, by default of a line off any lane.

    Args:
        points_m: the line.
        limit_mps: speed limit, where `limit_known`.
        limit_known: whether there is a speed limit.
        half_width_m: half of the lane's width.
        in_junction: whether the lane lies in a junction.
    """
    rows = np.zeros(len(points_m), PATH_ROW)
    rows["points_m"] = points_m
    rows["limit_mps"], rows["limit_known"] = limit_mps, limit_known
    rows["half_width_m"], rows["in_junction"] = half_width_m, in_junction
    return rows


def lane_rows(lanes: Lanes, chain: Sequence[int]) -> Shaped[np.ndarray, " q"]:
    """The centrelines of a chain of successive lanes as an array of `PATH_ROW`, a point each metre."""
    return np.concatenate(
        [
            path_rows(
                resample(lanes.centrelines[lane].astype(np.float64), spacing_m=1.0),
                limit_mps=float(lanes.speed_limit_mps[lane]),
                limit_known=bool(lanes.speed_limit_known[lane]),
                half_width_m=float(lanes.graph.width_m[lane]) / 2,
                in_junction=bool(lanes.in_junction[lane]),
            )
            for lane in chain
        ]
    )


def smooth_path(rows: Shaped[np.ndarray, " q"], *, before_m: float = 0.0, beyond_m: float = 0.0) -> Path:
    """A smooth path with a point each `SPACING_M` along a rough line.

    Args:
        rows: array of `PATH_ROW` with two distinct points or more.
        before_m: length of a straight extension before the first point.
        beyond_m: length of a straight extension after the last point.
    """
    rows = rows[np.append(True, np.linalg.norm(np.diff(rows["points_m"], axis=0), axis=1) > 1e-3)]
    if len(rows) < 2:
        raise ValueError(f"a path needs two distinct points, got {len(rows)}")
    extension = forward(directions(rows["points_m"])[[0, -1]]) * np.array([[-before_m - 0.01], [beyond_m + 0.01]])
    rows = rows[[0, *range(len(rows)), -1]]
    rows["points_m"][[0, -1]] += extension
    along = arclengths(rows["points_m"])
    at = np.arange(max(2, int(along[-1] / SPACING_M) + 1)) * SPACING_M
    points = interpolate(rows["points_m"], at)
    if len(points) > _SMOOTHING_POINTS:
        points = savgol_filter(points, _SMOOTHING_POINTS, 2, axis=0)
    step = np.gradient(points, axis=0)  # central differences are smoother than single steps
    known = rows[np.clip(np.searchsorted(along, at, side="right") - 1, 0, len(rows) - 1)]
    columns = {name: np.ascontiguousarray(known[name]) for name in PATH_ROW.names[1:]}  # type: ignore[index]
    return Path(points, np.unwrap(np.arctan2(step[:, 1], step[:, 0])), **columns)


def stop_points_on(
    path: Path, signals: Signals, lanes: Lanes
) -> tuple[Float[np.ndarray, " G"], Bool[np.ndarray, " G"]]:
    """Arclength of each light's stop point along the path, and whether the light applies to the path.

    Several lanes start at one stop line, so the middle of the signalled lane must lie on the path too.
    """
    if len(signals) == 0:
        return np.zeros(0), np.zeros(0, np.bool_)
    along, offset = path.project(signals.stop_point_m.astype(np.float64))
    lines = [lanes.centrelines[int(lane)] for lane in signals.lanes]
    _, middle_offset = path.project(np.stack([line[len(line) // 2] for line in lines]).astype(np.float64))
    return along, (np.abs(offset) < _ON_PATH_M) & (np.abs(middle_offset) < _ON_PATH_M)


def is_red(signals: Signals, step: int) -> Bool[np.ndarray, " G"]:
    """Which lights are steady red at a step."""
    if len(signals) == 0:
        return np.zeros(0, np.bool_)
    return signals.valid[:, step] & np.isin(signals.states[:, step], RED_STATES)
