"""Latent token search as a driver (paper, section 5.1 "Closed-loop planning").

At every step the scene is encoded and `View.plan` searches and refines a plan. That is all of the paper's planner:
`LatentDriver(config=PAPER)`. By default the driver has an objective of nuPlan's criteria and a policy around the
planner (`policy.py`), which are ours.
"""

import time
from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np

from waycode.driving import LqrTracker, Observation, Road, Tracker, Trajectory
from waycode.features import SegmentedMap
from waycode.objectives import DRIVING_OBJECTIVE, BaseObjective, Setting, TerminalVariance, parse_objective
from waycode.planner import Plan, Planner, PlanStatus, View
from waycode.simulation.drivers.policy import Evaluator, PolicyConfig, choose_trajectory

_FALLBACK_SPEED_MPS = 15.0  # target speed where the map has no limit; PDM-Closed's value


@dataclass(frozen=True, kw_only=True)
class LatentConfig:
    """How plans are searched for, and what happens to them."""

    objective: str = DRIVING_OBJECTIVE  # as text, so that a configuration can be sent to other processes
    depth: int = 3  # tokens
    beam_width: int = 2
    levels: int = 2  # codebook levels per dimension of a token
    refine_steps: int = 5  # gradient steps on the terminal variance
    deadline_s: float | None = None  # for encoding, search and refinement, which then end early
    policy: PolicyConfig | None = field(default_factory=PolicyConfig)  # None: drive the plan of each step, as the paper

    def __post_init__(self) -> None:
        if self.refine_steps < 0:
            raise ValueError(f"refine_steps is {self.refine_steps}, expected at least 0")
        parse_objective(self.objective)  # refuses a bad text before a drive begins


# The paper's planner. The paper gives no weight for its optional road edge term; a step of contact costs 10 m here.
PAPER = LatentConfig(objective="route-following + 10 * road-edge", policy=None)


@dataclass(frozen=True, kw_only=True)
class UnrefinedPlan:
    """The plan of the last search, with what its refinement needs."""

    view: View
    plan: Plan
    observation: Observation  # of the step at which it was found


@dataclass(frozen=True, kw_only=True)
class LatentState:
    """What holds for a whole scenario, and the rest of the last trajectory."""

    road: Road
    segmented_map: SegmentedMap  # the map as the model sees it
    last: Trajectory | None = None  # its sample 0 is now
    unrefined: UnrefinedPlan | None = None  # if the last trajectory is a new plan
    steps_since_search: int = 0


