"""What a drive is worth to a planner in the loop: safe first, then getting on along the route by nuPlan's weights.

Two levels in lexicographic order. The first is danger: collisions at fault, leaving the road, red lights. The second is
minus nuPlan's weighted mean, with the paper's route term (section 5.1: progress along the route's arclength, less a
penalty for deviation) as its progress. Axes: K drives, S steps (step 0 is now).
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float

from waycode.baselines.pdm_score import Drives, motion_of
from waycode.baselines.proposals import Way
from waycode.driving import Observation
from waycode.driving.forecast import Forecast, forecast
from waycode.driving.road_surface import OUTSIDE_TOLERANCE_M, DrivableArea
from waycode.scene.kinematics import COMFORT_BOUNDS
from waycode.simulation.drivers.contacts import LOOKS, Contacts, Margin, find_contacts

PROGRESS_WEIGHT, TTC_WEIGHT, SPEED_WEIGHT, COMFORT_WEIGHT = 5.0, 5.0, 4.0, 2.0
MOST_OVERSPEED_MPS = 2.23
PULLING_AWAY_MPS2 = 1.5
EDGE_EVERY = 4  # of the steps one is looked at for corners off the road
LEAST_TASK_M = 5.0  # where one cannot get further than that, progress is of little interest
HIT_WEIGHT = 1e-3  # of the speed in m/s at which something is hit: less than a step earlier or later
STOP_LINE_MARGIN_M = 0.5  # a bumper so little over the line still waits
STOPPABLE_MPS2 = 3.5  # who would have to brake harder for a red light drives on


@dataclass(frozen=True, kw_only=True)
class JudgeConfig:
    """Which terms count. Without `route` it does not matter where a drive leads."""

    route: bool = True
    edge: bool = True
    collision: bool = True
    red_lights: bool = True
    horizon_s: float = 4.0
    deviation_weight: float = 10.0
    free_width_m: float = 0.5
    margin_ahead_m: float = 1.0  # by which others are longer at both ends
    margin_beside_m: float = 0.2

    def __post_init__(self) -> None:
        if not self.horizon_s >= 2.0:
            raise ValueError(f"the judge looks {self.horizon_s} s ahead, expected 2 s or more: comfort takes so long")


@dataclass(frozen=True, kw_only=True)
class DriveJudge:
    """Judges drives from one observation on."""

    observation: Observation
    way: Way
    drivable: DrivableArea | None
    config: JudgeConfig

    @property
    def dt_s(self) -> float:
        return self.observation.scene.dt_s

    @property
    def num_steps(self) -> int:
        """Steps after now that are looked at."""
        return round(self.config.horizon_s / self.dt_s)

    def levels(self, drives: Drives) -> Float[np.ndarray, "K 2"]:
        """Danger, then minus the score in [0, 1]; less is better."""
        along, offset = self.way.path.project(drives.centre_m)
        contacts = self._contacts(drives, along, offset)
        danger = self._danger(drives, along, contacts)
        return np.stack([danger, -self._worth(drives, along, offset, contacts)], axis=-1)

    def danger_of_hitting(self, step: Float[np.ndarray, "*K"]) -> Float[np.ndarray, "*K"]:
        """Of drives that hit somebody at a step, however slowly: the sooner the worse."""
        return np.asarray(1 + (1 - np.minimum(step / self.num_steps, 1.0)))

    def _contacts(
        self, drives: Drives, along_m: Float[np.ndarray, "K S"], offset_m: Float[np.ndarray, "K S"]
    ) -> Contacts:
        path = self.way.path
        lane = path.index_at(along_m)
        off_lane = np.abs(offset_m) + drives.vehicle.width_m / 2 > path.half_width_m[lane]
        margin = Margin(ahead_m=self.config.margin_ahead_m, beside_m=self.config.margin_beside_m)
        return find_contacts(
            drives,
            self._others,
            off_lane=off_lane,
            in_junction=path.in_junction[lane],
            margin=margin,
            dt_s=self.dt_s,
        )

    def _danger(self, drives: Drives, along_m: Float[np.ndarray, "K S"], contacts: Contacts) -> Float[np.ndarray, " K"]:
        """0 for a safe drive; the sooner a collision the worse, and of those at the same time the faster."""
        when = np.minimum(contacts.first_step, self.num_steps).astype(np.int64)
        fast = HIT_WEIGHT * drives.speed_mps[np.arange(len(when)), when]
        danger = np.where(np.isfinite(contacts.first_step), self.danger_of_hitting(contacts.first_step) + fast, 0.0)
        danger = danger + self._leaves_road(drives)
        return danger + self._runs_red(drives, along_m) if self.config.red_lights else danger

    def _leaves_road(self, drives: Drives) -> Float[np.ndarray, " K"]:
        """The share of the looked-at steps at which a corner is off the road; 0 where the car is off it already."""
        if self.drivable is None or not self.config.edge:
            return np.zeros(len(drives.speed_mps))
        steps = np.arange(0, drives.speed_mps.shape[1], EDGE_EVERY)
        car, place = (index.ravel() for index in np.indices((len(drives.speed_mps), len(steps))))
        middle = np.full(len(car), drives.vehicle.rear_axle_to_centre_m)
        corners = drives.boxes(car, steps[place], ahead_m=middle, length_m=drives.vehicle.length_m)
        outside = self.drivable.outside_m(corners.reshape(-1, 2)).reshape(len(drives.speed_mps), len(steps), 4)
        off = outside.max(axis=-1) >= OUTSIDE_TOLERANCE_M
        return np.where(off[:, 0], 0.0, off.mean(axis=1))

    def _worth(
        self,
        drives: Drives,
        along_m: Float[np.ndarray, "K S"],
        offset_m: Float[np.ndarray, "K S"],
        contacts: Contacts,
    ) -> Float[np.ndarray, " K"]:
        config, path = self.config, self.way.path
        limit = np.where(path.limit_known, path.limit_mps, np.inf)[path.index_at(along_m)]
        over = np.maximum(drives.speed_mps - limit, 0).mean(axis=1) / MOST_OVERSPEED_MPS
        worth = (
            TTC_WEIGHT * contacts.keeps_distance
            + SPEED_WEIGHT * np.maximum(0.0, 1 - over)
            + COMFORT_WEIGHT * comfort_share(drives, dt_s=self.dt_s)
        )
        total = TTC_WEIGHT + SPEED_WEIGHT + COMFORT_WEIGHT
        if not config.route:
            return np.asarray(worth / total)
        aside = np.maximum(np.abs(offset_m) - config.free_width_m, 0).mean(axis=1)
        gained = along_m[:, -1] - along_m[:, 0] - config.deviation_weight * aside
        share = np.minimum(gained / max(LEAST_TASK_M, self._reachable_m), 1.0)
        return np.asarray((PROGRESS_WEIGHT * share + worth) / (PROGRESS_WEIGHT + total))

    def _runs_red(self, drives: Drives, along_m: Float[np.ndarray, "K S"]) -> Float[np.ndarray, " K"]:
        """Which drives pass a red light before which the car could still stop: a wall that counts as a collision."""
        half = drives.vehicle.length_m / 2
        speed, front = float(drives.speed_mps[0, 0]), along_m[:, :1] + half  # [K, 1]
        gap = self._red_m[None] - front  # [K, r]
        ahead = (gap > -STOP_LINE_MARGIN_M) & (np.maximum(gap, 0.0) >= speed**2 / (2 * STOPPABLE_MPS2) - 1.0)
        passed = along_m.max(axis=1)[:, None] + half > self._red_m[None] + STOP_LINE_MARGIN_M
        return (ahead & passed).any(axis=1).astype(np.float64)

    @cached_property
    def _red_m(self) -> Float[np.ndarray, " r"]:
        return self.way.red_m(self.observation)

    @cached_property
    def _others(self) -> Forecast:
        """The others at constant velocity, or braking on; nobody if collisions do not count."""
        seen = forecast(self.observation, num_steps=self.num_steps + LOOKS[-1], brakes=True)
        if self.config.collision:
            return seen
        nobody = np.zeros(len(seen), np.bool_)
        return Forecast(**{name: values[nobody] for name, values in vars(seen).items()})

    @cached_property
    def _reachable_m(self) -> float:
        """How far one gets on an empty road: pulling away briskly, as fast as is allowed."""
        ego, path = self.observation.ego, self.way.path
        along = start = float(path.project(ego.rear_axle_m)[0][0])
        speed = max(0.0, float(ego.speed_mps[0]))
        for _ in range(self.num_steps):
            allowed = float(self.way.speed_mps[path.index_at(np.array(along))])
            along += self.dt_s * speed
            speed = min(speed + self.dt_s * PULLING_AWAY_MPS2, max(allowed, speed - self.dt_s * PULLING_AWAY_MPS2))
        return along - start


def comfort_share(drives: Drives, *, dt_s: float) -> Float[np.ndarray, " K"]:
    """1 for drives within all bounds of comfort, less the further beyond them: a search needs a slope, not a step."""
    moves = motion_of(drives, dt_s=dt_s)
    beyond = np.zeros(len(drives.speed_mps))
    for name, (least, greatest) in COMFORT_BOUNDS.items():
        values = getattr(moves, name)
        beyond = np.maximum(beyond, np.maximum(values.max(axis=1) / greatest, values.min(axis=1) / least))
    return np.asarray(np.clip(2 - beyond, 0.0, 1.0))
