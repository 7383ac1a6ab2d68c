"""Converts nuPlan's map API around a point to the `CityMap` that our reader makes of a GeoPackage.

The API lacks lane types (bicycle lanes become streets), types of boundaries, speed bumps, and drivable areas other
than roadblocks, intersections and car parks.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from nuplan.common.actor_state.state_representation import Point2D
from nuplan.common.maps.maps_datatypes import SemanticMapLayer, StopLineType

from waycode.sources.nuplan.crop import DIVIDER, ROADSIDE
from waycode.sources.nuplan.maps import CityMap, MapLane, MapStopSign

_LANE_LAYERS = (SemanticMapLayer.LANE, SemanticMapLayer.LANE_CONNECTOR)
_DRIVABLE_LAYERS = (
    SemanticMapLayer.ROADBLOCK,
    SemanticMapLayer.ROADBLOCK_CONNECTOR,
    SemanticMapLayer.INTERSECTION,
    SemanticMapLayer.CARPARK_AREA,
)
_LAYERS = (*_LANE_LAYERS, *_DRIVABLE_LAYERS, SemanticMapLayer.CROSSWALK, SemanticMapLayer.STOP_LINE)


def city_around(map_api: Any, centre_m: Float[np.ndarray, " 2"], *, radius_m: float) -> CityMap:
    """The map within a square of half-width `radius_m` around a point in world coordinates."""
    offered = set(map_api.get_available_map_objects())
    found = map_api.get_proximal_map_objects(
        Point2D(float(centre_m[0]), float(centre_m[1])), radius_m, [layer for layer in _LAYERS if layer in offered]
    )
    lanes = [*map(_lane, found.get(SemanticMapLayer.LANE, ()))]
    connectors = [*map(_connector, found.get(SemanticMapLayer.LANE_CONNECTOR, ()))]
    objects = [item for layer in _LANE_LAYERS for item in found.get(layer, ())]
    stops = found.get(SemanticMapLayer.STOP_LINE, ())
    return CityMap.of(
        [lane for lane in (*lanes, *connectors) if lane.baseline.length > 0],
        _boundaries(objects, shared=_shared(lanes)),
        drivable=[item.polygon for layer in _DRIVABLE_LAYERS for item in found.get(layer, ())],
        crosswalks=[item.polygon for item in found.get(SemanticMapLayer.CROSSWALK, ())],
        stop_signs=[
            MapStopSign(stop.polygon, (), ()) for stop in stops if int(stop.stop_line_type) == StopLineType.STOP_SIGN
        ],
    )


def _lane(lane: Any) -> MapLane:
    return MapLane(fid=_number(lane.id), is_connector=False, index=int(lane.index), **_shared_fields(lane))


def _connector(connector: Any) -> MapLane:
    return MapLane(
        fid=_number(connector.id),
        is_connector=True,
        predecessor=next((_number(lane.id) for lane in connector.incoming_edges), None),
        successor=next((_number(lane.id) for lane in connector.outgoing_edges), None),
        **_shared_fields(connector),
    )


def _shared_fields(lane: Any) -> dict[str, Any]:
    """The fields that lanes and connectors share."""
    limit = lane.speed_limit_mps
    sides = {side: _boundary(lane, side) for side in ("left_boundary", "right_boundary")}
    return {
        "baseline": lane.baseline_path.linestring,
        "group": _number(lane.get_roadblock_id()),
        "speed_limit_mps": float(limit) if limit is not None and limit > 0 else None,
        **{side: None if line is None else _number(line.id) for side, line in sides.items()},
    }


def _boundary(lane: Any, side: str) -> Any:
    """A lane's boundary. None for connectors without one, for which the API raises one of these errors."""
    try:
        return getattr(lane, side)
    except (AssertionError, KeyError, ValueError):
        return None


def _boundaries(lanes: Sequence[Any], *, shared: set[int]) -> Mapping[int, tuple[Any, int]]:
    """Boundary lines by fid, as dividers if two lanes of a group share them, else as roadsides."""
    lines = (_boundary(lane, side) for lane in lanes for side in ("left_boundary", "right_boundary"))
    numbered = {_number(line.id): line.linestring for line in lines if line is not None}
    return {fid: (line, DIVIDER if fid in shared else ROADSIDE) for fid, line in numbered.items()}


def _shared(lanes: Sequence[MapLane]) -> set[int]:
    """Fids of boundaries that are the left side of a lane and the right side of another in the same group."""

    def sides(name: str) -> Iterator[tuple[int | None, int]]:
        return ((lane.group, fid) for lane in lanes if (fid := getattr(lane, name)) is not None)

    return {fid for _, fid in set(sides("left_boundary")) & set(sides("right_boundary"))}


def _number(identifier: Any) -> int:
    """Ids are row numbers as text; columns with gaps turn them into the text of a float."""
    return int(float(identifier))
