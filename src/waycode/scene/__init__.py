"""The types of a scene, and functions on them: geometry, kinematics, the lane graph.

Scenes on disk are in `waycode.dataset`. `Lanes.graph` is the lane graph (`waycode.scene.lane_graph`).
"""

from waycode.scene.types import (
    EdgeType,
    GraphOrigin,
    Lanes,
    LaneType,
    LineType,
    MapFeatures,
    Polylines,
    Route,
    Scene,
    Signals,
    SignalState,
    StopSigns,
    Tracks,
    TrackType,
    WaycodeError,
    as_pairs,
    no_pairs,
)
from waycode.scene.validation import InvalidScene, faults_of, validate

__all__ = [
    "EdgeType",
    "GraphOrigin",
    "InvalidScene",
    "LaneType",
    "Lanes",
    "LineType",
    "MapFeatures",
    "Polylines",
    "Route",
    "Scene",
    "SignalState",
    "Signals",
    "StopSigns",
    "TrackType",
    "Tracks",
    "WaycodeError",
    "as_pairs",
    "faults_of",
    "no_pairs",
    "validate",
]
