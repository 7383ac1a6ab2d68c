"""Drives scenarios in nuplan-devkit's own loop, and converts its runs to our `History`: both scores of one run.

Logs and map are read by the devkit, and its loop, tracker, vehicle model and metric engine are used unchanged. The
folder is NUPLAN_DATA_ROOT, such as `waycode data export --to nuplan` writes. docs/nuplan.md says how to install it.
"""

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from waycode.driving import Vehicle
from waycode.scene import Scene, Tracks, TrackType
from waycode.simulation.errors import SimulationError
from waycode.simulation.history import EgoHistory, History
from waycode.simulation.metrics import METRICS
from waycode.simulation.nuplan.observing import vehicle_of
from waycode.sources.nuplan import NuplanReference, NuplanSource
from waycode.sources.nuplan.log import NUPLAN_STEP_S
from waycode.sources.nuplan.log_export import LOGS_FOLDER, MAPS_FOLDER
from waycode.sources.nuplan.tracks import TRACK_TYPES

_MAP_RADIUS_M = 220.0  # of the scenes that runs are scored on: beyond what an ego can reach in 15 s
# The devkit's name of each of our metrics.
DEVKIT_METRICS = {
    "no_at_fault_collision": "no_ego_at_fault_collisions",
    "drivable_area": "drivable_area_compliance",
    "driving_direction": "driving_direction_compliance",
    "making_progress": "ego_is_making_progress",
    "progress": "ego_progress_along_expert_route",
    "time_to_collision": "time_to_collision_within_bound",
    "speed_limit": "speed_limit_compliance",
    "comfort": "ego_is_comfortable",
}


@dataclass(frozen=True, kw_only=True)
class DevkitRun:
    """A scenario that a planner has driven in the devkit."""

    scenario: Any  # NuPlanScenario
    history: Any  # SimulationHistory
    found: dict[str, list[Any]]  # MetricStatistics by the devkit's name of the metric
    planning_s: Float[np.ndarray, " n"]  # duration of each step of the planner

    @property
    def metrics(self) -> dict[str, float]:
        """The devkit's scores, by our names of the metrics."""
        return {ours: float(self.found[theirs][0].metric_score) for ours, theirs in DEVKIT_METRICS.items()}

    @property
    def score(self) -> float:
        """The closed-loop score of the devkit's metrics: the product of the multipliers times the weighted mean.

        The devkit's aggregator writes it to a file for a whole campaign only; the formula is that of `score_run`.
        """
        scores = self.metrics
        weights = {metric.name: metric.weight for metric in METRICS if metric.weight is not None}
        mean = np.average([scores[name] for name in weights], weights=list(weights.values()))
        return float(mean * np.prod([scores[metric.name] for metric in METRICS if metric.weight is None]))


class Devkit:
    """The devkit's closed-loop simulation of the logs in a folder."""

    def __init__(self, root: Path, *, reactive: bool = False, one_per_log: bool = True) -> None:
        """Finds the scenarios, sorted by log and time.

        Args:
            root: folder with logs and maps, as `export_nuplan` writes them.
            reactive: the other agents react (IDM), instead of being replayed.
            one_per_log: keep the first of each log: an exported scene is a log with one scenario of several types.
        """
        logs = root / LOGS_FOLDER
        if not logs.is_dir():
            raise SimulationError(f"{logs} is no folder, expected nuPlan logs there: waycode data export --to nuplan")
        self.root = root
        # The devkit reads these when it is imported and when it composes its configuration.
        os.environ["NUPLAN_DATA_ROOT"], os.environ["NUPLAN_MAPS_ROOT"] = str(root), str(root / MAPS_FOLDER)
        os.environ.setdefault("NUPLAN_EXP_ROOT", str(root / "exp"))
        self._config = _compose(reactive=reactive)
        self._config.output_dir = str(root / "exp")
        found = self._find_scenarios()
        first = {scenario.log_name: scenario for scenario in reversed(found)}
        self.scenarios = list(reversed(first.values())) if one_per_log else found

    def _find_scenarios(self) -> list[Any]:
        """All scenarios of the types that the devkit knows, by log and time."""
        from nuplan.planning.script.builders.scenario_building_builder import build_scenario_builder
        from nuplan.planning.script.builders.scenario_filter_builder import build_scenario_filter
        from nuplan.planning.utils.multithreading.worker_sequential import Sequential

        # Without types the devkit takes every frame of a log for a scenario. Those of types that it does not know, such
        # as the tags of generated scenes, it starts at the tag instead of 3 s before it.
        known = set(self._config.scenario_builder.scenario_mapping.scenario_map)
        tags = NuplanSource(self.root / LOGS_FOLDER, self.root / MAPS_FOLDER).available_types()
        self._config.scenario_filter.scenario_types = sorted(known.intersection(tags))
        filtered = build_scenario_filter(self._config.scenario_filter)
        logging.getLogger("nuplan").setLevel(logging.ERROR)
        found = build_scenario_builder(self._config).get_scenarios(filtered, Sequential())
        return sorted(found, key=lambda scenario: (scenario.log_name, scenario.start_time.time_us))

    def drive(self, scenario: Any, planner: Any) -> DevkitRun:
        """Drives a scenario with a planner of the devkit's interface, and scores it with the devkit's metrics."""
        from hydra.utils import instantiate
        from nuplan.planning.script.builders.metric_builder import build_metrics_engines
        from nuplan.planning.script.builders.observation_builder import build_observations
        from nuplan.planning.simulation.runner.simulations_runner import SimulationRunner
        from nuplan.planning.simulation.simulation import Simulation
        from nuplan.planning.simulation.simulation_setup import SimulationSetup

        config = self._config
        setup = SimulationSetup(
            time_controller=instantiate(config.simulation_time_controller, scenario=scenario),
            observations=build_observations(config.observation, scenario=scenario),
            ego_controller=instantiate(config.ego_controller, scenario=scenario),
            scenario=scenario,
        )
        simulation = Simulation(setup, simulation_history_buffer_duration=config.simulation_history_buffer_duration)
        report = SimulationRunner(simulation, planner).run()
        # The engine's metrics keep what they computed for the last scenario, so each scenario gets its own engine.
        engine = build_metrics_engines(config, [scenario])[scenario.scenario_type]
        return DevkitRun(
            scenario=scenario,
            history=simulation.history,
            found=engine.compute_metric_results(simulation.history, scenario),
            planning_s=np.array(report.planner_report.compute_trajectory_runtimes),
        )

    def read(self, scenario: Any) -> Scene:
        """The scene that our reader makes of a scenario."""
        duration_s = (scenario.get_number_of_iterations() - 1) * scenario.database_interval
        source = NuplanSource(
            self.root / LOGS_FOLDER / f"{scenario.log_name}.db",
            self.root / MAPS_FOLDER,
            history_s=NUPLAN_STEP_S,  # scores need no history, and generated scenes have 1 s of it only
            future_s=round(duration_s, 1),
            map_radius_m=_MAP_RADIUS_M,
        )
        matching = [reference for reference in source.references() if reference.tagged == scenario.token]
        if not matching:
            raise SimulationError(f"the reader found no scenario {scenario.token} in {scenario.log_name}")
        return source.read(NuplanReference(*matching[0]))