@dataclass(frozen=True, kw_only=True)
class LatentDriver:
    """Drives by latent token search."""

    planner: Planner | str = "sumo-small"  # a planner, or the name or folder of a model, loaded once per process
    config: LatentConfig = field(default_factory=LatentConfig)
    tracker: Tracker = field(default_factory=LqrTracker)  # the tracker that follows the plans; nuPlan's by default

    def reset(self, observation: Observation) -> LatentState:
        scene, vehicle = observation.scene, observation.vehicle
        return LatentState(
            road=Road.ahead_of(scene, observation.ego, vehicle=vehicle, fallback_mps=_FALLBACK_SPEED_MPS),
            segmented_map=loaded_planner(self.planner).segment_map(scene.map),
        )

    def plan(self, state: LatentState, observation: Observation) -> tuple[Trajectory, LatentState]:
        config, objective = self.config, _parsed(self.config.objective)
        if config.policy is not None:
            return self._plan_by_policy(state, observation, objective, config.policy)
        began, setting = time.perf_counter(), self._setting(state, observation)
        view, left_s = self._encoded(state, setting, began=began)
        plan = view.plan(
            objective,
            depth=config.depth,
            beam_width=config.beam_width,
            levels=config.levels,
            refine_steps=config.refine_steps,
            refine_objective=TerminalVariance(),
            deadline_s=left_s,
        )
        return plan_trajectory(plan, observation), state

    def _plan_by_policy(
        self, state: LatentState, observation: Observation, objective: BaseObjective, policy: PolicyConfig
    ) -> tuple[Trajectory, LatentState]:
        """Search, then choose among new plans, the last one, slowed variants and stops. Ours, not the paper's.

        A new plan is refined at the step after its search, in place of a search: no step takes as long as both.
        """
        began, setting = time.perf_counter(), self._setting(state, observation)
        evaluate = Evaluator(objective=objective, setting=setting, tracker=self.tracker, policy=policy)
        last = state.last if state.last is not None and len(state.last) > evaluate.num_steps else None
        if not policy.keep_last_plan:
            last = None
        age = state.steps_since_search + 1
        if last is not None and (state.unrefined is not None or age < policy.replan_steps):
            levels = evaluate.levels([last])
            if evaluate.is_safe(levels)[0]:
                if state.unrefined is not None:
                    last = self._refined(state.unrefined, last, levels, evaluate, began=began)
                return last, _next_state(state, last, steps_since_search=age)
        view, left_s = self._encoded(state, setting, began=began)
        plans = [
            plan
            for plan in view.beam(
                objective,
                depth=self.config.depth,
                beam_width=self.config.beam_width,
                levels=self.config.levels,
                deadline_s=left_s,
                explain=False,
            )
            if plan.status != PlanStatus.UNCERTAIN
        ]
        trajectory, index = choose_trajectory([plan_trajectory(plan, observation) for plan in plans], last, evaluate)
        unrefined = None
        if index is not None and self.config.refine_steps > 0 and policy.keep_last_plan:
            unrefined = UnrefinedPlan(view=view, plan=plans[index], observation=observation)
        return trajectory, _next_state(state, trajectory, unrefined=unrefined)

    def _refined(
        self, found: UnrefinedPlan, last: Trajectory, before: np.ndarray, evaluate: Evaluator, *, began: float
    ) -> Trajectory:
        """The last plan with less terminal variance, unless that makes it a worse drive."""
        refined = found.view.refine(
            found.plan, TerminalVariance(), steps=self.config.refine_steps, deadline_s=self._left_s(began)
        )
        if refined.tokens is not None:  # still on the codebook's levels: nothing better was found
            return last
        trajectory = plan_trajectory(refined, found.observation).samples(slice(1, None))
        (after,) = evaluate.levels([trajectory])
        (before_levels,) = before
        is_as_good = after[0] <= before_levels[0] and after[-1] <= before_levels[-1] + evaluate.policy.keep_bonus
        return trajectory if is_as_good else last

    def _encoded(self, state: LatentState, setting: Setting, *, began: float) -> tuple[View, float | None]:
        """The view of this step, and the time left for search and refinement."""
        view = loaded_planner(self.planner).encode(setting.scene, segmented_map=state.segmented_map, setting=setting)
        return view, self._left_s(began)

    def _left_s(self, began: float) -> float | None:
        deadline_s = self.config.deadline_s
        return None if deadline_s is None else max(0.0, deadline_s - (time.perf_counter() - began))

    def _setting(self, state: LatentState, observation: Observation) -> Setting:
        return Setting(
            scene=observation.scene,
            agent=observation.agent,
            device=loaded_planner(self.planner).device,
            known_vehicle=observation.vehicle,
            known_state=observation.ego,
            known_road=state.road,
        )


@dataclass(frozen=True, kw_only=True)
class ImitationDriver:
    """Drives the trajectory that the model is most certain of, without an objective and without a route."""

    planner: Planner | str = "sumo-small"

    def reset(self, observation: Observation) -> None:
        return None

    def plan(self, state: None, observation: Observation) -> tuple[Trajectory, None]:
        (plan,) = loaded_planner(self.planner).encode(observation.scene).candidates(1)
        return plan_trajectory(plan, observation), None


def plan_trajectory(plan: Plan, observation: Observation) -> Trajectory:
    """A plan made from an observation as a trajectory, with the ego's current state as sample 0."""
    ego = observation.ego
    planned_m = np.stack([plan.x_m, plan.y_m], axis=-1) - np.asarray(observation.scene.origin_m)
    return Trajectory(
        position_m=np.concatenate([ego.centre_m(observation.vehicle), planned_m]),
        heading_rad=np.concatenate([ego.heading_rad, plan.heading_rad]),
        speed_mps=np.concatenate([np.maximum(0.0, ego.speed_mps), plan.speed_mps]),
    )


def loaded_planner(planner: Planner | str) -> Planner:
    """A planner as it is; a model by its name or folder is loaded once per process."""
    return planner if isinstance(planner, Planner) else _load(planner)


@cache
def _load(name_or_folder: str) -> Planner:
    return Planner.from_pretrained(name_or_folder)


@cache
def _parsed(objective: str) -> BaseObjective:
    return parse_objective(objective)


def _next_state(
    state: LatentState,
    trajectory: Trajectory,
    *,
    unrefined: UnrefinedPlan | None = None,
    steps_since_search: int = 0,
) -> LatentState:
    """The state one step later, when the trajectory's first sample has passed."""
    rest = trajectory.samples(slice(1, None))
    return replace(state, last=rest, unrefined=unrefined, steps_since_search=steps_since_search)
