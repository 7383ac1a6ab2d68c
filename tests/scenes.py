"""Small made-up scenes that the tests and benchmarks share."""

from dataclasses import replace
from typing import Any

import numpy as np

from waycode.scene import (
    EdgeType,
    GraphOrigin,
    Lanes,
    LaneType,
    LineType,
    MapFeatures,
    Polylines,
    Route,
    Scene,
    Signals,
    SignalState,
    StopSigns,
    Tracks,
    TrackType,
    as_pairs,
)
from waycode.scene.frames import HEADING_STEP_RAD, POSITION_STEP_M, VELOCITY_STEP_MPS, snap

Floats = np.ndarray[Any, np.dtype[np.float64]]


def small_scene(scene_id: str = "small", *, source: str = "made-up", num_steps: int = 5) -> Scene:
    """A valid scene that has a little of everything: four tracks, three lanes, a light, a stop sign and a route."""
    return Scene(
        id=scene_id,
        source=source,
        dt_s=0.1,
        current_step=1,
        origin_m=(1_234_567.0, -7_654_321.0),
        tracks=small_tracks(num_steps),
        map=small_map(),
        signals=Signals(
            lanes=np.array([1], np.int32),
            stop_point_m=np.array([[18.0, 0.0]], np.float32),
            states=np.full((1, num_steps), SignalState.STOP, np.int8),
            valid=np.ones((1, num_steps), np.bool_),
        ),
        route=Route(lanes=np.array([0, 1, 2], np.int32), sections=np.array([0, 0, 1], np.int32)),
        tags=("test", "straße"),
        rebuild='{"seed": 0}',
    )


def small_tracks(num_steps: int = 5) -> Tracks:
    """A car (the ego), a pedestrian, a cyclist and something else that is only seen at the first step."""
    valid = np.ones((4, num_steps), np.bool_)
    valid[3, 1:] = False
    step = np.arange(num_steps, dtype=np.float32)[None] * valid
    speed = np.array([[10.0], [1.0], [5.0], [0.0]], np.float32)
    return Tracks(
        ids=("car", "walker", "rider", "thing"),
        types=np.array([1, 2, 3, 4], np.int8),
        length_m=np.array([4.5, 0.5, 1.8, 1.0], np.float32),
        width_m=np.array([2.0, 0.5, 0.75, 1.0], np.float32),
        x_m=snap(step * speed * 0.1, POSITION_STEP_M),
        y_m=np.array([[0.0], [8.0], [-4.0], [2.0]], np.float32) * valid,
        heading_rad=np.zeros((4, num_steps), np.float32),
        vx_mps=speed * valid,
        vy_mps=np.zeros((4, num_steps), np.float32),
        valid=valid,
        to_predict=np.array([0, 2], np.int32),
        ego_index=0,
    )


def small_map() -> MapFeatures:
    """Two parallel lanes, the second of which goes on into a third; one feature of every other kind."""
    square = np.array([[0, 0], [1, 0], [1, 1], [0, 1]], np.float32)
    return MapFeatures(
        lanes=Lanes(
            ids=("a", "b", "c"),
            types=np.array([LaneType.STREET, LaneType.STREET, LaneType.BIKE], np.int8),
            centrelines=Polylines.of([_line(0, 20, 4), _line(0, 20, 0), _line(20, 40, 0)]),
            speed_limit_mps=np.array([13.5, 13.5, 0], np.float32),
            speed_limit_known=np.array([True, True, False]),
            width_m=np.array([3.5, 0, 0], np.float32),
            width_known=np.array([True, False, False]),
            in_junction=np.array([False, False, True]),
            successors=as_pairs([(1, 2)]),
            left_neighbours=as_pairs([(1, 0)]),
            right_neighbours=as_pairs([(0, 1)]),
            graph_origin=GraphOrigin.RECORDED,
        ),
        road_lines=Polylines.of([_line(0, 20, 2)]),
        road_line_types=np.array([LineType.BROKEN_SINGLE_WHITE], np.int8),
        road_edges=Polylines.of([_line(0, 40, 6), _line(0, 40, -2)]),
        road_edge_types=np.array([EdgeType.BOUNDARY, EdgeType.MEDIAN], np.int8),
        crosswalks=Polylines.of([square + 10]),
        speed_bumps=Polylines.of([square + 5]),
        driveways=Polylines.of([square - 5]),
        drivable_areas=Polylines.of([square * 40]),
        stop_signs=StopSigns(position_m=np.array([[20, -2]], np.float32), controls=as_pairs([(0, 1)])),
    )


def bare_scene(scene_id: str = "bare") -> Scene:
    """The least that is valid: one track, no map, no signals, no route, no ego."""
    tracks = replace(_first_track(small_tracks(2)), to_predict=np.zeros(0, np.int32), ego_index=None)
    return Scene(
        id=scene_id, source="made-up", dt_s=0.1, current_step=0, origin_m=(0.0, 0.0), tracks=tracks, map=MapFeatures()
    )


