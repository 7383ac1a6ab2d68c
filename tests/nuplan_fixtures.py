"""Reads nuPlan's metric fixtures (JSON: states of the ego and of others, and expected statistics) into our types."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from waycode.driving import Vehicle
from waycode.scene import MapFeatures, Tracks, TrackType
from waycode.scene.geometry import forward
from waycode.simulation.history import EgoHistory, History

Json = dict[str, Any]
KINDS = {
    "vehicles": TrackType.VEHICLE,
    "bicycles": TrackType.CYCLIST,
    "pedestrians": TrackType.PEDESTRIAN,
    "genericobjects": TrackType.OTHER,
}
PLAN_S = 10  # the fixtures' planner drives straight on for so long, ...
PLAN_SPEED_MPS = 5.0  # ... and when it is faster than this it starts to brake


@dataclass(frozen=True, kw_only=True)
class Expected:
    statistics: tuple[tuple[str, float], ...]  # (kind, value)
    times_s: tuple[float, ...]
    values: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Fixture:
    metric: str
    history: History
    plans: tuple[np.ndarray, np.ndarray, np.ndarray]  # time_s [F, P], centre_m [F, P, 2], heading_rad [F, P]
    parameters: dict[str, float]
    expected: Expected


def read_fixture(path: Path) -> Fixture:
    """One fixture; the folder it lies in names the metric. None has a map of ours."""
    raw: Json = json.loads(path.read_text())
    origin = np.asarray(raw["ego"]["pose"][:2])
    states = [raw["ego"], *raw.get("ego_future_states", [])]
    worlds = [raw["world"], *raw.get("world_future_states", [])]
    ego = _ego(states, origin)
    history = History(
        scene_id=path.stem,
        ego=ego,
        tracks=_tracks(worlds, origin),
        map=MapFeatures(),
        route=None,
        expert=_ego(raw["expert_ego_states"], origin) if raw.get("expert_ego_states") else ego,
    )
    return Fixture(
        metric=path.parent.name,
        history=history,
        plans=_straight_plans(ego),
        parameters=raw.get("metric_parameters", {}),
        expected=_expected(raw["expected"]),
    )


def _ego(states: list[Json], origin: np.ndarray) -> EgoHistory:
    still = np.zeros(len(states))
    pose = np.array([state["pose"] for state in states], np.float64)
    return EgoHistory(
        time_s=np.array([state["time_us"] * 1e-6 for state in states]),
        rear_axle_m=pose[:, :2] - origin,
        heading_rad=pose[:, 2],
        velocity_mps=np.array([state["velocity"] for state in states], np.float64),
        acceleration_mps2=np.array([state["acceleration"] for state in states], np.float64),
        yaw_rate_radps=still,
        yaw_acceleration_radps2=still,
        vehicle=Vehicle(),
    )


def _seen(world: Json) -> Iterator[tuple[str, TrackType, Json]]:
    """Every road user of one step with an id of its own; whatever has no speed is an object that stands."""
    for kind, track_type in KINDS.items():
        for track in world.get(kind, []):
            yield f"{kind}-{track['id']}", track_type, track


def _tracks(worlds: list[Json], origin: np.ndarray) -> Tracks:
    first: dict[str, tuple[TrackType, Json]] = {}
    for world in worlds:
        for name, kind, track in _seen(world):
            first.setdefault(name, (kind, track))
    row = {name: index for index, name in enumerate(first)}
    pose, speed = np.zeros((len(row), len(worlds), 3)), np.zeros((len(row), len(worlds)))
    valid = np.zeros((len(row), len(worlds)), np.bool_)
    for step, world in enumerate(worlds):
        for name, kind, track in _seen(world):
            pose[row[name], step] = np.array(track["box"]["pose"]) - [*origin, 0.0]
            speed[row[name], step] = 0.0 if kind == TrackType.OTHER else track["speed"]
            valid[row[name], step] = True
    velocity = speed[..., None] * forward(pose[..., 2])
    size = np.array([track["box"]["size"] for _, track in first.values()], np.float32).reshape(-1, 2)  # width, length
    return Tracks(
        ids=tuple(first),
        types=np.array([kind for kind, _ in first.values()], np.int8),
        length_m=size[:, 1],
        width_m=size[:, 0],
        x_m=pose[..., 0].astype(np.float32),
        y_m=pose[..., 1].astype(np.float32),
        heading_rad=pose[..., 2].astype(np.float32),
        vx_mps=velocity[..., 0].astype(np.float32),
        vy_mps=velocity[..., 1].astype(np.float32),
        valid=valid,
        to_predict=np.zeros(0, np.int32),
        ego_index=None,
    )


def _straight_plans(ego: EgoHistory) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Plans of the planner that the fixtures were made with, a point each second; once it brakes it goes on so."""
    along = np.zeros((len(ego), PLAN_S + 1))
    for step in range(len(ego)):
        speed, acceleration = float(ego.velocity_mps[step, 0]), 0.0
        total_speed = float(ego.speed_mps[step])
        for second in range(PLAN_S):
            if total_speed > PLAN_SPEED_MPS:
                acceleration = PLAN_SPEED_MPS - total_speed
            along[step, second + 1] = along[step, second] + speed
            speed += acceleration
            total_speed = abs(speed)
    time_s = ego.time_s[:, None] + np.arange(PLAN_S + 1)
    centre_m = ego.centre_m[:, None] + along[..., None] * forward(ego.heading_rad)[:, None]
    return time_s, centre_m, np.repeat(ego.heading_rad[:, None], PLAN_S + 1, axis=1)


def _expected(raw: Json | list[Json]) -> Expected:
    """What a fixture expects; some wrap it in a list of one."""
    (content,) = raw if isinstance(raw, list) else [raw]
    series = content.get("time_series") or {}
    return Expected(
        statistics=tuple((str(kind), float(value)) for kind, value in content["statistics"]),
        times_s=tuple(time_us * 1e-6 for time_us in series.get("time_stamps", [])),
        values=tuple(float(value) for value in series.get("values", [])),
    )
