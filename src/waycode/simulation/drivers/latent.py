"""Latent token search as a driver (paper, section 5.1 "Closed-loop planning").

The paper's planner is `LatentDriver(config=PAPER)`: at every step the scene is encoded, and `View.plan` searches and
refines the plan to drive; see `LatentDriver.plan`. The default configuration adds two things of ours: an objective of
nuPlan's criteria, and a policy that chooses between new plans, the last plan, slowed variants and stops (`policy.py`).
"""

import time
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Literal, get_args

import numpy as np

from waycode.driving import (
    Forecast,
    LqrTracker,
    Observation,
    Road,
    Tracker,
    Trajectory,
    VehicleState,
    constant_velocity_forecast,
)
from waycode.features import SegmentedMap
from waycode.objectives import DRIVING_OBJECTIVE, BaseObjective, Setting, TerminalVariance, parse_objective
from waycode.objectives.driving import PAST_STATES
from waycode.planner import Plan, Planner, View
from waycode.simulation.drivers.pdm_score import PDM_SCORE, PdmScore
from waycode.simulation.drivers.policy import Choice, Evaluator, Judged, PolicyConfig, choose_trajectory, is_safe
from waycode.simulation.drivers.proposals import Proposals, rule_based_proposals, sampled_proposals, search_proposals

_load_planner = cache(Planner.from_pretrained)  # once per process


@cache
def parse_judge(text: str) -> BaseObjective:
    """The objective of a configuration: text, or PDM-Closed's scorer, which is no objective of the library."""
    return PdmScore() if text == PDM_SCORE else parse_objective(text)


_FORECAST_S = 8.0  # as long as the model decodes; driving terms look ahead by their horizon and a second more


# Forecasts of the others: straight on; along their lanes; the most likely code of each by the model's prior.
OthersForecast = Literal["constant-velocity", "lanes", "prior"]


@dataclass(frozen=True, kw_only=True)
class LatentConfig:
    """Parameters of search, refinement and policy."""

    proposals: Proposals = "search"  # where the trajectories of a step come from; without a policy a search
    objective: str = DRIVING_OBJECTIVE  # as text, or "pdm-score": PDM-Closed's scorer
    depth: int = 3  # number of tokens
    beam_width: int = 2  # prefixes kept after each token
    levels: int = 2  # codebook levels per dimension of a token
    refine_steps: int = 5  # gradient steps on the terminal variance; without a policy only
    deadline_s: float | None = None  # time limit of a step; search and refinement end early to keep it
    others: OthersForecast = "lanes"  # how the driving objective expects the other road users to move
    policy: PolicyConfig | None = field(default_factory=PolicyConfig)  # None: drive the plan of each step (paper)

    def __post_init__(self) -> None:
        if self.refine_steps < 0:
            raise ValueError(f"refine_steps is {self.refine_steps}, expected at least 0")
        if self.others not in get_args(OthersForecast):
            available = ", ".join(get_args(OthersForecast))
            raise ValueError(f"there is no forecast of the others {self.others!r}; available: {available}")
        parse_judge(self.objective)  # raises for a wrong text before a drive begins


# The paper gives no weight for its optional edge term: here a step of contact costs as much as 10 m of progress.
PAPER = LatentConfig(objective="route-following + 10 * road-edge", policy=None)


@dataclass(frozen=True, kw_only=True)
class LatentState:
    """State within a scenario. Without a policy it stays as `reset` returned it."""

    road: Road  # the ego's route, computed once
    segmented_map: SegmentedMap  # the map as the model needs it, computed once
    last: Trajectory | None = None  # the rest of the last plan; sample 0 is now
    error_m: float = np.inf  # how far the tracker was expected to get to the side of that; unknown at the start
    steps_since_search: int = 0
    past: tuple[VehicleState, ...] = ()  # the ego since `reset`, before now; as many states as comfort depends on
    candidates: tuple[Trajectory, ...] = ()  # the best longest codes of the last search, best first; for pictures


