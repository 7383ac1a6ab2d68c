"""Converts the rows of a log window to tracks and signals."""

import numpy as np
from jaxtyping import Float

from waycode.scene import Signals, SignalState, TrackType
from waycode.scene.frames import rotate, to_scene_frame
from waycode.sources.nuplan.crop import CroppedMap
from waycode.sources.nuplan.log import BOX_COLUMNS, EGO_COLUMNS, NUPLAN_STEP_S, LogWindow
from waycode.sources.world import WorldTracks

_EGO_ID = "ego"
_EGO_LENGTH_M, _EGO_WIDTH_M = 5.176, 2.297
REAR_AXLE_TO_CENTRE_M = 1.461

TRACK_TYPES = {
    "vehicle": TrackType.VEHICLE,
    "pedestrian": TrackType.PEDESTRIAN,
    "bicycle": TrackType.CYCLIST,
}  # traffic cones, barriers, signs and generic objects are OTHER
_SIGNAL_STATES = {"red": SignalState.STOP, "yellow": SignalState.CAUTION, "green": SignalState.GO}


def world_tracks(window: LogWindow) -> WorldTracks:
    """The ego, which comes first, and every agent and object of the window. Only the ego is to be predicted."""
    kinds = {
        track: TRACK_TYPES.get(kind, TrackType.OTHER)
        for track, kind in zip(window.box_tracks, window.box_categories, strict=True)
    }
    ids = (_EGO_ID, *sorted(kinds))
    types = (TrackType.VEHICLE, *(kinds[track] for track in ids[1:]))
    shape = (len(ids), window.num_steps)
    position_m, velocity_mps, heading_rad = np.zeros((*shape, 2)), np.zeros((*shape, 2)), np.zeros(shape)
    valid = np.zeros(shape, np.bool_)
    box = dict(zip(BOX_COLUMNS, window.boxes.T, strict=True))
    index_of = {track: index for index, track in enumerate(ids)}
    row, step = np.array([index_of[track] for track in window.box_tracks], np.int64), window.box_steps
    position_m[row, step] = np.stack([box["x"], box["y"]], axis=-1)
    velocity_mps[row, step] = _box_velocity(window, box)
    heading_rad[row, step] = box["yaw"]
    valid[row, step] = True
    position_m[0, window.steps], velocity_mps[0, window.steps], heading_rad[0, window.steps] = _ego(window)
    valid[0, window.steps] = True
    values = np.concatenate([position_m, velocity_mps, heading_rad[..., None]], axis=-1)
    valid &= np.isfinite(values).all(axis=-1)
    size_m = _sizes_m(row, len(ids), box)
    return WorldTracks(
        ids=ids,
        types=types,
        length_m=size_m[:, 0],
        width_m=size_m[:, 1],
        position_m=position_m,
        heading_rad=heading_rad,
        velocity_mps=velocity_mps,
        valid=valid,
        to_predict=[0],
        ego_index=0,
    )


def _ego(window: LogWindow) -> tuple[Float[np.ndarray, "n 2"], Float[np.ndarray, "n 2"], Float[np.ndarray, " n"]]:
    """Position and velocity of the centre of the ego's box in world coordinates, and its heading."""
    pose = dict(zip(EGO_COLUMNS, window.ego.T, strict=True))
    qw, qx, qy, qz = (pose[name] for name in ("qw", "qx", "qy", "qz"))
    heading_rad = np.arctan2(2 * (qw * qz + qx * qy), 1 - 2 * (qy**2 + qz**2))
    to_centre = np.stack([np.full_like(qw, REAR_AXLE_TO_CENTRE_M), np.zeros_like(qw)], axis=-1)
    # The recorded velocity is that of the rear axle, in the ego's frame; yaw moves the centre sideways.
    own_mps = np.stack([pose["vx"], pose["vy"] + _yaw_rate(window, heading_rad) * REAR_AXLE_TO_CENTRE_M], axis=-1)
    position_m = np.stack([pose["x"], pose["y"]], axis=-1) + rotate(to_centre, heading_rad)
    return position_m, rotate(own_mps, heading_rad), heading_rad


def _yaw_rate(window: LogWindow, heading_rad: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """Central differences of the heading: recorded states from nuplan-devkit have no angular velocity."""
    if len(heading_rad) < 2:
        return np.zeros_like(heading_rad)
    order = np.argsort(window.steps)
    rate = np.zeros_like(heading_rad)
    rate[order] = np.gradient(np.unwrap(heading_rad[order]), window.steps[order] * NUPLAN_STEP_S)
    return rate


def _box_velocity(window: LogWindow, box: dict[str, np.ndarray]) -> Float[np.ndarray, "b 2"]:
    """Recorded velocities; zero for static objects without one."""
    velocity_mps = np.stack([box["vx"], box["vy"]], axis=-1)
    is_object = np.array([kind not in TRACK_TYPES for kind in window.box_categories], np.bool_)
    unknown = ~np.isfinite(velocity_mps).all(axis=-1)
    return np.where((is_object & unknown)[:, None], 0.0, velocity_mps)


def _sizes_m(row: np.ndarray, count: int, box: dict[str, np.ndarray]) -> Float[np.ndarray, "A 2"]:
    """Length and width: the known ones of the ego, the medians over the boxes of every other track."""
    sizes = np.zeros((count, 2))
    sizes[0] = _EGO_LENGTH_M, _EGO_WIDTH_M
    for track in range(1, count):
        mine = row == track
        sizes[track] = np.median(box["length"][mine]), np.median(box["width"][mine])
    return sizes


def signals_of(window: LogWindow, cropped: CroppedMap, origin_m: tuple[float, float]) -> Signals:
    """Traffic lights of the lane connectors on the map. The stop point is the start of the connector."""
    known = [light for light in window.lights if (True, light[1]) in cropped.index]
    signalled = sorted({connector for _, connector, _ in known})
    states = np.zeros((len(signalled), window.num_steps), np.int8)
    valid = np.zeros(states.shape, np.bool_)
    for step, connector, status in known:
        row = signalled.index(connector)
        states[row, step] = _SIGNAL_STATES.get(status.lower(), SignalState.UNKNOWN)
        valid[row, step] = True
    lanes = [cropped.index[True, connector] for connector in signalled]
    stops_m = np.array([cropped.lane_starts_m[lane] for lane in lanes], np.float64).reshape(-1, 2)
    return Signals(
        lanes=np.array(lanes, np.int32), stop_point_m=to_scene_frame(stops_m, origin_m), states=states, valid=valid
    )
