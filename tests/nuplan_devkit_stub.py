"""The part of nuplan-devkit's interface that a planner meets, written anew: the devkit is on no package registry.

Modules, names, signatures and what counts as an error are the devkit's (v1.2, its master of 2023); what is inside is
as little as the tests need. The map is that of tests/nuplan_files.py, asked through the devkit's map API.
"""

import abc
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum, IntEnum
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import shapely

import nuplan_files as files


@dataclass(frozen=True)
class TimePoint:
    time_us: int

    def __post_init__(self) -> None:
        assert self.time_us >= 0
        assert isinstance(self.time_us, int)


@dataclass
class Point2D:
    x: float
    y: float


@dataclass
class StateSE2(Point2D):
    heading: float


class StateVector2D:
    def __init__(self, x: float, y: float) -> None:
        self.x, self.y = x, y


class VehicleParameters:
    def __init__(
        self,
        width: float,
        front_length: float,
        rear_length: float,
        cog_position_from_rear_axle: float,
        wheel_base: float,
        vehicle_name: str,
        vehicle_type: str,
        height: float | None = None,
    ) -> None:
        self.width, self.length, self.wheel_base = width, front_length + rear_length, wheel_base
        self.rear_axle_to_center = self.length / 2 - rear_length


def get_pacifica_parameters() -> VehicleParameters:
    return VehicleParameters(2.297, 4.049, 1.127, 1.67, 3.089, "pacifica", "gen1", 1.777)


class OrientedBox:
    def __init__(self, center: StateSE2, length: float, width: float, height: float) -> None:
        self.center, self.length, self.width, self.height = center, length, width, height


@dataclass
class CarFootprint:
    rear_axle: StateSE2
    vehicle_parameters: VehicleParameters


@dataclass
class DynamicCarState:
    rear_axle_velocity_2d: StateVector2D
    rear_axle_acceleration_2d: StateVector2D
    angular_velocity: float
    angular_acceleration: float


@dataclass
class EgoState:
    car_footprint: CarFootprint
    dynamic_car_state: DynamicCarState
    tire_steering_angle: float
    is_in_auto_mode: bool
    time_point: TimePoint

    @classmethod
    def build_from_rear_axle(
        cls,
        rear_axle_pose: StateSE2,
        rear_axle_velocity_2d: StateVector2D,
        rear_axle_acceleration_2d: StateVector2D,
        tire_steering_angle: float,
        time_point: TimePoint,
        vehicle_parameters: VehicleParameters,
        is_in_auto_mode: bool = True,
        angular_vel: float = 0.0,
        angular_accel: float = 0.0,
    ) -> "EgoState":
        moving = DynamicCarState(rear_axle_velocity_2d, rear_axle_acceleration_2d, angular_vel, angular_accel)
        footprint = CarFootprint(rear_axle_pose, vehicle_parameters)
        return cls(footprint, moving, tire_steering_angle, is_in_auto_mode, time_point)

    @property
    def rear_axle(self) -> StateSE2:
        return self.car_footprint.rear_axle

    @property
    def time_us(self) -> int:
        return self.time_point.time_us


class TrackedObjectType(Enum):
    fullname: str

    VEHICLE = 0, "vehicle"
    PEDESTRIAN = 1, "pedestrian"
    BICYCLE = 2, "bicycle"
    TRAFFIC_CONE = 3, "traffic_cone"
    BARRIER = 4, "barrier"
    CZONE_SIGN = 5, "czone_sign"
    GENERIC_OBJECT = 6, "generic_object"
    EGO = 7, "ego"

    def __new__(cls, value: int, name: str) -> "TrackedObjectType":
        member = object.__new__(cls)
        member._value_, member.fullname = value, name
        return member


@dataclass(frozen=True)
class SceneObjectMetadata:
    timestamp_us: int
    token: str
    track_id: int | None
    track_token: str | None


class SceneObject:
    def __init__(
        self, tracked_object_type: TrackedObjectType, oriented_box: OrientedBox, metadata: SceneObjectMetadata
    ) -> None:
        self.tracked_object_type, self.box, self.metadata = tracked_object_type, oriented_box, metadata
        self.center, self.token, self.track_token = oriented_box.center, metadata.token, metadata.track_token


class Agent(SceneObject):
    def __init__(
        self,
        tracked_object_type: TrackedObjectType,
        oriented_box: OrientedBox,
        velocity: StateVector2D,
        metadata: SceneObjectMetadata,
    ) -> None:
        super().__init__(tracked_object_type, oriented_box, metadata)
        self.velocity = velocity  # in the world


class TrackedObjects:
    def __init__(self, tracked_objects: list[SceneObject] | None = None) -> None:
        self.tracked_objects = tracked_objects or []


class Observation(abc.ABC):  # noqa: B024
    pass


@dataclass
class DetectionsTracks(Observation):
    tracked_objects: TrackedObjects


