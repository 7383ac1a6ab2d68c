"""From a `Scene` to the tensors of one scene (no batch axis yet; `collate` adds it)."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
from jaxtyping import Bool, Float, Float32, Int, Int64

from waycode.features.reachable import reachable
from waycode.features.types import HISTORY_CHANNELS, FeatureConfig, SegmentKind
from waycode.scene import MapFeatures, Polylines, Scene, Signals, WaycodeError
from waycode.scene.frames import rotate
from waycode.scene.geometry import directions

MIN_EXTENT_M = 1e-3  # a piece of the map that is smaller has no direction of its own


class FeatureError(WaycodeError, ValueError):
    """A scene that cannot be turned into the tensors that are asked for."""


@dataclass(frozen=True, kw_only=True)
class Segments:
    """The map as pieces of about the same length (arrays of one scene, as in `SceneFeatures`)."""

    points_m: Float32[np.ndarray, "S P 2"]
    kind: Int64[np.ndarray, " S"]
    signal: Int64[np.ndarray, " S"]
    speed_limit: Float32[np.ndarray, " S"]
    pose: Float32[np.ndarray, "S 3"]

    @property
    def placed_m(self) -> Float[np.ndarray, "S P 2"]:
        """The points in the scene frame."""
        return rotate(self.points_m, self.pose[:, None, 2]) + self.pose[:, None, :2]


@dataclass(frozen=True, kw_only=True, eq=False)
class CutMap:
    """A whole map cut into pieces, which holds for all steps of a scenario: only lights and the car's place change."""

    map: MapFeatures
    config: FeatureConfig
    segments: Segments  # no light is lit
    lane: Int64[np.ndarray, " S"]  # the lane that each comes from; -1 for all that is no lane
    is_directed: bool  # whether their headings hold; else they look at whoever is near


@dataclass(frozen=True, kw_only=True)
class Example:
    """One scene as arrays: what is seen, which road users are modelled, and what they did."""

    segments: Segments
    history: Float32[np.ndarray, "N H 7"]
    size_m: Float32[np.ndarray, "N 2"]
    track_kind: Int64[np.ndarray, " N"]
    track_pose: Float32[np.ndarray, "N 3"]
    agents: Int64[np.ndarray, " A"]
    reach: Float32[np.ndarray, "A S"]  # whether a segment is a lane that leads on from the agent's own
    future_m: Float32[np.ndarray, "A T 2"]
    future_valid: Bool[np.ndarray, "A T"]


def extract(scene: Scene, agents: Sequence[int], *, config: FeatureConfig, cut: CutMap | None = None) -> Example:
    """The tensors of a scene; `agents` are indices of tracks that are observed at the current step.

    Who looks at the same map again and again cuts it once (`cut_map`) beforehand.
    """
    tracks, now = scene.tracks, scene.current_step
    _check(scene, agents, config)
    cut = cut_map(scene.map, config=config) if cut is None else _checked(cut, scene, config)
    centres = tracks.position_m[list(agents), now]
    seen = np.flatnonzero(tracks.valid[:, now])
    kept = seen[_within(tracks.position_m[seen, now], centres, config.max_distance_m)]
    pose = np.stack([tracks.x_m[kept, now], tracks.y_m[kept, now], tracks.heading_rad[kept, now]], axis=-1)
    row_of = {int(track): row for row, track in enumerate(kept)}
    future_m, future_valid = _futures(scene, agents, config)
    segments, lane = segments_near(cut, scene.signals, now, centres=centres)
    rows = np.array([row_of[int(agent)] for agent in agents], np.int64)
    return Example(
        segments=segments,
        history=_history(scene, kept, pose, config),
        size_m=np.stack([tracks.length_m[kept], tracks.width_m[kept]], axis=-1),
        track_kind=tracks.types[kept].astype(np.int64),
        track_pose=pose,
        agents=rows,
        reach=reachable(scene.map.lanes, segments.placed_m, lane, poses=pose[rows]),
        future_m=future_m,
        future_valid=future_valid,
    )