def traffic_scene(seed: int, *, num_tracks: int = 40, num_steps: int = 91, num_lanes: int = 60) -> Scene:
    """A scene of the size that the SUMO generator makes: smooth tracks and about 42 map points per lane."""
    random = np.random.default_rng(seed)
    lanes = _curves(random, num_lanes, num_points=21)
    edges = _curves(random, num_lanes // 2, num_points=42)
    kinds = random.choice(np.array([TrackType.VEHICLE, TrackType.PEDESTRIAN, TrackType.CYCLIST]), num_tracks)
    pairs = as_pairs((lane, lane + 1) for lane in range(num_lanes - 1))
    return Scene(
        id=f"traffic-{seed:05d}",
        source="made-up",
        dt_s=0.1,
        current_step=10,
        origin_m=(400_000.0, 5_600_000.0),
        tracks=_traffic(random, kinds.astype(np.int8), num_steps),
        map=MapFeatures(
            lanes=Lanes(
                ids=tuple(f"edge{lane // 3}_{lane % 3}" for lane in range(num_lanes)),
                types=np.full(num_lanes, LaneType.STREET, np.int8),
                centrelines=Polylines.of(lanes),
                speed_limit_mps=np.full(num_lanes, 13.875, np.float32),
                speed_limit_known=np.ones(num_lanes, np.bool_),
                width_m=np.full(num_lanes, 3.25, np.float32),
                width_known=np.ones(num_lanes, np.bool_),
                in_junction=random.random(num_lanes) < 0.3,
                successors=pairs,
                left_neighbours=pairs[::3],
                right_neighbours=pairs[::3, ::-1].copy(),
                graph_origin=GraphOrigin.RECORDED,
            ),
            road_edges=Polylines.of(edges),
            road_edge_types=np.full(len(edges), EdgeType.BOUNDARY, np.int8),
            crosswalks=Polylines.of([curve[:4] for curve in edges[:8]]),
        ),
        signals=Signals(
            lanes=np.arange(8, dtype=np.int32),
            stop_point_m=np.stack([lane[-1] for lane in lanes[:8]]),
            states=np.full((8, num_steps), SignalState.GO, np.int8),
            valid=np.ones((8, num_steps), np.bool_),
        ),
        tags=("traffic",),
    )


def _traffic(random: np.random.Generator, types: np.ndarray[Any, np.dtype[np.int8]], num_steps: int) -> Tracks:
    """Road users that turn and change their speed smoothly, some of which come or go in between."""
    count = len(types)
    time_s = np.arange(num_steps) * 0.1
    heading = random.uniform(-3, 3, (count, 1)) + 0.1 * np.sin(random.uniform(0, 1, (count, 1)) * time_s)
    speed = np.maximum(0, random.uniform(-5, 15, (count, 1)) + random.normal(0, 0.5, (count, 1)) * time_s)
    vx, vy = speed * np.cos(heading), speed * np.sin(heading)
    steps = np.arange(num_steps)[None]
    valid = (steps >= random.integers(-60, 30, (count, 1))) & (steps < random.integers(40, 200, (count, 1)))
    places = random.uniform(-80, 80, (count, 2))
    return Tracks(
        ids=tuple(f"vehicle.{index}" for index in range(count)),
        types=types,
        length_m=snap(random.uniform(3, 6, count), POSITION_STEP_M),
        width_m=snap(random.uniform(1.5, 2.5, count), POSITION_STEP_M),
        x_m=snap((places[:, :1] + np.cumsum(vx, axis=1) * 0.1) * valid, POSITION_STEP_M),
        y_m=snap((places[:, 1:] + np.cumsum(vy, axis=1) * 0.1) * valid, POSITION_STEP_M),
        heading_rad=snap(heading * valid, HEADING_STEP_RAD),
        vx_mps=snap(vx * valid, VELOCITY_STEP_MPS),
        vy_mps=snap(vy * valid, VELOCITY_STEP_MPS),
        valid=valid,
        to_predict=np.arange(min(4, count), dtype=np.int32),
        ego_index=0,
    )


def _first_track(tracks: Tracks) -> Tracks:
    arrays = {
        name: getattr(tracks, name)[:1]
        for name in ("types", "length_m", "width_m", "x_m", "y_m", "heading_rad", "vx_mps", "vy_mps", "valid")
    }
    return replace(tracks, ids=tracks.ids[:1], **arrays)


def _line(start_m: float, end_m: float, y_m: float) -> Floats:
    return np.array([[start_m, y_m], [(start_m + end_m) / 2, y_m], [end_m, y_m]])


def _curves(random: np.random.Generator, count: int, *, num_points: int) -> list[np.ndarray[Any, Any]]:
    starts, angles = random.uniform(-100, 100, (count, 1, 2)), random.uniform(-3, 3, (count, 1))
    angles = angles + np.linspace(0, 1, num_points) * random.uniform(-1, 1, (count, 1))
    steps = 2 * np.stack([np.cos(angles), np.sin(angles)], axis=-1)
    return list(snap(starts + np.cumsum(steps, axis=1), POSITION_STEP_M))
