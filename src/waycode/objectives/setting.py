"""`Setting`: the agent that is planned for and its surroundings, as objectives see them."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, TypeVar

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from waycode.driving.forecast import Forecast, constant_velocity_forecast, lane_forecast, recorded_forecast
from waycode.driving.path import SPACING_M
from waycode.driving.road import Road
from waycode.driving.route import lanes_ahead, path_on
from waycode.driving.vehicle import Vehicle, VehicleState, recorded_state
from waycode.scene import GraphOrigin, Scene, WaycodeError
from waycode.scene.geometry import project
from waycode.scene.geometry_torch import PolylineSegments

# The assumed motion of the other road users: at their current velocity or along their lanes, which a planner can know,
# or as recorded.
Others = Literal["constant-velocity", "lanes", "recorded"]
_PREDICTIONS: dict[str, Callable[..., Forecast[np.ndarray]]] = {
    "constant-velocity": constant_velocity_forecast,
    "lanes": lane_forecast,
    "recorded": recorded_forecast,
}

_FALLBACK_SPEED_MPS = 15.0  # target speed where the map has no limit; PDM-Closed's value
_MAX_START_OFFSET_M = 10.0  # an agent farther from every lane follows none
_PATH_SPACING_M = 2.0  # objectives project often: coarse segments are faster, and bends are still smooth


_Result = TypeVar("_Result")


class ObjectiveError(WaycodeError, ValueError):
    """An objective that does not fit the scene or the candidates, or that cannot be parsed."""


class SharedResults:
    """A cache of intermediate results that several objectives need."""

    def shared(self, compute: Callable[..., _Result], *arguments: Hashable) -> _Result:
        """`compute(self, *arguments)`, computed at the first call and cached."""
        key = (compute, arguments)
        if key not in self._results:
            self._results[key] = compute(self, *arguments)
        return self._results[key]

    @cached_property
    def _results(self) -> dict[Any, Any]:
        return {}


@dataclass(frozen=True, kw_only=True, eq=False)
class Setting(SharedResults):
    """One agent of a scene at its current step, and its surroundings. Geometry is computed when first used."""

    scene: Scene
    agent: int  # index of the track
    dtype: torch.dtype = torch.float32  # of the tensors below
    device: torch.device | str = "cpu"  # of the tensors below; that of the model
    known_vehicle: Vehicle | None = None  # the agent's exact dimensions; by default estimated from its track
    known_state: VehicleState | None = None  # the agent's exact state; by default its track, which is float32
    known_road: Road | None = None  # the agent's road, if a caller keeps it for a whole scenario; by default computed
    known_forecast: Forecast[np.ndarray] | None = None  # of the others, for the driving terms; by default along lanes
    known_past: tuple[VehicleState, ...] | None = (
        None  # the agent since its drive began, at most `PAST_STATES` before now
    )

    def __post_init__(self) -> None:
        tracks, now = self.scene.tracks, self.scene.current_step
        if not 0 <= self.agent < len(tracks):
            raise ObjectiveError(f"scene {self.scene.id!r} has no track {self.agent}: expected 0 to {len(tracks) - 1}")
        if not tracks.valid[self.agent, now]:
            raise ObjectiveError(
                f"track {self.agent} of scene {self.scene.id!r} is not observed at the current step ({now}): "
                f"available are {np.flatnonzero(tracks.valid[:, now]).tolist()}"
            )

    @property
    def agent_id(self) -> str:
        return self.scene.tracks.ids[self.agent]

    @cached_property
    def start_m(self) -> Float[Tensor, "2"]:
        """Position of the agent at the current step (centre of its box)."""
        return self._tensor(self.scene.tracks.position_m[self.agent, self.scene.current_step])

    @property
    def start_heading_rad(self) -> float:
        return float(self.scene.tracks.heading_rad[self.agent, self.scene.current_step])

    @property
    def start_speed_mps(self) -> float:
        return float(self.scene.tracks.speed_mps[self.agent, self.scene.current_step])

    @property
    def length_m(self) -> float:
        return float(self.scene.tracks.length_m[self.agent])

    @property
    def width_m(self) -> float:
        return float(self.scene.tracks.width_m[self.agent])

    @cached_property
    def vehicle(self) -> Vehicle:
        """The agent's dimensions, with its axles."""
        return self.known_vehicle or Vehicle.of_size(length_m=self.length_m, width_m=self.width_m)

    @cached_property
    def state(self) -> VehicleState:
        """The agent as a vehicle at the current step."""
        return self.known_state or recorded_state(self.scene, self.agent, vehicle=self.vehicle)

    @cached_property
    def road(self) -> Road:
        """The agent's route with target speeds and stop lines, and the drivable area."""
        if self.known_road is not None:
            return self.known_road
        return Road.ahead_of(self.scene, self.state, vehicle=self.vehicle, fallback_mps=_FALLBACK_SPEED_MPS)

    @cached_property
    def lanes(self) -> PolylineSegments:
        """The lane centrelines; `line` is the index of the lane."""
        return self._segments(self.scene.map.lanes.centrelines.as_list())

    @cached_property
    def own_lane(self) -> int | None:
        """The lane that the agent is on, in its direction; None off the lanes and on a map without a lane graph."""
        lanes = self.scene.map.lanes
        if len(lanes) == 0 or lanes.graph_origin is GraphOrigin.ABSENT:
            return None
        return lanes.graph.nearest_lane(self.start_m.double().cpu().numpy(), self.start_heading_rad)

    @cached_property
    def lane_continues(self) -> Bool[Tensor, "L L"]:
        """Which lanes lead to each other without a lane change; see `LaneGraph.continuing`."""
        return torch.tensor(self.scene.map.lanes.graph.continuing(), device=self.device)

    @cached_property
    def road_edges(self) -> PolylineSegments:
        return self._segments(self.scene.map.road_edges.as_list())

    @cached_property
    def route_path(self) -> PolylineSegments:
        """The path along which progress is measured."""
        return self._segments([self._route[0]])

    @cached_property
    def route_lanes(self) -> PolylineSegments:
        """That path, and all lanes that follow the route equally well: those of the route's sections."""
        path_m, lanes = self._route
        return self._segments([path_m, *(self.scene.map.lanes.centrelines[lane] for lane in lanes)])

    @cached_property
    def _route(self) -> tuple[Float[np.ndarray, "p 2"], list[int]]:
        """The path ahead of the agent, and the lanes of its route.

        The ego follows the scene's route if there is one. All other agents, and an ego without a route, follow their
        lane and at each fork the straightest successor.
        """
        scene, tracks, now, route = self.scene, self.scene.tracks, self.scene.current_step, self.scene.route
        if len(scene.map.lanes) == 0:
            raise ObjectiveError(f"scene {scene.id!r} has no lanes to follow, expected a map with lane centrelines")
        if route is None or len(route.lanes) == 0 or self.agent != tracks.ego_index:
            scene, route = replace(scene, route=None), None
        position_m = tracks.position_m[self.agent, now].astype(np.float64)
        chain = lanes_ahead(scene, position_m=position_m, heading_rad=self.start_heading_rad)
        lanes = scene.map.lanes
        if route is None:
            first = lanes.centrelines[chain[0]].astype(np.float64) if chain else None
            if first is None or abs(float(project(position_m[None], first)[1][0])) > _MAX_START_OFFSET_M:
                raise ObjectiveError(
                    f"no lane of scene {scene.id!r} runs within {_MAX_START_OFFSET_M:g} m of track {self.agent_id!r} "
                    "in its direction, expected one to follow"
                )
        path = path_on(
            lanes, chain, position_m=position_m, heading_rad=self.start_heading_rad, speed_mps=self.start_speed_mps
        )
        step = round(_PATH_SPACING_M / SPACING_M)
        points_m = np.concatenate([path.points_m[:-1:step], path.points_m[-1:]])
        return points_m, (chain if route is None else route.lanes.tolist())

    @cached_property
    def recorded_future(self) -> tuple[Float[Tensor, "F 2"], Bool[Tensor, " F"]]:
        """The agent's own recorded positions after the current step, and whether each was observed."""
        tracks, after = self.scene.tracks, self.scene.current_step + 1
        valid = torch.tensor(tracks.valid[self.agent, after:], device=self.device)
        return self._tensor(tracks.position_m[self.agent, after:]), valid

    def others(self, motion: Others, *, num_steps: int) -> Forecast[Tensor]:
        """The other road users as tensors over the T steps after the current one.

        Args:
            motion: "constant-velocity": all road users observed at the current step keep their velocity. "lanes":
                vehicles and cyclists keep their speed along their lanes. "recorded": all road users, as recorded;
                valid where observed.
            num_steps: T.
        """
        return self.shared(Setting._others, motion, num_steps)

    def _others(self, motion: Others, num_steps: int) -> Forecast[Tensor]:
        others = _PREDICTIONS[motion](self.scene, self.agent, num_steps=num_steps)
        return Forecast(
            track=torch.tensor(others.track, device=self.device),
            types=torch.tensor(others.types, device=self.device),
            position_m=self._tensor(others.position_m[:, 1:]),
            heading_rad=self._tensor(others.heading_rad[:, 1:]),
            velocity_mps=self._tensor(others.velocity_mps[:, 1:]),
            valid=torch.tensor(others.valid[:, 1:], device=self.device),
            length_m=self._tensor(others.length_m),
            width_m=self._tensor(others.width_m),
        )

    def _segments(self, polylines: list[np.ndarray]) -> PolylineSegments:
        return PolylineSegments.of(polylines, dtype=self.dtype, device=self.device)

    def _tensor(self, values: np.ndarray) -> Tensor:
        return torch.tensor(values, dtype=self.dtype, device=self.device)