@dataclass(frozen=True, kw_only=True)
class LatentDriver:
    """Drives by latent token search."""

    planner: Planner | str = "sumo-small"  # a planner, or the name or folder of a model
    config: LatentConfig = field(default_factory=LatentConfig)
    tracker: Tracker = field(default_factory=LqrTracker)  # the simulation's tracker, with which the policy simulates

    def reset(self, observation: Observation) -> LatentState:
        return LatentState(
            road=self._setting(observation).road,
            segmented_map=loaded_planner(self.planner).segment_map(observation.scene.map),
        )

    def plan(self, state: LatentState, observation: Observation) -> tuple[Trajectory, LatentState]:
        config, began = self.config, time.perf_counter()
        forecast = self._forecast(state, observation)
        if config.policy is not None:
            setting = self._setting(observation, state.road, forecast=forecast, past=state.past)
            state = replace(state, past=(*state.past, observation.ego)[-PAST_STATES:])
            return self._plan_by_policy(state, observation, setting, config.policy, began=began)
        setting = self._setting(observation, state.road, forecast=forecast)
        plan = self._encode(setting, state).plan(
            parse_judge(config.objective),
            depth=config.depth,
            beam_width=config.beam_width,
            levels=config.levels,
            refine_steps=config.refine_steps,
            refine_objective=TerminalVariance(),
            deadline_s=self._time_left_s(began),
        )
        return plan_trajectory(plan, observation), state

    def _forecast(self, state: LatentState, observation: Observation) -> Forecast[np.ndarray] | None:
        """The others as `config.others` says, for as long as driving terms look ahead; None: their default, lanes."""
        scene, num_steps = observation.scene, round(_FORECAST_S / observation.scene.dt_s)
        if self.config.others == "constant-velocity":
            return constant_velocity_forecast(
                scene, observation.agent, num_steps=num_steps, near=observation.ego, braking=True
            )
        if self.config.others == "prior":
            return loaded_planner(self.planner).forecast_others(
                scene, observation.agent, num_steps=num_steps, near=observation.ego, segmented_map=state.segmented_map
            )
        return None

    def _setting(
        self,
        observation: Observation,
        road: Road | None = None,
        *,
        forecast: Forecast[np.ndarray] | None = None,
        past: tuple[VehicleState, ...] | None = None,
    ) -> Setting:
        return Setting(
            scene=observation.scene,
            agent=observation.agent,
            device=loaded_planner(self.planner).device,
            known_vehicle=observation.vehicle,
            known_state=observation.ego,
            known_road=road,
            known_forecast=forecast,
            known_past=past,
        )

    def _encode(self, setting: Setting, state: LatentState) -> View:
        return loaded_planner(self.planner).encode(setting.scene, segmented_map=state.segmented_map, setting=setting)

    def _time_left_s(self, began: float) -> float | None:
        deadline_s = self.config.deadline_s
        return None if deadline_s is None else max(0.0, deadline_s - (time.perf_counter() - began))

    def _plan_by_policy(
        self, state: LatentState, observation: Observation, setting: Setting, policy: PolicyConfig, *, began: float
    ) -> tuple[Trajectory, LatentState]:
        """Chooses between new trajectories, the last one, slowed variants and stops. Ours, not the paper's."""
        evaluate = Evaluator(
            objective=parse_judge(self.config.objective),
            setting=setting,
            tracker=self.tracker,
            policy=policy,
            steers=policy.steers_against_errors and state.error_m > policy.steering_tolerance_m,
        )
        last, age = state.last, state.steps_since_search + 1
        if last is not None and (not policy.keep_last_plan or len(last) <= evaluate.num_steps):
            last = None
        is_due = last is None or age >= policy.replan_steps
        if last is not None and not is_due:
            kept = evaluate.judge(Trajectory.stack([last]))
            if is_safe(kept.levels)[0]:
                chosen = kept.choice(0)
                return chosen.trajectory, _next_state(state, chosen, steps_since_search=age)
        proposals = self._proposals(state, observation, evaluate, began=began)
        chosen = choose_trajectory(proposals, last, evaluate)
        shown = proposals[-1].best(self.config.beam_width) if proposals else ()
        return chosen.trajectory, _next_state(replace(state, candidates=shown), chosen)

    def _proposals(
        self, state: LatentState, observation: Observation, evaluate: Evaluator, *, began: float
    ) -> list[Judged]:
        """The new trajectories of a step, judged."""
        config = self.config
        if config.proposals == "centreline" or config.proposals == "constant-velocity":
            return rule_based_proposals(config.proposals, observation, state.road, evaluate)
        view = self._encode(evaluate.setting, state)
        if config.proposals == "samples":
            return sampled_proposals(view, evaluate, depth=config.depth)
        width = len(view.model.codebook(config.levels)) ** (config.depth - 1)
        return search_proposals(
            view,
            evaluate,
            depth=config.depth,
            beam_width=width if config.proposals == "all-codes" else config.beam_width,
            levels=config.levels,
            deadline_s=self._time_left_s(began),
        )


@dataclass(frozen=True, kw_only=True)
class ImitationDriver:
    """Drives the most likely trajectory (`View.candidates`), without an objective and without a route."""

    planner: Planner | str = "sumo-small"  # a planner, or the name or folder of a model

    def reset(self, observation: Observation) -> None:
        return None

    def plan(self, state: None, observation: Observation) -> tuple[Trajectory, None]:
        (plan,) = loaded_planner(self.planner).encode(observation.scene).candidates(1)
        return plan_trajectory(plan, observation), None


def plan_trajectory(plan: Plan, observation: Observation) -> Trajectory:
    """Converts a plan to a trajectory for a tracker.

    Args:
        plan: a plan for the ego of `observation`.
        observation: gives sample 0 of the trajectory, the ego's exact state, and the origin of the scene frame.
    """
    ego = observation.ego
    planned_m = np.stack([plan.x_m, plan.y_m], axis=-1) - np.asarray(observation.scene.origin_m)
    return Trajectory(
        position_m=np.concatenate([ego.centre_m(observation.vehicle), planned_m]),
        heading_rad=np.concatenate([ego.heading_rad, plan.heading_rad]),
        speed_mps=np.concatenate([np.maximum(0.0, ego.speed_mps), plan.speed_mps]),
    )


def loaded_planner(planner: Planner | str) -> Planner:
    """A planner as it is; a model by its name or folder is loaded once per process."""
    return planner if isinstance(planner, Planner) else _load_planner(planner)


def _next_state(state: LatentState, chosen: Choice, *, steps_since_search: int = 0) -> LatentState:
    """The state one step later, when the plan's first sample has passed."""
    return replace(
        state,
        last=chosen.plan.samples(slice(1, None)),
        error_m=chosen.error_m,
        steps_since_search=steps_since_search,
    )
