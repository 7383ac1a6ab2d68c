"""Latent token search in the loop (paper, section 5.1 "Closed-loop planning").

At every step the scene is encoded, a beam search over tokens finds drives that the judge likes, and what the car would
make of each is judged again beside the last plan, which is kept while it is as good. A plan that is new is made surer
by a few gradient steps (the paper's predictive variance minimisation) at the step after, in place of a search: so that
no step takes as long as both. Where nothing is safe the car brakes.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from waycode.baselines.pdm_score import Drives
from waycode.baselines.proposals import Way
from waycode.driving import LqrTracker, Observation, Reference, Tracker, Trajectory
from waycode.driving.drivable import DrivableArea, drivable_area
from waycode.driving.lane_strips import lane_strips
from waycode.features import SegmentedMap
from waycode.objectives import Candidates, TerminalVariance
from waycode.planner.refining import refine_latents
from waycode.planner.searching import SceneDecoder, SearchOptions
from waycode.simulation.drivers.drives import decoded_drives, slowed, trajectories_of_candidates
from waycode.simulation.drivers.judge import DriveJudge, JudgeConfig
from waycode.simulation.drivers.models import planner_of

FALLBACK_SPEED_MPS = 15.0  # where no limit is known
SLOWING_MPS2 = (1.5, 3.0)
STOPPING_MPS2 = 3.9  # just within what nuPlan calls comfortable
EMERGENCY_MPS2, EMERGENCY_S = 6.0, 2.0  # how hard one brakes who else hits somebody so soon


@dataclass(frozen=True, kw_only=True)
class LatentConfig:
    """How plans are searched for; ablations are settings."""

    depth: int = 3
    beam_width: int = 2
    levels: int = 2
    refine_steps: int = 5
    judge: JudgeConfig = field(default_factory=JudgeConfig)
    replan_steps: int = (
        1  # search at every n-th step; between, the last plan is looked at: one that is unsafe is not kept
    )
    loyalty: float = 0.02  # by how much (of a score of 1) a new plan must be better than the last one
    deadline_s: float | None = None  # for encoding, search and refinement, which end early

    def __post_init__(self) -> None:
        if self.replan_steps < 1 or self.refine_steps < 0:
            raise ValueError(
                f"replan_steps is {self.replan_steps} and refine_steps {self.refine_steps}, expected 1 and 0 at least"
            )


@dataclass(frozen=True, kw_only=True)
class Code:
    """Where a plan comes from, and what refining it takes."""

    latents: Float[Tensor, "n D"]
    decoder: SceneDecoder
    sigma_max_m: Mapping[int, float]
    observation: Observation  # of the step at which it was found


@dataclass(frozen=True, kw_only=True)
class LatentMemory:
    """What holds for a whole scenario, and the last plan: its first sample is where the car should be next."""

    way: Way
    drivable: DrivableArea | None
    cut: SegmentedMap  # of the map, as the model sees it
    last: Trajectory | None = None
    unrefined: Code | None = None  # of the last plan, if that is new
    age_steps: int = 0  # since the last search


@dataclass(frozen=True, kw_only=True)
class LatentDriver:
    """Drives by searching the tokens of a model, which is loaded when it is first asked (once per process)."""

    model: str = "sumo-small"
    config: LatentConfig = field(default_factory=LatentConfig)
    tracker: Tracker = field(default_factory=LqrTracker)  # what follows the plans: nuPlan's, if nothing else is said
    clock: Callable[[], float] = time.perf_counter

    def plan(self, observation: Observation) -> Trajectory:
        memory = observation.memory if isinstance(observation.memory, LatentMemory) else self._begun(observation)
        judge = DriveJudge(observation=observation, way=memory.way, drivable=memory.drivable, config=self.config.judge)
        kept = memory.last if memory.last is not None and len(memory.last) > judge.num_steps else None
        age, began = memory.age_steps + 1, self.clock()
        if kept is not None and (memory.unrefined is not None or age < self.config.replan_steps):
            (levels,) = self._levels(judge, [kept])
            if levels[0] == 0:
                if memory.unrefined is not None:
                    kept = self._refined(judge, memory.unrefined, kept, levels, began=began)
                return _remembered(kept, memory, age_steps=age)
        found = self._searched(observation, judge, memory.cut, began=began)
        plan, code = self._chosen(judge, found, kept)
        return _remembered(plan, memory, unrefined=code if self.config.refine_steps else None)

    def _begun(self, observation: Observation) -> LatentMemory:
        """What a scenario's first step finds out for all others."""
        features = observation.scene.map
        return LatentMemory(
            way=Way.of(observation, fallback_mps=FALLBACK_SPEED_MPS),
            drivable=drivable_area(features, lane_strips(features)),
            cut=planner_of(self.model).cut_map(features),
        )

    def _searched(
        self, observation: Observation, judge: DriveJudge, cut: SegmentedMap, *, began: float
    ) -> list[tuple[Trajectory, Code]]:
        """The final beam, the best first, without what the model is not sure of."""
        config = self.config
        view = planner_of(self.model).encode(observation.scene, cut=cut)
        decoder = SceneDecoder(model=view.model, memory=view.memory, setting=view.setting)
        found = decoder.search(
            lambda candidates: _costs(judge, candidates),
            options=SearchOptions(
                depth=config.depth, beam_width=config.beam_width, levels=config.levels, deadline_s=self._left_s(began)
            ),
            sigma_max_m=view.sigma_max_m,
        )
        sure = [place for place, rejected in enumerate(found.rejected[0].tolist()) if not rejected]
        plans = trajectories_of_candidates(found.decoded, found.chosen[0, sure].tolist(), observation)
        latents = view.model.codebook(config.levels).codes(found.ids[0, sure])
        return [
            (plan, Code(latents=code, decoder=decoder, sigma_max_m=view.sigma_max_m, observation=observation))
            for plan, code in zip(plans, latents, strict=True)
        ]

    def _left_s(self, began: float) -> float | None:
        """The time that is left of the deadline; None if there is none."""
        return None if self.config.deadline_s is None else max(0.0, self.config.deadline_s - (self.clock() - began))

    def _refined(
        self, judge: DriveJudge, code: Code, kept: Trajectory, before: Float[np.ndarray, " 2"], *, began: float
    ) -> Trajectory:
        """The last plan, made surer, unless that makes it a worse drive."""
        surer = TerminalVariance()
        refinement = refine_latents(
            code.decoder,
            code.latents,
            slope=surer,
            judge=surer,
            steps=self.config.refine_steps,
            sigma_max_m=code.sigma_max_m,
            deadline_s=self._left_s(began),
            clock=self.clock,
        )
        if not refinement.moved:
            return kept
        (refined,) = trajectories_of_candidates(refinement.candidate, [0], code.observation)
        refined = _one_step_later(refined)
        (after,) = self._levels(judge, [refined])
        return refined if after[0] <= before[0] and after[1] <= before[1] + self.config.loyalty else kept

    def _chosen(
        self, judge: DriveJudge, found: list[tuple[Trajectory, Code]], kept: Trajectory | None
    ) -> tuple[Trajectory, Code | None]:
        """The best of the last plan, of what was found and of the first of these slowed down; or else braking.

        With its code, if it is one of what was found.
        """
        plans = [*([] if kept is None else [kept]), *(plan for plan, _ in found)]
        if not plans:  # the model is not sure of anything that it found
            return self._stop(judge, STOPPING_MPS2), None
        slow = [slowed(plan, braking_mps2=rate, dt_s=judge.dt_s) for plan in plans[:2] for rate in SLOWING_MPS2]
        pool = [*plans, *slow]
        levels = self._levels(judge, pool)
        if kept is not None:
            levels[0, 1] -= self.config.loyalty
        if not (levels[:, 0] == 0).any():  # stops are for emergencies, and hard ones for hard ones
            stops = [self._stop(judge, STOPPING_MPS2), self._stop(judge, EMERGENCY_MPS2)]
            of_stops = self._levels(judge, stops)
            soon = judge.danger_of_hitting(np.array(EMERGENCY_S / judge.dt_s))
            count = 1 if of_stops[0, 0] < soon else 2
            pool, levels = [*pool, *stops[:count]], np.concatenate([levels, of_stops[:count]])
        best = _least(levels)
        place = best - len(plans) + len(found)
        return pool[best], found[place][1] if 0 <= place < len(found) else None

    def _stop(self, judge: DriveJudge, braking_mps2: float) -> Trajectory:
        observation = judge.observation
        return self.tracker.emergency_stop(
            observation.ego, vehicle=observation.vehicle, dt_s=judge.dt_s, braking_mps2=braking_mps2
        )

    def _levels(self, judge: DriveJudge, plans: list[Trajectory]) -> np.ndarray:
        """What the car would make of plans, judged [K, 2]."""
        observation, vehicle, dt_s = judge.observation, judge.observation.vehicle, judge.dt_s
        steps = judge.num_steps
        reference = Reference.of([_cut(plan, steps + 1) for plan in plans], vehicle=vehicle)
        start = observation.ego.repeated(len(plans))
        states = [start, *self.tracker.follow(start, reference, num_steps=steps, vehicle=vehicle, dt_s=dt_s)]
        drives = Drives(
            rear_axle_m=np.stack([state.rear_axle_m for state in states], axis=1),
            heading_rad=np.stack([state.heading_rad for state in states], axis=1),
            speed_mps=np.stack([state.speed_mps for state in states], axis=1),
            vehicle=vehicle,
        )
        return judge.levels(drives)


