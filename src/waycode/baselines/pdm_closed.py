"""PDM-Closed (Dauner et al., 2023): simulates fifteen IDM proposals along the route, scores them, drives the best.

The default configuration is the original (tuplan_garage, b51d5d0); `PDM_ADAPTED` has our deviations, each of which is
an option of `PdmConfig`. Differences without an option: lanes are strips of their mean width (`LanePolygons`), car
parks are not known, on maps without drivable areas the road ends at its edges, a route that does not lead to the ego is
not mended, and the plan has the proposals' 4 s, not 8 s.

Score = no at-fault collision x drivable area x driving direction x (5 progress + 5 TTC + 2 comfort) / 12.
Axes: K proposals, S samples (0 is now), J others, F >= S + 9 samples of the forecast.
"""

from dataclasses import dataclass, field, replace

import numpy as np
import shapely
from jaxtyping import Bool, Float
from scipy.signal import savgol_filter

from waycode.baselines.idm import idm_proposals
from waycode.baselines.pdm_proposals import Obstacles, corridor_proposals, forecast_along_heading
from waycode.baselines.pdm_route import PdmRoute, Places
from waycode.driving import (
    Forecast,
    IdmConfig,
    LqrTracker,
    Observation,
    Road,
    Tracker,
    Trajectory,
    Vehicle,
    constant_velocity_forecast,
)
from waycode.driving.collisions import (
    TTC_LOOKS,
    TTC_STOPPED_MPS,
    bearing,
    box_overlaps,
    classify_collisions,
    front_overlaps,
    is_at_fault,
    is_relevant_for_ttc,
)
from waycode.driving.forecast import forecast_corners_m
from waycode.driving.road_surface import OUTSIDE_TOLERANCE_M
from waycode.driving.trajectory import straight_trajectory
from waycode.scene import TrackType
from waycode.scene.geometry import forward
from waycode.scene.kinematics import ACCELERATION_WINDOW, YAW_RATE_WINDOW, Motion, motion, within_comfort

_PROGRESS_WEIGHT, _TTC_WEIGHT, _COMFORT_WEIGHT = 5.0, 5.0, 2.0
_PROGRESS_DECIMALS = 8  # the first of equal proposals is driven: finer differences are rounding, in world coordinates
_MIN_PROGRESS_M = 0.1  # if no proposal gets farther, all count as equal
_ONCOMING_M, _FAR_ONCOMING_M = 2.0, 6.0  # driven beside the route's lane: half the score, none
_BUMPER_DEPTH_M = 1e-3  # the original tests the front edge, a line
_STANDING_MPS = 0.2  # the emergency brake has another law up to this speed
_BRAKING_BOUNDS = (-4.05, 2.40)  # of the emergency brake's correction, m/s
_EMERGENCY_HORIZON_S = 8.0


@dataclass(frozen=True, kw_only=True)
class PdmConfig:
    """PDM-Closed's parameters."""

    offsets_m: tuple[float, ...] = (0.0, -1.0, 1.0)  # lateral offsets from the route, left positive
    speed_shares: tuple[float, ...] = (0.2, 0.4, 0.6, 0.8, 1.0)  # of the road's target speed
    horizon_s: float = 4.0  # duration of the proposals
    idm: IdmConfig = field(
        default_factory=lambda: IdmConfig(
            acceleration_mps2=1.5, braking_mps2=3.0, fallback_speed_mps=15.0, bounds_desired_gap=False
        )
    )
    emergency_s: float = 2.0  # an at-fault collision this soon triggers the emergency brake ...
    emergency_speed_mps: float = 5.0  # ... at or below this speed

    smooths_route: bool = False  # `Road`: a smooth path with lane changes, and offsets from it instead of polygons
    reach_m: float = (
        50.0  # road users and roadblocks farther from the ego are left out; road users with `smooths_route`
    )
    forecast_every_steps: int = 2  # the forecast moves at every n-th step
    simulates_tracker: bool = (
        False  # simulate proposals by the tracker; the original's has another penalty on references
    )
    compensates_tracker: bool = False  # an emergency stop brakes at 4.05 m/s2 in spite of the tracker's gain
    anticipates: bool = False  # with `smooths_route`: brake before bends and lower limits ahead
    leader_every_steps: int = 2  # the leader is looked for at every n-th step; with 2 every proposal begins by braking
    offset_by_own_length: bool = (
        True  # with `smooths_route`: offset proposals run along their own line, not along the centreline's arclength
    )
    road_tolerance_m: float = 0.0  # a corner this far off the road, or farther, rules a proposal out
    forgives_start_off_road: bool = False  # an ego that starts off the road may stay there
    smooths_comfort: bool = True  # accelerations as one parabola over the horizon; else nuPlan's windows on speeds

    def num_steps(self, dt_s: float) -> int:
        """Steps of the proposals."""
        return round(self.horizon_s / dt_s)

    def __post_init__(self) -> None:
        if self.leader_every_steps < 1 or self.road_tolerance_m < 0:
            raise ValueError(f"{self}: expected leader_every_steps of 1 or more, road_tolerance_m of 0 or more")
        if not self.offsets_m or not self.speed_shares or min(self.speed_shares) <= 0:
            raise ValueError(f"{self}: expected at least one offset and one speed share, all shares above 0")