class SemanticMapLayer(IntEnum):
    LANE = 0
    INTERSECTION = 1
    STOP_LINE = 2
    TURN_STOP = 3
    CROSSWALK = 4
    DRIVABLE_AREA = 5
    YIELD = 6
    TRAFFIC_LIGHT = 7
    STOP_SIGN = 8
    EXTENDED_PUDO = 9
    SPEED_BUMP = 10
    LANE_CONNECTOR = 11
    BASELINE_PATHS = 12
    BOUNDARIES = 13
    WALKWAYS = 14
    CARPARK_AREA = 15
    PUDO = 16
    ROADBLOCK = 17
    ROADBLOCK_CONNECTOR = 18


class StopLineType(IntEnum):
    PED_CROSSING = 0
    STOP_SIGN = 1
    TRAFFIC_LIGHT = 2
    TURN_STOP = 3
    YIELD = 4
    UNKNOWN = 5


class TrafficLightStatusType(IntEnum):
    GREEN = 0
    YELLOW = 1
    RED = 2
    UNKNOWN = 3


@dataclass
class TrafficLightStatusData:
    status: TrafficLightStatusType
    lane_connector_id: int
    timestamp: int


class PolylineMapObject:
    def __init__(self, path_id: Any, line: Any) -> None:
        self.id, self.linestring = str(path_id), in_world(line)


class PolygonMapObject:
    def __init__(self, object_id: Any, polygon: Any) -> None:
        self.id, self.polygon = str(object_id), in_world(polygon)


class StopLine(PolygonMapObject):
    def __init__(self, stop_line_id: Any, polygon: Any, stop_line_type: int) -> None:
        super().__init__(stop_line_id, polygon)
        self.stop_line_type = stop_line_type


class Lane:
    def __init__(self, lane_id: str) -> None:
        self.id = lane_id
        self._group, self.index, line = files.LANES[int(lane_id)]
        self.baseline_path = PolylineMapObject(0, line)
        self.speed_limit_mps = None if lane_id == "12" else files.SPEED_LIMIT_MPS

    @property
    def left_boundary(self) -> PolylineMapObject:
        return boundary(files.LANE_SIDES[int(self.id)][0])

    @property
    def right_boundary(self) -> PolylineMapObject:
        return boundary(files.LANE_SIDES[int(self.id)][1])

    def get_roadblock_id(self) -> str:
        return str(self._group)


class LaneConnector:
    def __init__(self, lane_connector_id: str) -> None:
        self.id = lane_connector_id
        before, after, self._group, line = files.CONNECTORS[int(lane_connector_id)]
        self.incoming_edges, self.outgoing_edges = [Lane(str(before))], [Lane(str(after))]
        self.baseline_path = PolylineMapObject(0, line)
        self.speed_limit_mps = files.SPEED_LIMIT_MPS if lane_connector_id == "51" else None

    @property
    def left_boundary(self) -> PolylineMapObject:
        assert self.id == "51", "Could not find the desired key"  # the others have no polygon
        return boundary(1100)

    @property
    def right_boundary(self) -> PolylineMapObject:
        assert self.id == "51", "Could not find the desired key"
        return boundary(1101)

    def get_roadblock_id(self) -> str:
        return str(self._group)


class JunctionMap:
    """The devkit's map API over the junction of tests/nuplan_files.py; as there, drivable areas cannot be asked for."""

    map_name = files.LOCATION

    def __init__(self) -> None:
        reach, half = files.REACH_M, files.HALF_M
        arms = [(-reach, -7, -half, 7), (half, -7, reach, 7), (-3.5, -reach, 3.5, -half), (-3.5, half, 3.5, reach)]
        self._objects: dict[SemanticMapLayer, list[Any]] = {
            SemanticMapLayer.LANE: [Lane(str(fid)) for fid in files.LANES],
            SemanticMapLayer.LANE_CONNECTOR: [LaneConnector(str(fid)) for fid in files.CONNECTORS],
            SemanticMapLayer.ROADBLOCK: [PolygonMapObject(i, shapely.box(*arm)) for i, arm in enumerate(arms)],
            SemanticMapLayer.ROADBLOCK_CONNECTOR: [],
            SemanticMapLayer.INTERSECTION: [PolygonMapObject(1, shapely.box(-half, -half, half, half))],
            SemanticMapLayer.CARPARK_AREA: [PolygonMapObject(1, files.CAR_PARK)],
            SemanticMapLayer.CROSSWALK: [PolygonMapObject(1, shapely.box(-17, -7, -14, 7))],
            SemanticMapLayer.STOP_LINE: [
                StopLine(1, files.STOP_SIGN, 1),
                StopLine(2, shapely.box(-14, -7, -12, 0), 2),
            ],
        }

    def get_available_map_objects(self) -> list[SemanticMapLayer]:
        return list(self._objects)

    def get_proximal_map_objects(
        self, point: Point2D, radius: float, layers: list[SemanticMapLayer]
    ) -> dict[SemanticMapLayer, list[Any]]:
        assert not [layer for layer in layers if layer not in self._objects]
        patch = shapely.box(point.x - radius, point.y - radius, point.x + radius, point.y + radius)
        return {layer: [item for item in self._objects[layer] if _shape(item).intersects(patch)] for layer in layers}


def _shape(item: Any) -> Any:
    return item.polygon if isinstance(item, PolygonMapObject) else item.baseline_path.linestring


