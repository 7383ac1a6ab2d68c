"""Which lanes an agent can reach from its lane.

Shapes do not show this: of two lanes that cross in a junction, only one is a successor of the agent's lane.
"""

import numpy as np
from jaxtyping import Bool, Float, Float32, Int64

from waycode.scene import Lanes
from waycode.scene.frames import wrap_angle
from waycode.scene.geometry import project_on_segments
from waycode.scene.lane_graph import MODEL_BESIDE_LANE, MODEL_ON_LANE

# Reachability of a lane: by following successors, with lane changes too, or not at all.
BY_FOLLOWING, BY_CHANGING, UNREACHABLE = 1.0, 0.5, 0.0


def reachable(
    lanes: Lanes,
    points_m: Float[np.ndarray, "S P 2"],
    lane_of_segment: Int64[np.ndarray, " S"],
    *,
    poses: Float[np.ndarray, "A 3"],
) -> Float32[np.ndarray, "A S"]:
    """Reachability of map segments for agents: `BY_FOLLOWING`, `BY_CHANGING` or `UNREACHABLE`.

    Args:
        lanes: the lanes of the map.
        points_m: map segments in the scene frame.
        lane_of_segment: index of the lane that each segment belongs to; -1 if it is no lane.
        poses: x, y, heading of the agents in the scene frame.
    """
    graph = lanes.graph
    is_lane = lane_of_segment >= 0
    reach = np.full((len(poses), len(lanes) + 1), UNREACHABLE, np.float32)  # the last is for segments that are no lanes
    for row, pose in enumerate(poses):
        own = set(lane_of_segment[is_lane][_is_under(points_m[is_lane], pose)].tolist())
        reach[row, sorted(graph.reachable(own, graph.successors, graph.beside))] = BY_CHANGING
        reach[row, sorted(graph.reachable(own, graph.successors))] = BY_FOLLOWING
    return reach[:, lane_of_segment]


def _is_under(points_m: Float[np.ndarray, "S P 2"], pose: Float[np.ndarray, " 3"]) -> Bool[np.ndarray, " S"]:
    """Which segments the agent is on: all aligned ones within `MODEL_ON_LANE`, or else the nearest aligned one."""
    if len(points_m) == 0:
        return np.zeros(0, np.bool_)
    step = np.diff(points_m, axis=1)
    direction = np.arctan2(step[..., 1], step[..., 0])  # [S, P - 1]
    aligned = np.abs(wrap_angle(direction - pose[2])) < MODEL_ON_LANE.angle_rad
    _, offset = project_on_segments(pose[:2], points_m[:, :-1], step)
    distance = np.where(aligned, np.linalg.norm(offset, axis=-1), np.inf).min(axis=1)
    is_on_lane = distance.min() < MODEL_ON_LANE.distance_m
    reach_m = MODEL_ON_LANE.distance_m if is_on_lane else min(MODEL_BESIDE_LANE.distance_m, distance.min())
    return distance <= reach_m
