"""Conflicts in recorded traffic: overlapping bounding boxes, and stop lines crossed on red."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from waycode.scene.frames import rotate, wrap_angle
from waycode.scene.geometry import box_corners, boxes_overlap, directions, forward, project
from waycode.scene.types import Scene, SignalState, Tracks, TrackType

_STOP_LINE_HALF_WIDTH_M = 1.8  # of a lane
_SAME_STOP_LINE_M = 1.0  # stop points this close belong to the same stop line
_ALIGNED_RAD = np.radians(40)  # to the signalled lane
_FOLLOWED_STEPS = 25  # steps beyond the stop line by which the lane that a vehicle takes is determined


@dataclass(frozen=True)
class RedLightCrossing:
    """A vehicle that crosses a stop line on red."""

    track: int  # index of the vehicle
    lane: int  # the signalled lane that it takes
    step: int  # the first step beyond the stop line


def overlapping_pairs(tracks: Tracks, *, which: Bool[np.ndarray, " A"]) -> Int[np.ndarray, "n 3"]:
    """All (track, other track, step) at which the boxes of two of the tracks in `which` overlap."""
    rows = np.flatnonzero(which)
    one, other = (rows[index] for index in np.triu_indices(len(rows), k=1))
    position = tracks.position_m
    reach = np.hypot(tracks.length_m, tracks.width_m) / 2
    both = tracks.valid[one] & tracks.valid[other]
    close = np.linalg.norm(position[one] - position[other], axis=-1) < (reach[one] + reach[other])[:, None]
    pair, step = np.nonzero(both & close)
    hit = boxes_overlap(_track_corners(tracks, one[pair], step), _track_corners(tracks, other[pair], step))
    return np.stack([one[pair[hit]], other[pair[hit]], step[hit]], axis=-1)


def hits_recorded(corners_m: Float[np.ndarray, "n 4 2"], scene: Scene, agent: int, *, every: int = 1) -> bool:
    """Whether a body that replaces an agent overlaps the bounding box of any other observed road user.

    Args:
        corners_m: corners of the body at n steps after the current one, in the scene frame.
        scene: gives the other road users.
        agent: index of the track that the body replaces.
        every: the corners are of each `every`th step.
    """
    tracks = scene.tracks
    steps = np.arange(scene.current_step + every, tracks.num_steps, every)[: len(corners_m)]
    corners = corners_m[: len(steps)]
    valid = tracks.valid[:, steps]
    valid[agent] = False
    reach = np.hypot(tracks.length_m, tracks.width_m) / 2
    distance = np.linalg.norm(tracks.position_m[:, steps] - corners.mean(axis=1)[None], axis=-1)
    other, place = np.nonzero(valid & (distance < float(reach[agent]) + reach[:, None]))
    return bool(boxes_overlap(corners[place], _track_corners(tracks, other, steps[place])).any())


def _track_corners(
    tracks: Tracks, track: Int[np.ndarray, " n"], step: Int[np.ndarray, " n"]
) -> Float[np.ndarray, "n 4 2"]:
    """Corners of the bounding boxes of n tracks, each at its own step."""
    return box_corners(
        tracks.position_m[track, step].astype(np.float64),
        tracks.heading_rad[track, step].astype(np.float64),
        length_m=tracks.length_m[track].astype(np.float64),
        width_m=tracks.width_m[track].astype(np.float64),
    )


def red_light_crossings(scene: Scene) -> list[RedLightCrossing]:
    """All vehicles that cross a stop line while the light of the lane that they take is steady red."""
    tracks, signals = scene.tracks, scene.signals
    crossings = []
    vehicles = np.flatnonzero(tracks.types == TrackType.VEHICLE)
    front = tracks.position_m + tracks.length_m[:, None, None] / 2 * forward(tracks.heading_rad)  # [A, T, 2]
    seen: set[tuple[int, int]] = set()
    for index in range(len(signals)):
        heading = float(directions(scene.map.lanes.centrelines[int(signals.lanes[index])])[0])
        along, beside = np.moveaxis(rotate(front - signals.stop_point_m[index], -heading), -1, 0)
        aligned = np.abs(wrap_angle(tracks.heading_rad - heading)) < _ALIGNED_RAD
        near = tracks.valid & aligned & (np.abs(beside) < _STOP_LINE_HALF_WIDTH_M)
        over = near[:, 1:] & near[:, :-1] & (along[:, :-1] < 0) & (along[:, 1:] >= 0)
        for track in vehicles:
            for step in np.flatnonzero(over[track]) + 1:
                if (int(track), int(step)) in seen:  # several signalled lanes start at the same stop line
                    continue
                seen.add((int(track), int(step)))
                taken = _signal_followed(scene, int(track), int(step), index)
                if np.all(signals.states[taken, step - 1 : step + 1] == SignalState.STOP):
                    crossings.append(RedLightCrossing(int(track), int(signals.lanes[taken]), int(step)))
    return crossings


def _signal_followed(scene: Scene, track: int, step: int, index: int) -> int:
    """Of the signals whose lanes start at the stop line of signal `index`, the one whose lane the vehicle follows."""
    signals, tracks = scene.signals, scene.tracks
    distance = np.linalg.norm(signals.stop_point_m - signals.stop_point_m[index], axis=1)
    candidates = np.flatnonzero(distance < _SAME_STOP_LINE_M)
    watched = slice(step, step + _FOLLOWED_STEPS)
    path = tracks.position_m[track, watched][tracks.valid[track, watched]].astype(np.float64)
    offsets = [
        np.abs(project(path, scene.map.lanes.centrelines[int(signals.lanes[way])].astype(np.float64))[1]).mean()
        for way in candidates
    ]
    return int(candidates[int(np.argmin(offsets))])
