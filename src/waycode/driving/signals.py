"""Red lights on a path. G signalled lanes."""

import numpy as np
from jaxtyping import Bool, Float

from waycode.driving.path import Path
from waycode.scene import Lanes, Signals, SignalState

ON_PATH_M = 1.5
RED_STATES = (SignalState.STOP, SignalState.ARROW_STOP)


def stop_points_on(
    path: Path, signals: Signals, lanes: Lanes
) -> tuple[Float[np.ndarray, " G"], Bool[np.ndarray, " G"]]:
    """How far along the path each light's stop point lies, and whether the path goes the way that the light is for.

    Several ways start at one stop line, so the middle of the signalled lane must lie on the path as well.
    """
    if len(signals) == 0:
        return np.zeros(0), np.zeros(0, np.bool_)
    along, offset = path.project(signals.stop_point_m.astype(np.float64))
    lines = [lanes.centrelines[int(lane)] for lane in signals.lanes]
    _, middle_offset = path.project(np.stack([line[len(line) // 2] for line in lines]).astype(np.float64))
    return along, (np.abs(offset) < ON_PATH_M) & (np.abs(middle_offset) < ON_PATH_M)


def is_red(signals: Signals, step: int) -> Bool[np.ndarray, " G"]:
    """Which lights show a steady red at a step."""
    if len(signals) == 0:
        return np.zeros(0, np.bool_)
    return signals.valid[:, step] & np.isin(signals.states[:, step], RED_STATES)
