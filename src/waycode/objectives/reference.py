"""The path that a road user is to follow: the middle of its route, or of the lanes straight ahead."""

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from waycode.driving.path import SPACING_M
from waycode.driving.route import lanes_ahead, path_on
from waycode.objectives.errors import ObjectiveError
from waycode.scene import Scene
from waycode.scene.geometry import project

START_REACH_M = 10.0  # how far from a lane's centre a road user can be and still follow it
PATH_SPACING_M = 2.0  # objectives ask often: fewer segments are faster, and bends are still smooth


@dataclass(frozen=True, kw_only=True)
class Reference:
    """What a road user is to follow, in the scene frame."""

    path_m: Float[np.ndarray, "p 2"]  # one path, along which progress is measured
    lanes: tuple[int, ...]  # all lanes that are as good: those of the route's sections


def reference_of(scene: Scene, agent: int) -> Reference:
    """The way ahead of an agent.

    The ego follows the scene's route if there is one; everybody else, and an ego without a route, the lane that it is
    on and then, at each fork, the successor that leads straightest on.
    """
    if len(scene.map.lanes) == 0:
        raise ObjectiveError(f"scene {scene.id!r} has no lanes to follow, expected a map with lane centrelines")
    tracks, now, route = scene.tracks, scene.current_step, scene.route
    if route is None or len(route.lanes) == 0 or agent != tracks.ego_index:
        scene, route = replace(scene, route=None), None
    position_m = tracks.position_m[agent, now].astype(np.float64)
    heading_rad, speed_mps = float(tracks.heading_rad[agent, now]), float(tracks.speed_mps[agent, now])
    chain = lanes_ahead(scene, position_m=position_m, heading_rad=heading_rad)
    if route is None and (not chain or _offset_m(scene, chain[0], position_m) > START_REACH_M):
        raise ObjectiveError(
            f"no lane of scene {scene.id!r} runs within {START_REACH_M:g} m of track {tracks.ids[agent]!r} "
            "in its direction, expected one to follow"
        )
    path = path_on(scene.map.lanes, chain, position_m=position_m, heading_rad=heading_rad, speed_mps=speed_mps)
    step = round(PATH_SPACING_M / SPACING_M)
    return Reference(
        path_m=np.concatenate([path.points_m[:-1:step], path.points_m[-1:]]),
        lanes=tuple(chain if route is None else route.lanes.tolist()),
    )


def _offset_m(scene: Scene, lane: int, position_m: Float[np.ndarray, " 2"]) -> float:
    return abs(float(project(position_m[None], scene.map.lanes.centrelines[lane].astype(np.float64))[1][0]))
