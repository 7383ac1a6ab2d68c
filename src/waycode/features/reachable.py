"""Which lanes an agent can reach from its lane: shapes alone do not tell.

Two lanes that cross in a junction look alike from the approach; only one of them is a successor of the agent's lane.
"""

import numpy as np
from jaxtyping import Bool, Float, Float32, Int64

from waycode.scene import Lanes
from waycode.scene.frames import wrap_angle
from waycode.scene.geometry import project_on_segments
from waycode.scene.lane_graph import MODEL_BESIDE_LANE, MODEL_ON_LANE

FOLLOWS, BY_CHANGING, NOT_AT_ALL = 1.0, 0.5, 0.0


def reachable(
    lanes: Lanes,
    points_m: Float[np.ndarray, "S P 2"],
    lane_of_piece: Int64[np.ndarray, " S"],
    *,
    poses: Float[np.ndarray, "A 3"],
) -> Float32[np.ndarray, "A S"]:
    """Reachability of map segments for agents: `FOLLOWS`, `BY_CHANGING` (with lane changes) or `NOT_AT_ALL`.

    Args:
        lanes: the lanes of the map.
        points_m: map segments in the scene frame.
        lane_of_piece: index of the lane that each segment belongs to; -1 if it is no lane.
        poses: x, y, heading of the agents in the scene frame.
    """
    graph = lanes.graph
    is_lane = lane_of_piece >= 0
    reach = np.full((len(poses), len(lanes) + 1), NOT_AT_ALL, np.float32)  # the last is for segments that are no lanes
    for row, pose in enumerate(poses):
        own = set(lane_of_piece[is_lane][_under(points_m[is_lane], pose)].tolist())
        reach[row, sorted(graph.reachable(own, graph.successors, graph.beside))] = BY_CHANGING
        reach[row, sorted(graph.reachable(own, graph.successors))] = FOLLOWS
    return reach[:, lane_of_piece]


def _under(points_m: Float[np.ndarray, "S P 2"], pose: Float[np.ndarray, " 3"]) -> Bool[np.ndarray, " S"]:
    """Segments that the agent is on: all aligned ones within `ON_LANE_M`, or else the nearest aligned one."""
    if len(points_m) == 0:
        return np.zeros(0, np.bool_)
    step = np.diff(points_m, axis=1)
    aligned = (
        np.abs(wrap_angle(np.arctan2(step[..., 1], step[..., 0]) - pose[2])) < MODEL_ON_LANE.angle_rad
    )  # [S, P - 1]
    _, offset = project_on_segments(pose[:2], points_m[:, :-1], step)
    distance = np.where(aligned, np.linalg.norm(offset, axis=-1), np.inf).min(axis=1)
    is_on_lane = distance.min() < MODEL_ON_LANE.distance_m
    reach_m = MODEL_ON_LANE.distance_m if is_on_lane else min(MODEL_BESIDE_LANE.distance_m, distance.min())
    return distance <= reach_m
