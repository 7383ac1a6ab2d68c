"""A made-up road of three lanes, trajectories on it, and the same road elsewhere and turned."""

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from waycode.objectives import Candidates, Setting
from waycode.scene import GraphOrigin, Lanes, LaneType, MapFeatures, Polylines, Route, Scene, Tracks, as_pairs
from waycode.scene.frames import rotate

LANES_Y_M = (0.0, 3.5, 7.0)
STEPS = 80
CAR_LENGTH_M, CAR_WIDTH_M = 4.5, 2.0


def road(
    *, start_y_m: float = 0.0, speed_mps: float = 10.0, other_m: tuple[float, float] = (30.0, 0.0), graph: bool = True
) -> Scene:
    """Three lanes along x, each in two pieces, between edges at -2 and 9 m; the ego at x = 0, a car that stands."""
    return Scene(
        id="road",
        source="made-up",
        dt_s=0.1,
        current_step=0,
        origin_m=(0.0, 0.0),
        tracks=cars([(0.0, start_y_m), other_m], speeds_mps=[speed_mps, 0.0]),
        map=MapFeatures(
            lanes=three_lanes(graph=graph),
            road_edges=Polylines.of([line((-50, -2), (150, -2)), line((150, 9), (-50, 9))]),
            road_edge_types=np.ones(2, np.int8),
        ),
        route=Route(lanes=np.array([0, 3], np.int32), sections=np.array([0, 1], np.int32)),
    )


def three_lanes(*, graph: bool = True) -> Lanes:
    """Lanes 0, 1, 2 from the right to the left, which go on in 3, 4, 5."""
    lines = [line((-50, y), (50, y)) for y in LANES_Y_M] + [line((50, y), (150, y)) for y in LANES_Y_M]
    lanes = lanes_of(lines, successors=[(0, 3), (1, 4), (2, 5)])
    left = as_pairs([(0, 1), (1, 2), (3, 4), (4, 5)])
    recorded = replace(lanes, left_neighbours=left, right_neighbours=left[:, ::-1].copy())
    return recorded if graph else lanes_of(lines, successors=[])


def lanes_of(lines: list[np.ndarray], *, successors: list[tuple[int, int]]) -> Lanes:
    count = len(lines)
    return Lanes(
        ids=tuple(map(str, range(count))),
        types=np.full(count, LaneType.STREET, np.int8),
        centrelines=Polylines.of(lines),
        speed_limit_mps=np.zeros(count, np.float32),
        speed_limit_known=np.zeros(count, np.bool_),
        width_m=np.zeros(count, np.float32),
        width_known=np.zeros(count, np.bool_),
        in_junction=np.zeros(count, np.bool_),
        successors=as_pairs(successors),
        graph_origin=GraphOrigin.RECORDED if successors else GraphOrigin.ABSENT,
    )


def cars(positions_m: list[tuple[float, float]], *, speeds_mps: list[float]) -> Tracks:
    """Cars that drive along x; the first is the ego."""
    count, time_s = len(positions_m), np.arange(STEPS + 1) * 0.1
    shape = (count, STEPS + 1)
    start, speed = np.array(positions_m, np.float32), np.array(speeds_mps, np.float32)[:, None]
    return Tracks(
        ids=("ego", *(f"car{index}" for index in range(1, count))),
        types=np.ones(count, np.int8),
        length_m=np.full(count, CAR_LENGTH_M, np.float32),
        width_m=np.full(count, CAR_WIDTH_M, np.float32),
        x_m=(start[:, :1] + speed * time_s).astype(np.float32),
        y_m=np.broadcast_to(start[:, 1:], shape).astype(np.float32),
        heading_rad=np.zeros(shape, np.float32),
        vx_mps=np.broadcast_to(speed, shape).astype(np.float32),
        vy_mps=np.zeros(shape, np.float32),
        valid=np.ones(shape, np.bool_),
        to_predict=np.array([0], np.int32),
        ego_index=0,
    )


