"""The paper's closed-loop objective: route following (section 5.1)."""

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from waycode.objectives.base import BaseObjective
from waycode.objectives.candidates import Candidates
from waycode.objectives.verdict import Verdict
from waycode.scene.geometry_torch import project

ON_ROUTE_M = 2.5  # a position within this distance of a centreline of the route is on the route
_LEAST_PROGRESS_M = 1.0  # less is standing


@dataclass(frozen=True, kw_only=True)
class RouteFollowing(BaseObjective):
    """Make progress along the route, or straight ahead without one: minus progress in metres, plus deviation.

    The deviation is the distance beyond `free_width_m` from the nearest lane of the route, averaged over time. All
    parallel lanes of a route section are equally good.
    """

    deviation_weight: float = 10.0  # metres of progress that a metre of mean deviation is worth
    free_width_m: float = 1.0  # offset from a lane's centre without a cost

    differentiable: ClassVar[bool] = True

    def __call__(self, candidates: Candidates) -> Float[Tensor, " K"]:
        return self.explain(candidates)[self.name]

    def explain(self, candidates: Candidates) -> dict[str, Float[Tensor, " K"]]:
        progress, offset = _progress_and_offset_m(candidates)
        deviation = (offset - self.free_width_m).clamp(min=0).mean(dim=1)
        return {
            self.name: self.deviation_weight * deviation - progress,
            f"{self.name}.progress_m": progress,
            f"{self.name}.deviation_m": deviation,
        }

    def met(self, candidates: Candidates) -> list[Verdict]:
        """Satisfied by progress along the route within 2.5 m of its lanes."""
        progress, offset = _progress_and_offset_m(candidates)
        return [
            Verdict(
                satisfied=along_m >= _LEAST_PROGRESS_M and off_m <= ON_ROUTE_M,
                sentence=f"{along_m:.0f} m along the route, at most {off_m:.1f} m from its lanes",
            )
            for along_m, off_m in zip(progress.tolist(), offset.amax(dim=1).tolist(), strict=True)
        ]


def _progress_and_offset_m(candidates: Candidates) -> tuple[Float[Tensor, " K"], Float[Tensor, "K T"]]:
    """Progress along the route, and the distance from its nearest lane at each step."""
    setting, path = candidates.setting, candidates.path_m
    along, _ = project(path[:, [0, -1]], setting.route_path)
    _, offset = project(path[:, 1:], setting.route_lanes)
    return along[:, 1] - along[:, 0], offset.abs()
