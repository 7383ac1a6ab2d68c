"""A path to drive along, densely and evenly sampled. P points, n questions."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float
from scipy.signal import savgol_filter
from scipy.spatial import cKDTree

from waycode.scene.geometry import arclengths, directions, interpolate

SPACING_M = 0.5
SMOOTHING_POINTS = 13  # Savitzky-Golay of second order over 6 m: takes the kinks out of a centreline, keeps its bends
MAX_LATERAL_MPS2 = 3.0
ANTICIPATION_MPS2 = 1.5  # how hard one brakes for a slower stretch that one sees coming


@dataclass(frozen=True)
class Path:
    """Points `SPACING_M` apart with what a driver knows of the lane at each."""

    points_m: Float[np.ndarray, "P 2"]
    heading_rad: Float[np.ndarray, " P"]  # unwrapped
    limit_mps: Float[np.ndarray, " P"]
    limit_known: Bool[np.ndarray, " P"]
    half_width_m: Float[np.ndarray, " P"]
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
        """Distance along the path of the nearest point, and offset from it (left positive); goes on beyond the ends."""
        _, nearest = self._tree.query(position_m)
        away = position_m - self.points_m[nearest]
        cos, sin = np.cos(self.heading_rad[nearest]), np.sin(self.heading_rad[nearest])
        along = SPACING_M * nearest + away[..., 0] * cos + away[..., 1] * sin
        return np.asarray(along), np.asarray(away[..., 1] * cos - away[..., 0] * sin)

    def index_at(self, along_m: Float[np.ndarray, "*shape"]) -> np.ndarray:
        """The nearest point for distances along the path, for looking up what is known there."""
        return np.asarray(np.clip(np.round(along_m / SPACING_M).astype(np.int64), 0, len(self.points_m) - 1))

    def pose_at(
        self, along_m: Float[np.ndarray, "*shape"], offset_m: Float[np.ndarray, "*shape"]
    ) -> tuple[Float[np.ndarray, "*shape 2"], Float[np.ndarray, "*shape"]]:
        """Position and heading at distances along the path and to its left; straight on beyond the end."""
        at = np.clip(along_m / SPACING_M, 0, len(self.points_m) - 1)
        before = np.minimum(at.astype(np.int64), len(self.points_m) - 2)
        share = at - before
        heading = (1 - share) * self.heading_rad[before] + share * self.heading_rad[before + 1]
        ahead = np.stack([np.cos(heading), np.sin(heading)], axis=-1)
        left = np.stack([-ahead[..., 1], ahead[..., 0]], axis=-1)
        on_path = (1 - share)[..., None] * self.points_m[before] + share[..., None] * self.points_m[before + 1]
        beyond = (along_m - at * SPACING_M)[..., None]
        return on_path + beyond * ahead + offset_m[..., None] * left, heading

    def speed_profile(self, *, fallback_mps: float) -> Float[np.ndarray, " P"]:
        """How fast to drive at each point: the limit, slower in bends, braking in time for what comes."""
        curvature = np.abs(np.gradient(self.heading_rad, SPACING_M))
        bend = np.sqrt(MAX_LATERAL_MPS2 / np.maximum(curvature, 1e-4))
        squared = np.minimum(np.where(self.limit_known, self.limit_mps, fallback_mps), bend) ** 2
        # v(s)^2 <= v(s')^2 + 2 b (s' - s) for every later s'.
        reach = 2 * ANTICIPATION_MPS2 * SPACING_M * np.arange(len(squared))
        return np.sqrt(np.minimum.accumulate((squared + reach)[::-1])[::-1] - reach)


@dataclass(frozen=True)
class Strand:
    """A rough line with the same knowledge at each of its points; `Path`s are made of it."""

    points_m: Float[np.ndarray, "q 2"]
    limit_mps: Float[np.ndarray, " q"]
    limit_known: Bool[np.ndarray, " q"]
    half_width_m: Float[np.ndarray, " q"]
    in_junction: Bool[np.ndarray, " q"]

    def __len__(self) -> int:
        return len(self.points_m)

    def __getitem__(self, which: slice | np.ndarray) -> "Strand":
        return Strand(
            self.points_m[which],
            self.limit_mps[which],
            self.limit_known[which],
            self.half_width_m[which],
            self.in_junction[which],
        )

    @staticmethod
    def joined(parts: "list[Strand]") -> "Strand":
        """The parts end to end."""
        return Strand(
            np.concatenate([part.points_m for part in parts]),
            np.concatenate([part.limit_mps for part in parts]),
            np.concatenate([part.limit_known for part in parts]),
            np.concatenate([part.half_width_m for part in parts]),
            np.concatenate([part.in_junction for part in parts]),
        )


def path_along(strand: Strand, *, before_m: float = 0.0, beyond_m: float = 0.0) -> Path:
    """A smooth, even path along a line of two distinct points or more, prolonged straight at both ends."""
    apart = np.concatenate([[True], np.linalg.norm(np.diff(strand.points_m, axis=0), axis=1) > 1e-3])
    strand = strand[apart]
    if len(strand) < 2:
        raise ValueError(f"a path needs two distinct points, got {len(strand)}")
    heading = directions(strand.points_m)[[0, -1]]
    away = np.stack([np.cos(heading), np.sin(heading)], axis=-1) * np.array([[-before_m - 0.01], [beyond_m + 0.01]])
    ends = strand.points_m[[0, -1]] + away
    strand = strand[np.concatenate([[0], np.arange(len(strand)), [len(strand) - 1]])]
    points = np.concatenate([ends[:1], strand.points_m[1:-1], ends[1:]])
    along = arclengths(points)
    at = np.arange(max(2, int(along[-1] / SPACING_M) + 1)) * SPACING_M
    even = interpolate(points, at)
    if len(even) > SMOOTHING_POINTS:
        even = savgol_filter(even, SMOOTHING_POINTS, 2, axis=0)
    known = strand[np.clip(np.searchsorted(along, at, side="right") - 1, 0, len(strand) - 1)]
    return Path(
        even,
        np.unwrap(_directions(even)),
        known.limit_mps,
        known.limit_known,
        known.half_width_m,
        known.in_junction,
    )


def _directions(points_m: Float[np.ndarray, "P 2"]) -> Float[np.ndarray, " P"]:
    """Headings by central differences: smoother than those of single steps."""
    step = np.gradient(points_m, axis=0)
    return np.arctan2(step[:, 1], step[:, 0])
