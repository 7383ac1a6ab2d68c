"""Who goes first: a pedestrian has a goal, a vehicle whose way crosses theirs has none (paper, section 5.4).

The goal is where they were recorded to be at the end, beyond the vehicle's way, or where they are now. What the vehicle
does comes from the joint code alone: it should let them cross, and drive on if they stay.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from waycode.evaluation import joint
from waycode.evaluation.consistency import GUIDED_FDE, body_of, by_measure, measures_of, path_of, plan_towards
from waycode.planner import JointPlan, Planner
from waycode.scene import Scene, TrackType
from waycode.scene.geometry import arclengths, boxes_overlap

CROSSES, STAYS = "they cross", "they stay"
_SHARES = {CROSSES: 1.0, STAYS: 0.0}  # of the recorded future: where the goal is
VEHICLE_DRIVES = "vehicle_drives_m"
OVERLAP_OTHERWISE = "overlap_otherwise"  # if the vehicle did what it does for the other goal
_CROSSING_M = 1.5  # paths that come this near to each other cross
_LEAST_S = 1.0  # before this time neither is at the crossing
_LEAST_AWAY_M = 6.0  # of the vehicle from the crossing, at the current step
_LEAST_WALK_M, _LEAST_DRIVE_M = 4.0, 8.0  # recorded distances
_REACHED_M = 1.5  # in an example, both goals are reached


@dataclass(frozen=True, kw_only=True)
class Yielding:
    """The joint futures of a scene for both goals."""

    scene: Scene
    agents: tuple[int, int]  # tracks: who has the goal, and the vehicle
    plans: dict[str, JointPlan]  # by goal

    @staticmethod
    def of(planner: Planner, scene: Scene, agents: tuple[int, int]) -> "Yielding":
        """Plans for both goals."""
        view = planner.encode(scene, agents=agents)
        plans = {name: plan_towards(view, agents[0], share) for name, share in _SHARES.items()}
        return Yielding(scene=scene, agents=agents, plans=plans)

    def path_m(self, goal: str, place: int) -> Float[np.ndarray, "T 2"]:
        """The way of one of the agents."""
        return path_of(self.plans[goal], self.scene, self.agents[place])

    def measures(self, goal: str) -> dict[str, float]:
        """Measures of the future for one goal."""
        walker, vehicle = self.agents
        found = measures_of(
            self.scene, walker, self.agents, _SHARES[goal], plan=self.plans[goal], first=self.plans[STAYS]
        )
        other = self.path_m(STAYS if goal == CROSSES else CROSSES, 1)
        bodies = body_of(self.scene, walker, self.path_m(goal, 0)), body_of(self.scene, vehicle, other)
        return {
            GUIDED_FDE: found[GUIDED_FDE],
            VEHICLE_DRIVES: float(arclengths(self.path_m(goal, 1))[-1]),
            joint.OVERLAP: found[joint.OVERLAP],
            OVERLAP_OTHERWISE: float(boxes_overlap(*bodies).any()),
        }


def crossing_pair(scene: Scene) -> list[int]:
    """A pedestrian, and the vehicle whose recorded way crosses theirs at the nearest time; empty if there is none."""
    tracks, now, soon = scene.tracks, scene.current_step, round(_LEAST_S / scene.dt_s)
    path_m = tracks.position_m[:, now:].astype(np.float64)
    travelled_m = np.linalg.norm(path_m[:, -1] - path_m[:, 0], axis=1)
    seen = tracks.valid[:, now:].all(axis=1)
    walkers = np.flatnonzero(seen & (tracks.types == TrackType.PEDESTRIAN) & (travelled_m > _LEAST_WALK_M))
    vehicles = np.flatnonzero(seen & (tracks.types == TrackType.VEHICLE) & (travelled_m > _LEAST_DRIVE_M))
    found = []
    for walker in walkers:
        for vehicle in vehicles:
            away_m = np.linalg.norm(path_m[walker, soon:, None] - path_m[vehicle, None, soon:], axis=-1)  # [T, T]
            one, other = np.unravel_index(away_m.argmin(), away_m.shape)
            to_crossing_m = np.linalg.norm(path_m[vehicle, 0] - path_m[walker, soon + one])
            if away_m[one, other] < _CROSSING_M and to_crossing_m > _LEAST_AWAY_M:
                found.append((abs(int(one) - int(other)), int(walker), int(vehicle)))
    return list(min(found)[1:]) if found else []


def joint_yielding(batch: joint.JointBatch) -> joint.JointMeasures:
    """Measures for both goals; see the module."""
    planner = Planner(batch.model)
    cases = [
        Yielding.of(planner, scene, (agents[0], agents[1]))
        for scene, agents in zip(batch.scenes, batch.agents, strict=True)
    ]
    return by_measure({goal: [case.measures(goal) for case in cases] for goal in _SHARES})


def best_example(planner: Planner, scenes: Iterable[Scene]) -> Yielding | None:
    """The case in which the vehicle gives way most: it drives farthest less, and nobody overlaps; None without one."""
    best: tuple[float, Yielding] | None = None
    for scene in scenes:
        if pair := crossing_pair(scene):
            case = Yielding.of(planner, scene, (pair[0], pair[1]))
            crosses, stays = case.measures(CROSSES), case.measures(STAYS)
            sound = all(one[GUIDED_FDE] < _REACHED_M and not one[joint.OVERLAP] for one in (crosses, stays))
            gives_way_m = stays[VEHICLE_DRIVES] - crosses[VEHICLE_DRIVES]
            if sound and gives_way_m > (0.0 if best is None else best[0]):
                best = (gives_way_m, case)
    return None if best is None else best[1]
