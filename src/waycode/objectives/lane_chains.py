"""Which lanes are one way through the map: those that lead to each other without a lane change."""

import numpy as np
from jaxtyping import Bool
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import dijkstra

from waycode.scene import Lanes
from waycode.scene.geometry import arclengths

CONTINUES_WITHIN_M = 30.0  # how far ahead: more than is driven between two looks


def lanes_that_continue(lanes: Lanes) -> Bool[np.ndarray, "L L"]:
    """Which lanes lead to each other without a lane change, soon, in either direction; each leads to itself.

    Without a lane graph, each to itself only: then the geometry alone decides.
    """
    count = len(lanes)
    length = np.array([max(float(arclengths(line)[-1]), 0.01) for line in lanes.centrelines.as_list()])
    before, after = lanes.successors.T
    # way[i, j]: length of the lanes from i on, with i, up to the start of j
    graph = csr_matrix((length[before], (before, after)), shape=(count, count))
    way = dijkstra(graph, limit=CONTINUES_WITHIN_M + float(length.max(initial=0.0)))
    reached = way - length[:, None] <= CONTINUES_WITHIN_M
    return np.asarray(reached | reached.T | np.eye(count, dtype=np.bool_))