# Deviations that suit maps with inferred areas and coarse limits: proposals brake ahead of bends, not at their start.
PDM_ADAPTED = PdmConfig(
    idm=replace(PdmConfig().idm, bounds_desired_gap=True),
    smooths_route=True,
    reach_m=100.0,
    forecast_every_steps=1,
    simulates_tracker=True,
    compensates_tracker=True,
    anticipates=True,
    leader_every_steps=1,
    offset_by_own_length=False,
    road_tolerance_m=OUTSIDE_TOLERANCE_M,
    forgives_start_off_road=True,
    smooths_comfort=False,
)


@dataclass(frozen=True, kw_only=True)
class PdmState:
    """What PDM-Closed keeps during a scenario."""

    road: Road | PdmRoute  # a `Road` with `smooths_route`
    touched: frozenset[str] = frozenset()  # ids of tracks that the ego has touched, and of red lights that it has run


@dataclass(frozen=True, kw_only=True)
class PdmClosed:
    """The rule-based driver that is hardest to beat in nuPlan's closed loop."""

    config: PdmConfig = field(default_factory=PdmConfig)
    tracker: Tracker = field(default_factory=LqrTracker)  # the tracker that follows the plans; nuPlan's by default

    def reset(self, observation: Observation) -> PdmState:
        if not self.config.smooths_route:
            return PdmState(road=PdmRoute.ahead_of(observation))
        fallback_mps = self.config.idm.fallback_speed_mps
        scene, vehicle = observation.scene, observation.vehicle
        return PdmState(road=Road.ahead_of(scene, observation.ego, vehicle=vehicle, fallback_mps=fallback_mps))

    def plan(self, state: PdmState, observation: Observation) -> tuple[Trajectory, PdmState]:
        config, vehicle, dt_s = self.config, observation.vehicle, observation.scene.dt_s
        num_steps = config.num_steps(dt_s)
        others, red, state = _surroundings(state, observation, config)
        if isinstance(state.road, PdmRoute):
            proposals = corridor_proposals(
                observation,
                state.road,
                Obstacles.of(others, [state.road.lanes.polygons[row] for row in red], num_steps=num_steps),
                offsets_m=config.offsets_m,
                speed_shares=config.speed_shares,
                num_steps=num_steps,
                config=config.idm,
                leader_every_steps=config.leader_every_steps,
            )
        else:
            proposals = centreline_proposals(observation, state.road, others, config)
        start = observation.ego.repeated(len(proposals.heading_rad))
        tracker = self.tracker
        if isinstance(tracker, LqrTracker) and not config.simulates_tracker:
            tracker = replace(tracker, penalises_acceleration=True)
        simulated = tracker.follow(start, proposals, num_steps=num_steps, vehicle=vehicle, dt_s=dt_s)
        states = [start, *simulated]
        scores = score_proposals(
            Trajectory.of_states(states),
            others,
            road=state.road,
            vehicle=vehicle,
            dt_s=dt_s,
            config=config,
            acceleration_mps2=np.stack([one.acceleration_mps2 for one in states], axis=1),
        )
        best = int(scores.total.argmax())
        is_slow = float(observation.ego.speed_mps[0]) <= config.emergency_speed_mps
        if is_slow and scores.collision_step[best] * dt_s <= config.emergency_s:
            return self._emergency_stop(observation), state
        return proposals.select(best).at_centre(vehicle), state

    def _emergency_stop(self, observation: Observation) -> Trajectory:
        """A reference that makes nuPlan's tracker brake: straight at one speed, below zero if necessary."""
        ego, vehicle, dt_s = observation.ego, observation.vehicle, observation.scene.dt_s
        if self.config.compensates_tracker:
            return self.tracker.emergency_stop(ego, vehicle=vehicle, dt_s=dt_s)
        speed, acceleration = float(ego.speed_mps[0]), float(ego.acceleration_mps2[0])
        if speed > _STANDING_MPS:
            reference = 1.1 * (speed + float(np.clip(-10.0 * speed, *_BRAKING_BOUNDS)))
        else:
            reference = float(np.clip(-4.0 * speed - acceleration, *_BRAKING_BOUNDS))
        count = round(_EMERGENCY_HORIZON_S / dt_s) + 1
        return straight_trajectory(ego, np.full(count, reference), vehicle=vehicle, dt_s=dt_s)