def _compose(*, reactive: bool) -> Any:
    """The devkit's own configuration of a closed-loop simulation."""
    from hydra import compose, initialize_config_module

    kind = "closed_loop_reactive_agents" if reactive else "closed_loop_nonreactive_agents"
    with initialize_config_module("nuplan.planning.script.config.simulation", version_base="1.1"):
        return compose(
            "default_simulation",
            overrides=[
                f"+simulation={kind}",
                "planner=waycode_planner",
                "scenario_builder=nuplan_mini",
                "scenario_filter=all_scenarios",
                "worker=sequential",
                "experiment_uid=waycode",
                "hydra.searchpath=[pkg://waycode.simulation.nuplan.config, pkg://nuplan.planning.script.config.common, "
                "pkg://nuplan.planning.script.experiments]",
            ],
        )


def history_of(run: DevkitRun, scene: Scene) -> History:
    """A run of the devkit as our history.

    Args:
        run: the run.
        scene: what our reader made of the same scenario (`Devkit.read`): gives map and route.
    """
    origin_m = np.array(scene.origin_m)
    vehicle = vehicle_of(run.history.data[0].ego_state)
    return History(
        scene_id=scene.id,
        ego=_ego_history(run.history.extract_ego_state, origin_m, vehicle),
        tracks=_tracks([sample.observation.tracked_objects for sample in run.history.data], origin_m),
        map=scene.map,
        route=scene.route,
        expert=_ego_history(list(run.scenario.get_expert_ego_trajectory()), origin_m, vehicle),
    )


def _ego_history(states: Sequence[Any], origin_m: Float[np.ndarray, " 2"], vehicle: Vehicle) -> EgoHistory:
    def pairs(name: str) -> Float[np.ndarray, "T 2"]:
        return np.array([(v.x, v.y) for v in (getattr(state.dynamic_car_state, name) for state in states)], np.float64)

    return EgoHistory(
        time_s=np.array([(state.time_us - states[0].time_us) * 1e-6 for state in states]),
        rear_axle_m=np.array([(state.rear_axle.x, state.rear_axle.y) for state in states]) - origin_m,
        heading_rad=np.unwrap([state.rear_axle.heading for state in states]),
        velocity_mps=pairs("rear_axle_velocity_2d"),
        acceleration_mps2=pairs("rear_axle_acceleration_2d"),
        yaw_rate_radps=np.array([state.dynamic_car_state.angular_velocity for state in states], np.float64),
        yaw_acceleration_radps2=np.array(
            [state.dynamic_car_state.angular_acceleration for state in states], np.float64
        ),
        vehicle=vehicle,
    )


def _tracks(observed: Sequence[Any], origin_m: Float[np.ndarray, " 2"]) -> Tracks:
    """The devkit's tracked objects at T steps; objects without a velocity stand."""
    first = {item.track_token: item for objects in reversed(observed) for item in reversed(list(objects))}
    row = {name: index for index, name in enumerate(first)}
    values = np.zeros((5, len(row), len(observed)))
    valid = np.zeros((len(row), len(observed)), np.bool_)
    for step, objects in enumerate(observed):
        for item in objects:
            velocity = getattr(item, "velocity", None)
            moving = (0.0, 0.0) if velocity is None else (velocity.x, velocity.y)
            place = (item.center.x - origin_m[0], item.center.y - origin_m[1], item.center.heading)
            values[:, row[item.track_token], step] = (*place, *moving)
            valid[row[item.track_token], step] = True
    x, y, heading, vx, vy = values.astype(np.float32)
    kinds = [TRACK_TYPES.get(item.tracked_object_type.fullname, TrackType.OTHER) for item in first.values()]
    return Tracks(
        ids=tuple(first),
        types=np.array(kinds, np.int8),
        length_m=np.array([item.box.length for item in first.values()], np.float32),
        width_m=np.array([item.box.width for item in first.values()], np.float32),
        x_m=x,
        y_m=y,
        heading_rad=heading,
        vx_mps=vx,
        vy_mps=vy,
        valid=valid,
        to_predict=np.zeros(0, np.int32),
        ego_index=None,
    )