def _remembered(
    plan: Trajectory, memory: LatentMemory, *, unrefined: Code | None = None, age_steps: int = 0
) -> Trajectory:
    """The plan with the memory of what is left of it one step later."""
    later = replace(memory, last=_one_step_later(plan), unrefined=unrefined, age_steps=age_steps)
    return replace(plan, memory=later)


def _one_step_later(plan: Trajectory) -> Trajectory:
    """What is left of a plan."""
    return Trajectory(position_m=plan.position_m[1:], heading_rad=plan.heading_rad[1:], speed_mps=plan.speed_mps[1:])


def _costs(judge: DriveJudge, candidates: Candidates) -> Tensor:
    levels = judge.levels(decoded_drives(candidates, judge.observation, num_steps=judge.num_steps))
    return torch.tensor(levels, dtype=candidates.position_m.dtype, device=candidates.position_m.device)


def _least(levels: np.ndarray) -> int:
    """The place of the lexicographically least row; of equal ones the first."""
    return min(range(len(levels)), key=lambda place: tuple(levels[place].tolist()))


def _cut(plan: Trajectory, count: int) -> Trajectory:
    """Exactly `count` samples; a plan that is too short stays where it ends."""
    steps = np.minimum(np.arange(count), len(plan) - 1)
    return Trajectory(
        position_m=plan.position_m[steps], heading_rad=plan.heading_rad[steps], speed_mps=plan.speed_mps[steps]
    )