def line(start: tuple[float, float], end: tuple[float, float]) -> np.ndarray:
    return np.linspace(start, end, 11)


def candidates_in(scene: Scene, positions_m: np.ndarray | Tensor, *, agent: int = 0) -> Candidates:
    """Candidates in float64, from positions [K, T, 2] or [T, 2]."""
    setting = Setting(scene=scene, agent=agent, dtype=torch.float64)
    position = torch.as_tensor(positions_m, dtype=torch.float64)
    position = position if position.ndim == 3 else position[None]
    return Candidates(
        position_m=position, std_m=torch.ones_like(position), num_tokens=3, dt_s=scene.dt_s, setting=setting
    )


def straight(*, speed_mps: float = 10.0, y_m: float = 0.0, steps: int = STEPS) -> np.ndarray:
    """Along x from x = 0, [T, 2]."""
    x = speed_mps * 0.1 * np.arange(1, steps + 1)
    return np.stack([x, np.full(steps, y_m)], axis=-1)


def arc(*, turn_rad: float, speed_mps: float = 10.0, from_rad: float = 0.0) -> np.ndarray:
    """Steps of equal length whose headings change evenly by `turn_rad` from the first to the last, [T, 2]."""
    heading = from_rad + np.linspace(0, turn_rad, STEPS)
    return np.cumsum(0.1 * speed_mps * np.stack([np.cos(heading), np.sin(heading)], axis=-1), axis=0)


def shifted(to_y_m: float, *, from_y_m: float = 0.0, begin_m: float = 20.0, end_m: float = 50.0) -> np.ndarray:
    """At 10 m/s along x, moving sideways in between, [T, 2]."""
    path = straight(y_m=from_y_m)
    share = np.clip((path[:, 0] - begin_m) / (end_m - begin_m), 0, 1)
    path[:, 1] += (to_y_m - from_y_m) * (3 * share**2 - 2 * share**3)
    return path


def wiggly(seed: int, *, count: int = 5) -> np.ndarray:
    """Smooth trajectories that speed up, brake, turn and drift, [K, T, 2]."""
    random = np.random.default_rng(seed)
    time = np.linspace(0, 1, STEPS)
    speed = 6 + random.uniform(-3, 6, (count, 1)) * time + random.uniform(-2, 2, (count, 1)) * np.sin(5 * time)
    heading = random.uniform(-0.5, 0.9, (count, 1)) * time + random.uniform(-0.1, 0.1, (count, 1)) * np.sin(9 * time)
    steps = 0.1 * speed[..., None] * np.stack([np.cos(heading), np.sin(heading)], axis=-1)
    return np.cumsum(steps, axis=1)


def moved(scene: Scene, *, angle_rad: float, by_m: tuple[float, float]) -> Scene:
    """The same scene, turned about the origin and shifted."""

    def move(points_m: np.ndarray) -> np.ndarray:
        return rotate(points_m.astype(np.float64), angle_rad) + np.asarray(by_m)

    tracks, lanes = scene.tracks, scene.map.lanes
    position = move(tracks.position_m).astype(np.float32)
    velocity = rotate(np.stack([tracks.vx_mps, tracks.vy_mps], axis=-1).astype(np.float64), angle_rad)
    return replace(
        scene,
        tracks=replace(
            tracks,
            x_m=position[..., 0],
            y_m=position[..., 1],
            heading_rad=(tracks.heading_rad + angle_rad).astype(np.float32),
            vx_mps=velocity[..., 0].astype(np.float32),
            vy_mps=velocity[..., 1].astype(np.float32),
        ),
        map=replace(
            scene.map,
            lanes=replace(lanes, centrelines=Polylines.of([move(one) for one in lanes.centrelines.as_list()])),
            road_edges=Polylines.of([move(one) for one in scene.map.road_edges.as_list()]),
        ),
    )
