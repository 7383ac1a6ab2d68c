"""nuPlan's map API around a place, as the city map that our reader of nuPlan's files makes of a GeoPackage.

What the API does not say: the lane's kind (bicycle lanes count as streets), how a boundary is drawn, speed bumps, and
drivable areas other than road blocks, intersections and car parks.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from nuplan.common.actor_state.state_representation import Point2D
from nuplan.common.maps.maps_datatypes import SemanticMapLayer, StopLineType

from waycode.scene import LaneType
from waycode.sources.nuplan.crop import DIVIDER, ROADSIDE
from waycode.sources.nuplan.maps import CityMap, MapLane, StopSign

LANE_LAYERS = (SemanticMapLayer.LANE, SemanticMapLayer.LANE_CONNECTOR)
DRIVABLE_LAYERS = (
    SemanticMapLayer.ROADBLOCK,
    SemanticMapLayer.ROADBLOCK_CONNECTOR,
    SemanticMapLayer.INTERSECTION,
    SemanticMapLayer.CARPARK_AREA,
)
LAYERS = (*LANE_LAYERS, *DRIVABLE_LAYERS, SemanticMapLayer.CROSSWALK, SemanticMapLayer.STOP_LINE)


def city_around(map_api: Any, centre_m: Float[np.ndarray, " 2"], *, radius_m: float) -> CityMap:
    """What the map API knows of a square around a point of the world."""
    offered = set(map_api.get_available_map_objects())
    found = map_api.get_proximal_map_objects(
        Point2D(float(centre_m[0]), float(centre_m[1])), radius_m, [layer for layer in LAYERS if layer in offered]
    )
    lanes = [*map(_lane, found.get(SemanticMapLayer.LANE, ()))]
    connectors = [*map(_connector, found.get(SemanticMapLayer.LANE_CONNECTOR, ()))]
    objects = [item for layer in LANE_LAYERS for item in found.get(layer, ())]
    stops = found.get(SemanticMapLayer.STOP_LINE, ())
    return CityMap.of(
        [lane for lane in (*lanes, *connectors) if lane.baseline.length > 0],
        _boundaries(objects, shared=_shared(lanes)),
        drivable=[item.polygon for layer in DRIVABLE_LAYERS for item in found.get(layer, ())],
        crosswalks=[item.polygon for item in found.get(SemanticMapLayer.CROSSWALK, ())],
        stop_signs=[
            StopSign(stop.polygon, (), ()) for stop in stops if int(stop.stop_line_type) == StopLineType.STOP_SIGN
        ],
    )


def _lane(lane: Any) -> MapLane:
    return MapLane(
        fid=_number(lane.id),
        is_connector=False,
        index=int(lane.index),
        leaves=None,
        leads_to=None,
        **_of_any_lane(lane),
    )


def _connector(connector: Any) -> MapLane:
    return MapLane(
        fid=_number(connector.id),
        is_connector=True,
        index=None,
        leaves=next((_number(lane.id) for lane in connector.incoming_edges), None),
        leads_to=next((_number(lane.id) for lane in connector.outgoing_edges), None),
        **_of_any_lane(connector),
    )


def _of_any_lane(lane: Any) -> dict[str, Any]:
    """What lanes and connectors have in common."""
    limit = lane.speed_limit_mps
    sides = {side: _boundary(lane, side) for side in ("left_boundary", "right_boundary")}
    return {
        "baseline": lane.baseline_path.linestring,
        "group": _number(lane.get_roadblock_id()),
        "type": LaneType.STREET,
        "speed_limit_mps": float(limit) if limit is not None and limit > 0 else None,
        **{side: None if line is None else _number(line.id) for side, line in sides.items()},
    }


def _boundary(lane: Any, side: str) -> Any:
    """A lane's boundary; None for connectors of which the map has none (the API then fails in one of these ways)."""
    try:
        return getattr(lane, side)
    except (AssertionError, KeyError, ValueError):
        return None


def _boundaries(lanes: Sequence[Any], *, shared: set[int]) -> Mapping[int, tuple[Any, int]]:
    """Lines of boundaries, and of which kind they are: between lanes of one direction, or else beside the road."""
    lines = (_boundary(lane, side) for lane in lanes for side in ("left_boundary", "right_boundary"))
    numbered = {_number(line.id): line.linestring for line in lines if line is not None}
    return {fid: (line, DIVIDER if fid in shared else ROADSIDE) for fid, line in numbered.items()}


def _shared(lanes: Sequence[MapLane]) -> set[int]:
    """Boundaries that are the left one of a lane and the right one of another in the same group."""

    def sides(name: str) -> Iterator[tuple[int | None, int]]:
        return ((lane.group, fid) for lane in lanes if (fid := getattr(lane, name)) is not None)

    return {fid for _, fid in set(sides("left_boundary")) & set(sides("right_boundary"))}


def _number(identifier: Any) -> int:
    """Map objects are named by their row's number, as text; some columns with gaps make it a float's text."""
    return int(float(identifier))