def in_world(shape: Any) -> Any:
    return shapely.transform(shape, lambda points: points + files.CENTRE_M)


def boundary(fid: int) -> PolylineMapObject:
    return PolylineMapObject(fid, files.BOUNDARIES[fid][1])


@dataclass(frozen=True)
class SimulationIteration:
    time_point: TimePoint
    index: int


class SimulationHistoryBuffer:
    def __init__(
        self,
        ego_state_buffer: deque[EgoState],
        observations_buffer: deque[Observation],
        sample_interval: float | None = None,
    ) -> None:
        assert len(ego_state_buffer) == len(observations_buffer) > 0
        self._ego_states, self._observations = ego_state_buffer, observations_buffer

    @property
    def ego_states(self) -> list[EgoState]:
        return list(self._ego_states)

    @property
    def observations(self) -> list[Observation]:
        return list(self._observations)


@dataclass(frozen=True)
class PlannerInitialization:
    route_roadblock_ids: list[str]
    mission_goal: StateSE2
    map_api: Any


@dataclass(frozen=True)
class PlannerInput:
    iteration: SimulationIteration
    history: SimulationHistoryBuffer
    traffic_light_data: list[TrafficLightStatusData] | None = None


class AbstractTrajectory(abc.ABC):  # noqa: B024
    pass


class InterpolatedTrajectory(AbstractTrajectory):
    def __init__(self, trajectory: Sequence[EgoState]) -> None:
        if len(trajectory) <= 1:
            raise ValueError(f"There is not enough states in trajectory: {len(trajectory)}!")
        assert (np.diff([state.time_us for state in trajectory]) > 0).all()
        self._trajectory = list(trajectory)

    def get_sampled_trajectory(self) -> list[EgoState]:
        return self._trajectory


class AbstractPlanner(abc.ABC):
    requires_scenario: bool = False

    def __new__(cls, *args: Any, **kwargs: Any) -> "AbstractPlanner":
        planner = super().__new__(cls)
        planner._compute_trajectory_runtimes = []
        return planner

    _compute_trajectory_runtimes: list[float]

    @abc.abstractmethod
    def name(self) -> str: ...

    @abc.abstractmethod
    def initialize(self, initialization: PlannerInitialization) -> None: ...

    @abc.abstractmethod
    def observation_type(self) -> type[Observation]: ...

    @abc.abstractmethod
    def compute_planner_trajectory(self, current_input: PlannerInput) -> AbstractTrajectory: ...

    def compute_trajectory(self, current_input: PlannerInput) -> AbstractTrajectory:
        return self.compute_planner_trajectory(current_input)


MODULES: dict[str, tuple[Any, ...]] = {
    "common.actor_state.agent": (Agent,),
    "common.actor_state.ego_state": (EgoState,),
    "common.actor_state.oriented_box": (OrientedBox,),
    "common.actor_state.scene_object": (SceneObject, SceneObjectMetadata),
    "common.actor_state.state_representation": (Point2D, StateSE2, StateVector2D, TimePoint),
    "common.actor_state.tracked_objects": (TrackedObjects,),
    "common.actor_state.tracked_objects_types": (TrackedObjectType,),
    "common.actor_state.vehicle_parameters": (VehicleParameters, get_pacifica_parameters),
    "common.maps.maps_datatypes": (
        SemanticMapLayer,
        StopLineType,
        TrafficLightStatusData,
        TrafficLightStatusType,
    ),
    "planning.simulation.history.simulation_history_buffer": (SimulationHistoryBuffer,),
    "planning.simulation.observation.observation_type": (DetectionsTracks, Observation),
    "planning.simulation.planner.abstract_planner": (AbstractPlanner, PlannerInitialization, PlannerInput),
    "planning.simulation.simulation_time_controller.simulation_iteration": (SimulationIteration,),
    "planning.simulation.trajectory.abstract_trajectory": (AbstractTrajectory,),
    "planning.simulation.trajectory.interpolated_trajectory": (InterpolatedTrajectory,),
}
OURS = ("waycode.simulation.nuplan.map_api", "waycode.simulation.nuplan.planner")  # what imports the devkit


@contextmanager
def devkit(*, installed: bool = True) -> Iterator[None]:
    """Lets Python find the devkit for a while, or lets it not find one, whether or not there is one."""
    with pytest.MonkeyPatch.context() as patch:
        _forget_ours()
        if installed:
            for name, members in MODULES.items():
                for parent in _with_parents(f"nuplan.{name}"):
                    if not isinstance(sys.modules.get(parent), ModuleType):
                        patch.setitem(sys.modules, parent, ModuleType(parent))
                for member in members:
                    patch.setattr(sys.modules[f"nuplan.{name}"], member.__name__, member, raising=False)
        else:
            patch.setitem(sys.modules, "nuplan", None)
        yield
        _forget_ours()


def _forget_ours() -> None:
    for name in OURS:
        sys.modules.pop(name, None)


def _with_parents(name: str) -> Iterator[str]:
    parts = name.split(".")
    return (".".join(parts[: i + 1]) for i in range(len(parts)))
