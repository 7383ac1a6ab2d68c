"""A run with everything that several metrics ask of it, each computed once and only if asked for."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from waycode.driving.road_surface import LanePolygons
from waycode.simulation.history import History
from waycode.simulation.metrics.dynamics import Dynamics, dynamics
from waycode.simulation.metrics.progress import Progress, progress_along_route
from waycode.simulation.metrics.safety import EgoCollision, TrackBoxes, find_collisions
from waycode.simulation.metrics.whereabouts import Whereabouts, locate


@dataclass(frozen=True)
class Assessment:
    history: History

    @cached_property
    def index(self) -> LanePolygons:
        """The lanes around the ego and the expert."""
        driven = np.concatenate([self.history.ego.corners_m.reshape(-1, 2), self.history.expert.centre_m])
        return LanePolygons.of(self.history.map.lanes, driven)

    @cached_property
    def whereabouts(self) -> Whereabouts:
        return locate(self.history.ego, self.index, map_features=self.history.map)

    @cached_property
    def boxes(self) -> TrackBoxes:
        return TrackBoxes.of(self.history.tracks)

    @cached_property
    def collisions(self) -> tuple[EgoCollision, ...]:
        return find_collisions(self.history.ego, self.boxes, in_one_lane=self.whereabouts.in_one_lane)

    @cached_property
    def progress(self) -> Progress | None:
        """How far the ego and the expert got; None if the expert was on no lane."""
        return progress_along_route(self.history.ego, self.history.expert, index=self.index)

    @cached_property
    def dynamics(self) -> Dynamics | None:
        """Accelerations, jerks and turn rates; None if the run is too short to have them."""
        return dynamics(self.history.ego)
