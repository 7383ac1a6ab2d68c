"""What a scene is, its geometry, and its form on disk.

`waycode.dataset.dataset` and `waycode.dataset.storage` (they need pyarrow) are imported by name; the rest is here.
"""

from waycode.scene.errors import WaycodeError
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
