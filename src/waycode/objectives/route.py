"""Getting on: progress along the route."""

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from waycode.objectives.base import BaseObjective
from waycode.objectives.candidates import Candidates
from waycode.objectives.segments import Segments, project, squared_distances


@dataclass(frozen=True, kw_only=True)
class RouteFollowing(BaseObjective):
    """Get on along the route (without one: along the lanes straight ahead): minus the progress, plus deviation.

    The deviation is what lies beyond `free_width_m` to either side of the nearest lane of the route, on average over
    time; all parallel lanes of a route's section are equally good.
    """

    deviation_weight: float = 10.0
    free_width_m: float = 1.0

    differentiable: ClassVar[bool] = True

    def __call__(self, candidates: Candidates) -> Float[Tensor, " K"]:
        progress, deviation = self._measure(candidates)
        return self.deviation_weight * deviation - progress

    def explain(self, candidates: Candidates) -> dict[str, Float[Tensor, " K"]]:
        progress, deviation = self._measure(candidates)
        return {
            self.name: self.deviation_weight * deviation - progress,
            f"{self.name}.progress_m": progress,
            f"{self.name}.deviation_m": deviation,
        }

    def _measure(self, candidates: Candidates) -> tuple[Float[Tensor, " K"], Float[Tensor, " K"]]:
        setting, path = candidates.setting, candidates.path_m
        along, _ = _from_nearest(path[:, [0, -1]], setting.route_path)
        _, offset = _from_nearest(path[:, 1:], setting.route_lanes)
        return along[:, 1] - along[:, 0], (offset.abs() - self.free_width_m).clamp(min=0).mean(dim=1)


def _from_nearest(
    points_m: Float[Tensor, "K n 2"], segments: Segments
) -> tuple[Float[Tensor, "K n"], Float[Tensor, "K n"]]:
    """Arclength and offset of points with respect to the nearest segment."""
    nearest = squared_distances(points_m.reshape(-1, 2), segments)[0].argmin(dim=1)
    return project(points_m, segments, nearest.reshape(points_m.shape[:2]))
