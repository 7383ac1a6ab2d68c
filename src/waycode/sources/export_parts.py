"""What the exports share: names of files, borders of lanes, and polygons by kind."""

import numpy as np
from jaxtyping import Float

from waycode.dataset.files import safe_file_name
from waycode.scene import Polylines, Scene
from waycode.scene.geometry import directions

DEFAULT_LANE_WIDTH_M = 3.5  # of lanes whose width is not known


def file_name(scene: Scene, number: int) -> str:
    """The name of a scene's file, without suffix.

    Args:
        scene: the scene to write.
        number: of the scene in the export; two ids may give the same safe text.
    """
    return f"{number:05d}-{safe_file_name(scene.id)}"


def lane_borders(scene: Scene, lane: int) -> tuple[Float[np.ndarray, "p 2"], Float[np.ndarray, "p 2"]]:
    """The left and the right border of a lane in the scene frame, half a width from the points of its centreline."""
    lanes = scene.map.lanes
    centre_m = lanes.centrelines[lane].astype(np.float64)
    heading = directions(centre_m)
    half_m = (float(lanes.width_m[lane]) if lanes.width_known[lane] else DEFAULT_LANE_WIDTH_M) / 2
    across_m = half_m * np.stack([-np.sin(heading), np.cos(heading)], axis=-1)
    return centre_m + across_m, centre_m - across_m


def polygons_of(scene: Scene) -> dict[str, Polylines]:
    """The polygons of the map by their names in WOMD's messages."""
    features = scene.map
    return {"crosswalk": features.crosswalks, "speed_bump": features.speed_bumps, "driveway": features.driveways}