def _surroundings(
    state: PdmState, observation: Observation, config: PdmConfig
) -> tuple[Forecast[np.ndarray], list[int], PdmState]:
    """The forecast of others, the rows of lanes behind red lights, and the state with what is touched now.

    What the ego has touched once is left out from then on, and a red light once the ego is behind it as a whole.
    """
    scene, vehicle, road = observation.scene, observation.vehicle, state.road
    num_steps = config.num_steps(scene.dt_s) + TTC_LOOKS[-1]
    if not isinstance(road, PdmRoute):
        near, reach_m = observation.ego, config.reach_m
        others = constant_velocity_forecast(scene, observation.agent, num_steps=num_steps, near=near, reach_m=reach_m)
        return others, [], state
    every = config.forecast_every_steps
    others = forecast_along_heading(
        observation, num_steps=num_steps, reach_m=config.reach_m, every_steps=every, ignored=state.touched
    )
    ego = shapely.polygons(Trajectory.of_states([observation.ego]).corners_m(vehicle)[0, 0])
    everyone, now = np.arange(len(others)), np.zeros(len(others), np.int64)
    boxes = shapely.polygons(forecast_corners_m(others, everyone, now)) if len(others) else np.zeros(0, object)
    free = ~np.asarray(shapely.intersects(boxes, ego), np.bool_)
    names = {row: f"red light {road.lanes.lanes.ids[road.lanes.lane[row]]}" for row in road.red_lanes(scene)}
    run = {name for row, name in names.items() if ego.within(road.lanes.polygons[row])}
    touched = state.touched | run | {scene.tracks.ids[track] for track in others.track[~free]}
    red = [row for row, name in names.items() if name not in touched]
    return others.where(free), red, replace(state, touched=touched)


def centreline_proposals(
    observation: Observation, road: Road, others: Forecast[np.ndarray], config: PdmConfig
) -> Trajectory:
    """PDM-Closed's proposals: the rear axle along the route by IDM, at every offset with every share of the speed.

    Args:
        observation: the world now.
        road: the route.
        others: a forecast at least as long as the proposals.
        config: offsets, shares, duration and IDM.
    """
    return idm_proposals(
        observation,
        road,
        others,
        offset_m=np.repeat(np.array(config.offsets_m), len(config.speed_shares)),
        speed_share=np.tile(np.array(config.speed_shares), len(config.offsets_m)),
        num_steps=config.num_steps(observation.scene.dt_s),
        config=config.idm,
        anticipates=config.anticipates,
        leader_every_steps=config.leader_every_steps,
        offset_by_own_length=config.offset_by_own_length,
    )


@dataclass(frozen=True, kw_only=True)
class ProposalScores:
    """PDM-Closed's scores of K proposals."""

    total: Float[np.ndarray, " K"]
    collision_step: Float[np.ndarray, " K"]  # sample of the first at-fault collision; infinite without one