def _check(scene: Scene, agents: Sequence[int], config: FeatureConfig) -> None:
    count, now = len(scene.tracks), scene.current_step
    if not np.isclose(scene.dt_s, config.dt_s):
        raise FeatureError(f"scene {scene.id!r} has steps of {scene.dt_s} s, the model expects {config.dt_s} s")
    unknown = [int(agent) for agent in agents if not 0 <= agent < count]
    if unknown:
        raise FeatureError(f"scene {scene.id!r} has no tracks {unknown}: expected 0 to {count - 1}")
    missing = [int(agent) for agent in agents if not scene.tracks.valid[agent, now]]
    if missing:
        raise FeatureError(
            f"tracks {missing} of scene {scene.id!r} are not observed at the current step ({now}): "
            f"available are {np.flatnonzero(scene.tracks.valid[:, now]).tolist()}"
        )


def _checked(cut: CutMap, scene: Scene, config: FeatureConfig) -> CutMap:
    if cut.map is not scene.map or cut.config != config:
        raise FeatureError(f"the map that was cut is not that of scene {scene.id!r}, or the settings are others")
    return cut


def cut_map(features: MapFeatures, *, config: FeatureConfig) -> CutMap:
    """All polylines of the map, cut into pieces, and its stop signs."""
    lanes = features.lanes
    kinds = {  # every polyline's kind, in the order in which the polylines are joined below
        SegmentKind.LANE: lanes.types,
        SegmentKind.ROAD_LINE: features.road_line_types,
        SegmentKind.ROAD_EDGE: features.road_edge_types,
        SegmentKind.CROSSWALK: np.zeros(len(features.crosswalks), np.int8),
        SegmentKind.SPEED_BUMP: np.zeros(len(features.speed_bumps), np.int8),
        SegmentKind.DRIVEWAY: np.zeros(len(features.driveways), np.int8),
    }
    kind = np.concatenate([types.astype(np.int64) + base for base, types in kinds.items()])
    joined = _join(
        [lanes.centrelines, features.road_lines, features.road_edges]
        + [_closed(polygons) for polygons in (features.crosswalks, features.speed_bumps, features.driveways)]
    )
    points, owner = cut_polylines(joined, count=config.points_per_segment, length_m=config.segment_length_m)
    local, pose = to_own_frames(points)
    speed_limit = np.zeros(len(kind), np.float32)
    speed_limit[: len(lanes)] = np.where(lanes.speed_limit_known, lanes.speed_limit_mps, 0)
    dark = np.zeros(len(owner), np.int64)
    segments = Segments(points_m=local, kind=kind[owner], signal=dark, speed_limit=speed_limit[owner], pose=pose)
    signs, faces = _stop_signs(features, points_per_segment=config.points_per_segment)
    directed = np.concatenate([np.abs(local).max(axis=(1, 2), initial=0) > MIN_EXTENT_M, faces])
    return CutMap(
        map=features,
        config=config,
        segments=_turned(_joined(segments, signs), directed),
        lane=np.concatenate([np.where(owner < len(lanes), owner, -1), np.full(len(faces), -1)]).astype(np.int64),
        is_directed=bool(directed.any()),
    )


def segments_near(
    cut: CutMap, signals: Signals, step: int, *, centres: Float[np.ndarray, "A 2"]
) -> tuple[Segments, Int64[np.ndarray, " S"]]:
    """The pieces near the centres, with the lights of a step, and the lane that each comes from (-1 if from none)."""
    whole = cut.segments
    near = np.flatnonzero(_within(whole.pose[:, :2], centres, cut.config.max_distance_m))
    signal = np.zeros(len(cut.map.lanes) + 1, np.int64)  # the last is for all that is no lane
    if len(signals):
        signal[signals.lanes] = np.where(signals.valid[:, step], signals.states[:, step].astype(np.int64) + 1, 0)
    pose = whole.pose[near]
    if not cut.is_directed and len(near):
        towards = centres[_nearest(pose[:, :2], centres)] - pose[:, :2]
        pose[:, 2] = np.arctan2(towards[:, 1], towards[:, 0])
    segments = Segments(
        points_m=whole.points_m[near],
        kind=whole.kind[near],
        signal=signal[cut.lane[near]],
        speed_limit=whole.speed_limit[near],
        pose=pose,
    )
    return segments, cut.lane[near]


