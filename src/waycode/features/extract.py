"""From a `Scene` to the arrays of one example (without batch axis; `collate` adds it). Axes as in `features.types`."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
from jaxtyping import Bool, Float, Float32, Int, Int64

from waycode.features.reachable import reachable
from waycode.features.types import HISTORY_CHANNELS, FeatureConfig, SegmentKind
from waycode.scene import MapFeatures, Polylines, Scene, Signals, WaycodeError
from waycode.scene.frames import rotate
from waycode.scene.geometry import directions

_MIN_EXTENT_M = 1e-3  # a smaller segment has no direction
_MIN_CHORD_M = 0.1  # a segment with a shorter chord is a ring: its first side gives the direction


class FeatureError(WaycodeError, ValueError):
    """A scene that does not fit the requested features."""


@dataclass(frozen=True, kw_only=True)
class MapSegments:
    """Map segments of about equal length: arrays of one scene, as in `SceneFeatures`."""

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
class SegmentedMap:
    """All segments of a map, for all steps of a scenario: only traffic lights and the selection change."""

    map: MapFeatures
    config: FeatureConfig
    segments: MapSegments  # without traffic lights
    lane: Int64[np.ndarray, " S"]  # index of the lane that a segment belongs to; -1 if it is no lane
    is_directed: bool  # False if no segment has a direction: their headings are then chosen per agent


@dataclass(frozen=True, kw_only=True)
class Example:
    """One scene as arrays: the current step, its modelled agents and their futures.

    Fields as in `SceneFeatures`, `Agents` and `Batch`, without the batch axis and without padding.
    """

    segments: MapSegments
    history: Float32[np.ndarray, "N H 7"]
    size_m: Float32[np.ndarray, "N 2"]
    track_kind: Int64[np.ndarray, " N"]
    track_pose: Float32[np.ndarray, "N 3"]
    agents: Int64[np.ndarray, " A"]  # index into the N road users
    reachability: Float32[np.ndarray, "A S"]  # as in `Agents`
    future_m: Float32[np.ndarray, "A T 2"]
    future_valid: Bool[np.ndarray, "A T"]
    importance: Float32[np.ndarray, " A"]


def extract(
    scene: Scene, agents: Sequence[int], *, config: FeatureConfig, segmented_map: SegmentedMap | None = None
) -> Example:
    """Extracts the features of a scene at its current step.

    Args:
        scene: in any frame; features are invariant to it.
        agents: indices of the tracks to model; each must be observed at the current step.
        config: sizes and distances.
        segmented_map: `segment_map` of the scene's map. Segment the map once per scenario and pass it for every step;
            None segments it here.
    """
    tracks, now = scene.tracks, scene.current_step
    _check(scene, agents, config)
    if segmented_map is None:
        segmented_map = segment_map(scene.map, config=config)
    elif segmented_map.map is not scene.map or segmented_map.config != config:
        raise FeatureError(f"the segmented map is not that of scene {scene.id!r}, or was made with other settings")
    centres = tracks.position_m[list(agents), now]
    observed = np.flatnonzero(tracks.valid[:, now])
    kept = observed[_within(tracks.position_m[observed, now], centres, config.max_distance_m)]
    pose = np.stack([tracks.x_m[kept, now], tracks.y_m[kept, now], tracks.heading_rad[kept, now]], axis=-1)
    row_of = {int(track): row for row, track in enumerate(kept)}
    rows = np.array([row_of[int(agent)] for agent in agents], np.int64)
    future_m, future_valid = _futures(scene, agents, config)
    segments, lane = segments_near(segmented_map, scene.signals, now, centres=centres)
    return Example(
        segments=segments,
        history=_history(scene, kept, pose, config),
        size_m=np.stack([tracks.length_m[kept], tracks.width_m[kept]], axis=-1),
        track_kind=tracks.types[kept].astype(np.int64),
        track_pose=pose,
        agents=rows,
        reachability=reachable(scene.map.lanes, segments.placed_m, lane, poses=pose[rows]),
        future_m=future_m,
        future_valid=future_valid,
        importance=np.ones(len(rows), np.float32),
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


def segment_map(features: MapFeatures, *, config: FeatureConfig) -> SegmentedMap:
    """Splits all polylines of a map into segments; stop signs become segments without extent."""
    lanes = features.lanes
    kinds = {  # of every polyline, in the order in which the polylines are joined below
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
    points, polyline = split_polylines(joined, count=config.points_per_segment, length_m=config.segment_length_m)
    local, pose = to_own_frames(points)
    speed_limit = np.zeros(len(kind), np.float32)
    speed_limit[: len(lanes)] = np.where(lanes.speed_limit_known, lanes.speed_limit_mps, 0)
    segments = MapSegments(
        points_m=local,
        kind=kind[polyline],
        signal=np.zeros(len(polyline), np.int64),
        speed_limit=speed_limit[polyline],
        pose=pose,
    )
    signs, has_lane = _stop_signs(features, points_per_segment=config.points_per_segment)
    names = [field.name for field in fields(MapSegments)]
    together = {name: np.concatenate([getattr(segments, name), getattr(signs, name)]) for name in names}
    directed = np.concatenate([np.abs(local).max(axis=(1, 2), initial=0) > _MIN_EXTENT_M, has_lane])
    lane = np.concatenate([np.where(polyline < len(lanes), polyline, -1), np.full(len(has_lane), -1)])
    return SegmentedMap(
        map=features,
        config=config,
        segments=_with_directions(MapSegments(**together), directed),
        lane=lane.astype(np.int64),
        is_directed=bool(directed.any()),
    )


def segments_near(
    segmented_map: SegmentedMap, signals: Signals, step: int, *, centres: Float[np.ndarray, "A 2"]
) -> tuple[MapSegments, Int64[np.ndarray, " S"]]:
    """The segments near the centres, with the traffic lights of a step, and the lane of each (-1: no lane)."""
    whole = segmented_map.segments
    near = np.flatnonzero(_within(whole.pose[:, :2], centres, segmented_map.config.max_distance_m))
    signal = np.zeros(len(segmented_map.map.lanes) + 1, np.int64)  # the last is for segments that are no lanes
    if len(signals):
        signal[signals.lanes] = np.where(signals.valid[:, step], signals.states[:, step].astype(np.int64) + 1, 0)
    pose = whole.pose[near]
    if not segmented_map.is_directed and len(near):  # towards the nearest agent: a constant would not be invariant
        towards = centres[_nearest(pose[:, :2], centres)] - pose[:, :2]
        pose[:, 2] = np.arctan2(towards[:, 1], towards[:, 0])
    segments = MapSegments(
        points_m=whole.points_m[near],
        kind=whole.kind[near],
        signal=signal[segmented_map.lane[near]],
        speed_limit=whole.speed_limit[near],
        pose=pose,
    )
    return segments, segmented_map.lane[near]


def split_polylines(
    polylines: Polylines, *, count: int, length_m: float
) -> tuple[Float32[np.ndarray, "S {count} 2"], Int[np.ndarray, " S"]]:
    """Segments of at most `length_m` with `count` evenly spaced points, and the polyline that each comes from."""
    points, starts = polylines.points_m.astype(np.float64), polylines.starts
    if len(polylines) == 0:
        return np.zeros((0, count, 2), np.float32), np.zeros(0, np.int64)
    # One arclength over all polylines (with the jumps between them) lets a single interpolation serve them all.
    steps = np.linalg.norm(np.diff(points, axis=0), axis=1)
    along = np.concatenate([[0.0], np.cumsum(steps)])
    begin, end = along[starts[:-1]], along[starts[1:] - 1]
    num_segments = np.maximum(1, np.ceil((end - begin) / length_m - 1e-6)).astype(np.int64)
    owner = np.repeat(np.arange(len(polylines)), num_segments)
    part = np.arange(len(owner)) - np.repeat(np.cumsum(num_segments) - num_segments, num_segments)
    fraction = (part[:, None] + np.linspace(0, 1, count)) / num_segments[owner][:, None]
    at = begin[owner][:, None] + fraction * (end - begin)[owner][:, None]
    at = np.clip(at, begin[owner][:, None], end[owner][:, None])
    split = np.stack([np.interp(at, along, points[:, axis]) for axis in (0, 1)], axis=-1)
    return split.astype(np.float32), owner


def to_own_frames(
    points_m: Float32[np.ndarray, "S P 2"],
) -> tuple[Float32[np.ndarray, "S P 2"], Float32[np.ndarray, "S 3"]]:
    """Segments in the frame of their middle and chord, and the pose of that frame."""
    middle = points_m.mean(axis=1)
    chord = points_m[:, -1] - points_m[:, 0]
    closed = np.linalg.norm(chord, axis=-1) < _MIN_CHORD_M
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


def _stop_signs(features: MapFeatures, *, points_per_segment: int) -> tuple[MapSegments, Bool[np.ndarray, " G"]]:
    """Stop signs as segments without extent, headed along the lane that they control, and which of them have one."""
    signs, count = features.stop_signs, len(features.stop_signs)
    heading, has_lane = np.zeros((count, 1), np.float32), np.zeros(count, np.bool_)
    for sign, lane in signs.controls:
        heading[sign], has_lane[sign] = directions(features.lanes.centrelines[int(lane)])[-1], True
    segments = MapSegments(
        points_m=np.zeros((count, points_per_segment, 2), np.float32),
        kind=np.full(count, int(SegmentKind.STOP_SIGN), np.int64),
        signal=np.zeros(count, np.int64),
        speed_limit=np.zeros(count, np.float32),
        pose=np.concatenate([signs.position_m, heading], axis=-1),
    )
    return segments, has_lane


def _with_directions(segments: MapSegments, directed: Bool[np.ndarray, " S"]) -> MapSegments:
    """Gives segments without a direction that of the nearest lane, or else of the nearest segment, that has one.

    A constant heading would not rotate with the scene. If nothing has a direction, `segments_near` chooses one.
    """
    if directed.all() or not directed.any():
        return segments
    pose, undirected = segments.pose.copy(), ~directed
    lanes = directed & (segments.kind < SegmentKind.ROAD_LINE)
    references = segments.pose[lanes if lanes.any() else directed]
    pose[undirected, 2] = references[_nearest(pose[undirected, :2], references[:, :2]), 2]
    return replace(segments, pose=pose)


def _nearest(points: Float[np.ndarray, "n 2"], others: Float[np.ndarray, "m 2"]) -> Int[np.ndarray, " n"]:
    return np.linalg.norm(points[:, None] - others[None], axis=-1).argmin(axis=1)


def _within(
    points: Float[np.ndarray, "n 2"], centres: Float[np.ndarray, "A 2"], distance_m: float
) -> Bool[np.ndarray, " n"]:
    distance = np.linalg.norm(points[:, None] - centres[None], axis=-1)
    return np.logical_or.reduce(distance <= distance_m, axis=1)


def _history(
    scene: Scene, rows: Int[np.ndarray, " N"], pose: Float32[np.ndarray, "N 3"], config: FeatureConfig
) -> Float32[np.ndarray, "N H 7"]:
    """Each track up to the current step, in its own frame; padded in front where the scene's history is shorter."""
    tracks, steps = scene.tracks, config.history_steps
    taken = slice(max(0, scene.current_step + 1 - steps), scene.current_step + 1)
    valid = tracks.valid[rows, taken]
    heading = pose[:, 2:]
    position = rotate(tracks.position_m[rows, taken] - pose[:, None, :2], -heading)
    velocity = rotate(np.stack([tracks.vx_mps[rows, taken], tracks.vy_mps[rows, taken]], axis=-1), -heading)
    angle = tracks.heading_rad[rows, taken] - heading
    channels = [position[..., 0], position[..., 1], np.cos(angle), np.sin(angle), velocity[..., 0], velocity[..., 1]]
    observed = np.stack([*channels, np.ones_like(angle)], axis=-1) * valid[..., None]
    history = np.zeros((len(rows), steps, HISTORY_CHANNELS), np.float32)
    history[:, steps - observed.shape[1] :] = observed
    return history


def _futures(
    scene: Scene, agents: Sequence[int], config: FeatureConfig
) -> tuple[Float32[np.ndarray, "A T 2"], Bool[np.ndarray, "A T"]]:
    """Positions after the current step, in each agent's frame, and their validity; padded if the scene ends earlier."""
    tracks, now, rows = scene.tracks, scene.current_step, list(agents)
    taken = slice(now + 1, now + 1 + config.future_steps)
    heading = tracks.heading_rad[rows, now][:, None]
    recorded = rotate(tracks.position_m[rows, taken] - tracks.position_m[rows, now][:, None], -heading)
    observed = tracks.valid[rows, taken]
    position = np.zeros((len(rows), config.future_steps, 2), np.float32)
    valid = np.zeros((len(rows), config.future_steps), np.bool_)
    position[:, : recorded.shape[1]] = recorded * observed[..., None]
    valid[:, : recorded.shape[1]] = observed
    return position, valid