def score_proposals(
    drives: Trajectory,
    others: Forecast[np.ndarray],
    *,
    road: Road | PdmRoute,
    vehicle: Vehicle,
    dt_s: float,
    config: PdmConfig,
    acceleration_mps2: Float[np.ndarray, "K S"] | None = None,
) -> ProposalScores:
    """Scores simulated proposals.

    Args:
        drives: K trajectories of the rear axle, from now on.
        others: forecast of the other road users, at least 9 samples longer than `drives`.
        road: the route; a `Road` measures offsets from its path, a `PdmRoute` uses lane polygons.
        vehicle: the ego's dimensions.
        dt_s: time between samples.
        config: says what counts as off the road, and how comfort is measured.
        acceleration_mps2: along the heading, from the simulated states; differences of the speeds if None.
    """
    if isinstance(road, PdmRoute):
        measures = config.road_tolerance_m > 0
        places = road.places(drives, vehicle, reach_m=config.reach_m, measures=measures)
    else:
        places = _places_by_offset(drives, road, vehicle)
    no_collision, keeps_ttc, collision_step = _conflicts(drives, others, places, vehicle=vehicle, dt_s=dt_s)
    multiplier = no_collision * _on_road(places.off_road_m, config)
    wrong = places.wrong_way_m
    multiplier = multiplier * np.select([wrong < _ONCOMING_M, wrong < _FAR_ONCOMING_M], [1.0, 0.5], default=0.0)
    progress = np.round(np.maximum(places.progress_m, 0.0), _PROGRESS_DECIMALS) * multiplier
    best = float(progress.max())
    share = progress / best if best > _MIN_PROGRESS_M else (multiplier > 0).astype(np.float64)
    if config.smooths_comfort:
        known = np.gradient(drives.speed_mps, dt_s, axis=1) if acceleration_mps2 is None else acceleration_mps2
        moves = _smoothed_motion(known, drives.heading_rad, dt_s=dt_s)
    else:
        moves = motion(drives.speed_mps[..., None] * forward(drives.heading_rad), drives.heading_rad, dt_s=dt_s)
    weighted = _PROGRESS_WEIGHT * share + _TTC_WEIGHT * keeps_ttc + _COMFORT_WEIGHT * within_comfort(moves)
    total = multiplier * weighted / (_PROGRESS_WEIGHT + _TTC_WEIGHT + _COMFORT_WEIGHT)
    return ProposalScores(total=total, collision_step=collision_step)


def _smoothed_motion(
    acceleration_mps2: Float[np.ndarray, "K S"], heading_rad: Float[np.ndarray, "K S"], *, dt_s: float
) -> Motion:
    """What the original judges comfort by: filters as long as the proposal, so acceleration is one parabola, and no
    lateral acceleration, as simulated states have none. It seldom rejects a proposal that nuPlan's metric would."""

    def fit(
        values: Float[np.ndarray, "K S"], window: int, *, derivative: int = 0, degree: int = 2
    ) -> Float[np.ndarray, "K S"]:
        return np.asarray(savgol_filter(values, window, degree, deriv=derivative, delta=dt_s, axis=1))

    whole = acceleration_mps2.shape[1]
    smooth, magnitude = (fit(values, ACCELERATION_WINDOW) for values in (acceleration_mps2, np.abs(acceleration_mps2)))
    heading = np.unwrap(heading_rad, axis=1)
    return Motion(
        longitudinal_acceleration_mps2=fit(acceleration_mps2, whole),
        lateral_acceleration_mps2=np.zeros_like(acceleration_mps2),
        jerk_mps3=fit(magnitude, whole, derivative=1),
        longitudinal_jerk_mps3=fit(smooth, whole, derivative=1),
        yaw_rate_radps=fit(heading, YAW_RATE_WINDOW, derivative=1),
        yaw_acceleration_radps2=fit(heading, YAW_RATE_WINDOW, derivative=2, degree=3),
    )