def cut_polylines(
    polylines: Polylines, *, count: int, length_m: float
) -> tuple[Float32[np.ndarray, "S {count} 2"], Int[np.ndarray, " S"]]:
    """Pieces of at most `length_m` with `count` evenly spaced points each, and the polyline that each comes from."""
    points, starts = polylines.points_m.astype(np.float64), polylines.starts
    if len(polylines) == 0:
        return np.zeros((0, count, 2), np.float32), np.zeros(0, np.int64)
    # One arclength over all polylines (with the jumps between them) lets a single interpolation serve them all.
    steps = np.linalg.norm(np.diff(points, axis=0), axis=1)
    along = np.concatenate([[0.0], np.cumsum(steps)])
    begin, end = along[starts[:-1]], along[starts[1:] - 1]
    pieces = np.maximum(1, np.ceil((end - begin) / length_m - 1e-6)).astype(np.int64)
    owner = np.repeat(np.arange(len(polylines)), pieces)
    part = np.arange(len(owner)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    fraction = (part[:, None] + np.linspace(0, 1, count)) / pieces[owner][:, None]
    at = begin[owner][:, None] + fraction * (end - begin)[owner][:, None]
    at = np.clip(at, begin[owner][:, None], end[owner][:, None])
    cut = np.stack([np.interp(at, along, points[:, axis]) for axis in (0, 1)], axis=-1)
    return cut.astype(np.float32), owner


def to_own_frames(
    points_m: Float32[np.ndarray, "S P 2"],
) -> tuple[Float32[np.ndarray, "S P 2"], Float32[np.ndarray, "S 3"]]:
    """Each piece in the frame of its middle and its chord, and the pose of that frame."""
    middle = points_m.mean(axis=1)
    chord = points_m[:, -1] - points_m[:, 0]
    closed = np.linalg.norm(chord, axis=-1) < 0.1  # a ring has no chord: its first side gives the direction
    chord = np.where(closed[:, None], points_m[:, 1] - points_m[:, 0], chord)
    heading = np.arctan2(chord[:, 1], chord[:, 0])
    local = rotate(points_m - middle[:, None], -heading[:, None])
    return local.astype(np.float32), np.concatenate([middle, heading[:, None]], axis=-1).astype(np.float32)


def _join(parts: Sequence[Polylines]) -> Polylines:
    offsets = np.cumsum([0] + [len(part.points_m) for part in parts])
    starts = np.concatenate([part.starts[:-1] + offset for part, offset in zip(parts, offsets[:-1], strict=True)])
    points = np.concatenate([part.points_m for part in parts])
    return Polylines(points, np.append(starts, len(points)).astype(np.int32))


def _closed(polygons: Polylines) -> Polylines:
    return Polylines.of([np.concatenate([polygon, polygon[:1]]) for polygon in polygons.as_list()])


def _stop_signs(features: MapFeatures, *, points_per_segment: int) -> tuple[Segments, Bool[np.ndarray, " G"]]:
    """The stop signs as pieces without extent, and which face the way of a lane that they control."""
    signs, count = features.stop_signs, len(features.stop_signs)
    heading, faces = np.zeros((count, 1), np.float32), np.zeros(count, np.bool_)
    for sign, lane in signs.controls:
        heading[sign], faces[sign] = directions(features.lanes.centrelines[int(lane)])[-1], True
    pieces = Segments(
        points_m=np.zeros((count, points_per_segment, 2), np.float32),
        kind=np.full(count, int(SegmentKind.STOP_SIGN), np.int64),
        signal=np.zeros(count, np.int64),
        speed_limit=np.zeros(count, np.float32),
        pose=np.concatenate([signs.position_m, heading], axis=-1),
    )
    return pieces, faces


def _turned(segments: Segments, directed: Bool[np.ndarray, " S"]) -> Segments:
    """Gives pieces without a direction that of the nearest lane, or else of the nearest piece, that has one.

    A constant instead would not turn with the scene. Where nothing has a direction, they will look at who is near.
    """
    if directed.all() or not directed.any():
        return segments
    pose, lost = segments.pose.copy(), ~directed
    lanes = directed & (segments.kind < SegmentKind.ROAD_LINE)
    models = segments.pose[lanes if lanes.any() else directed]
    pose[lost, 2] = models[_nearest(pose[lost, :2], models[:, :2]), 2]
    return replace(segments, pose=pose)


def _nearest(points: Float[np.ndarray, "n 2"], others: Float[np.ndarray, "m 2"]) -> Int[np.ndarray, " n"]:
    return np.linalg.norm(points[:, None] - others[None], axis=-1).argmin(axis=1)


def _joined(one: Segments, other: Segments) -> Segments:
    names = [field.name for field in fields(Segments)]
    return Segments(**{name: np.concatenate([getattr(one, name), getattr(other, name)]) for name in names})


def _within(
    points: Float[np.ndarray, "n 2"], centres: Float[np.ndarray, "A 2"], distance_m: float
) -> Bool[np.ndarray, " n"]:
    distance = np.linalg.norm(points[:, None] - centres[None], axis=-1)
    return np.logical_or.reduce(distance <= distance_m, axis=1)


def _history(
    scene: Scene, rows: Int[np.ndarray, " N"], pose: Float32[np.ndarray, "N 3"], config: FeatureConfig
) -> Float32[np.ndarray, "N H 7"]:
    """What was seen of each track up to now, in its own frame; padded in front where the scene's history is shorter."""
    tracks, steps = scene.tracks, config.history_steps
    taken = slice(max(0, scene.current_step + 1 - steps), scene.current_step + 1)
    valid = tracks.valid[rows, taken]
    heading = pose[:, 2:]
    position = rotate(tracks.position_m[rows, taken] - pose[:, None, :2], -heading)
    velocity = rotate(np.stack([tracks.vx_mps[rows, taken], tracks.vy_mps[rows, taken]], axis=-1), -heading)
    angle = tracks.heading_rad[rows, taken] - heading
    channels = [position[..., 0], position[..., 1], np.cos(angle), np.sin(angle), velocity[..., 0], velocity[..., 1]]
    seen = np.stack([*channels, np.ones_like(angle)], axis=-1) * valid[..., None]
    history = np.zeros((len(rows), steps, HISTORY_CHANNELS), np.float32)
    history[:, steps - seen.shape[1] :] = seen
    return history


def _futures(
    scene: Scene, agents: Sequence[int], config: FeatureConfig
) -> tuple[Float32[np.ndarray, "A T 2"], Bool[np.ndarray, "A T"]]:
    """The agents' positions after the current step, each in its own frame; padded where the scene ends earlier."""
    tracks, now, rows = scene.tracks, scene.current_step, list(agents)
    taken = slice(now + 1, now + 1 + config.future_steps)
    pose = tracks.heading_rad[rows, now][:, None]
    seen = rotate(tracks.position_m[rows, taken] - tracks.position_m[rows, now][:, None], -pose)
    observed = tracks.valid[rows, taken]
    position = np.zeros((len(rows), config.future_steps, 2), np.float32)
    valid = np.zeros((len(rows), config.future_steps), np.bool_)
    position[:, : seen.shape[1]] = seen * observed[..., None]
    valid[:, : seen.shape[1]] = observed
    return position, valid