def _conflicts(
    drives: Trajectory,
    others: Forecast[np.ndarray],
    places: Places,
    *,
    vehicle: Vehicle,
    dt_s: float,
) -> tuple[Float[np.ndarray, " K"], Float[np.ndarray, " K"], Float[np.ndarray, " K"]]:
    """Scores of collisions and time to collision, and the sample of the first at-fault collision.

    Collisions: 1 without an at-fault collision, 0.5 with an object, 0 with a road user. Time to collision: 0 if a
    relevant road user is touched within a second of a sample at constant velocity, else 1. The first contact with each
    road user counts; road users that are touched now do not.
    """
    count = len(drives.heading_rad)
    no_collision, keeps_ttc, first_step = np.ones(count), np.ones(count), np.full(count, np.inf)
    car, other, step, look = box_overlaps(
        drives, others, vehicle=vehicle, looks=TTC_LOOKS, dt_s=dt_s, follows_forecast=True
    )
    in_one_lane, in_junction = places.in_one_lane, places.in_junction
    touched_now = np.zeros((count, len(others)), np.bool_)
    now = (step == 0) & (look == 0)
    touched_now[car[now], other[now]] = True

    def first_contacts(counted: Bool[np.ndarray, " n"]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Proposal, other, sample and bearing of the first contact of each pair; overlaps are sorted by sample."""
        rows = np.flatnonzero(counted & ~touched_now[car, other])
        _, first = np.unique(car[rows] * len(others) + other[rows], return_index=True)
        k, j, s = car[rows[first]], other[rows[first]], step[rows[first]]
        there_m = others.position_m[j, s + np.array(TTC_LOOKS)[look[rows[first]]]]  # where the contact is
        return k, j, s, bearing(drives.position_m[k, s], drives.heading_rad[k, s], there_m)

    k, j, s, angle = first_contacts(look == 0)
    corners = forecast_corners_m(others, j, s)
    collision_type = classify_collisions(
        drives.speed_mps[k, s],
        np.linalg.norm(others.velocity_mps[j, s], axis=1),
        bearing_rad=angle,
        front=front_overlaps(
            drives.position_m[k, s], drives.heading_rad[k, s], corners, vehicle=vehicle, depth_m=_BUMPER_DEPTH_M
        ),
    )
    at_fault = is_at_fault(collision_type, in_one_lane=in_one_lane[k, s])
    worth = np.where(others.types[j] == TrackType.OTHER, 0.5, 0.0)
    np.minimum.at(no_collision, k[at_fault], worth[at_fault])
    np.minimum.at(first_step, k[at_fault], s[at_fault].astype(np.float64))

    k, j, s, angle = first_contacts(np.abs(drives.speed_mps[car, step]) >= TTC_STOPPED_MPS)
    counts = is_relevant_for_ttc(angle, in_one_lane=in_one_lane[k, s], in_junction=in_junction[k, s])
    keeps_ttc[k[counts]] = 0.0
    return no_collision, keeps_ttc, first_step


def _places_by_offset(drives: Trajectory, road: Road, vehicle: Vehicle) -> Places:
    """Where trajectories are, by their offset from the path of a smooth road."""
    path, drivable = road.path, road.drivable
    centre_m = drives.at_centre(vehicle).position_m
    along, offset = path.project(centre_m)
    index = path.index_at(along)
    half_width = path.half_width_m[index]
    off_route = np.abs(offset) > 2 * half_width
    moved = np.linalg.norm(np.diff(centre_m, axis=1), axis=-1)
    corners = drives.corners_m(vehicle)
    outside = np.zeros(corners.shape[:3])
    if drivable is not None:
        outside = drivable.outside_m(corners.reshape(-1, 2)).reshape(corners.shape[:3])
    return Places(
        in_one_lane=np.abs(offset) + vehicle.width_m / 2 <= half_width,
        in_junction=path.in_junction[index],
        off_road_m=outside.max(axis=-1),
        wrong_way_m=np.where(off_route[:, 1:] & ~off_route[:, :1], moved, 0).sum(axis=1),
        progress_m=along[:, -1] - along[:, 0],
    )


def _on_road(off_road_m: Float[np.ndarray, "K S"], config: PdmConfig) -> Float[np.ndarray, " K"]:
    """0 for proposals that leave the road; 1 for others, and for all if a start off the road is forgiven."""
    inside = (off_road_m < config.road_tolerance_m) | (off_road_m <= 0)
    on_road = inside.all(axis=1)
    if config.forgives_start_off_road:
        on_road |= ~inside[:, 0]
    return np.asarray(on_road, np.float64)
