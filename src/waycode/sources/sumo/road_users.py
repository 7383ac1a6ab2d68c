"""The road users of a generated episode: their bodies, their temper, and SUMO's description of them."""

from dataclasses import dataclass
from xml.etree.ElementTree import Element

import numpy as np

from waycode.scene import TrackType

MODES_PER_EPISODE = {"car": 12, "truck": 3, "bus": 2, "bicycle": 3, "pedestrian": 4}
MODE_SHARE = {"car": 0.88, "truck": 0.08, "bus": 0.04}  # of the motor vehicles


@dataclass(frozen=True, kw_only=True)
class RoadUserType:
    """A kind of road user: `name` is SUMO's vType id, the sizes are those of the box."""

    name: str
    mode: str
    track_type: TrackType
    length_m: float
    width_m: float
    wheelbase_m: float
    front_overhang_m: float
    sumo_attributes: tuple[tuple[str, str], ...]

    def element(self) -> Element:
        return Element("vType", dict(self.sumo_attributes))


def draw_types(rng: np.random.Generator) -> dict[str, list[RoadUserType]]:
    """The types of one episode by mode; drivers differ in size, speed, distance and temper."""
    draw = {
        "car": _motor_vehicle,
        "truck": _motor_vehicle,
        "bus": _motor_vehicle,
        "bicycle": _bicycle,
        "pedestrian": _pedestrian,
    }
    return {mode: [draw[mode](rng, mode, index) for index in range(count)] for mode, count in MODES_PER_EPISODE.items()}


def _motor_vehicle(rng: np.random.Generator, mode: str, index: int) -> RoadUserType:
    ranges = {"car": (4.2, 5.2, 1.75, 2.05), "truck": (6.5, 9.5, 2.2, 2.5), "bus": (10.5, 12.0, 2.5, 2.55)}
    shortest, longest, narrowest, widest = ranges[mode]
    length, width = rng.uniform(shortest, longest), rng.uniform(narrowest, widest)
    slower = 1.0 if mode == "car" else 0.75
    mean_speed = rng.uniform(0.85, 1.1) * (1.0 if mode == "car" else 0.92)
    attributes = {
        "id": f"{mode}{index}",
        "vClass": {"car": "passenger", "truck": "truck", "bus": "bus"}[mode],
        "length": f"{length:.2f}",
        "width": f"{width:.2f}",
        "carFollowModel": "EIDM",
        "jerkmax": "3",
        "accel": f"{slower * rng.uniform(1.3, 2.3):.2f}",
        "decel": f"{rng.uniform(3.5, 4.8):.2f}",
        "emergencyDecel": "8",
        "tau": f"{rng.uniform(0.9, 1.8):.2f}",
        "minGap": f"{rng.uniform(1.5, 3.0):.2f}",
        "sigma": f"{rng.uniform(0.1, 0.5):.2f}",
        "speedFactor": f"normc({mean_speed:.2f},0.08,0.7,1.25)",
        "laneChangeModel": "SL2015",
        "maxSpeedLat": f"{rng.uniform(0.7, 1.3):.2f}",
        "lcMaxSpeedLatStanding": "0",  # without these two, cars crab sideways in queues
        "lcMaxSpeedLatFactor": "0.1",
        "lcSpeedGain": f"{rng.uniform(1.0, 3.0):.2f}",
        "lcAssertive": f"{rng.uniform(1.0, 1.5):.2f}",
        "minGapLat": "0.5",
    }
    return RoadUserType(
        name=attributes["id"],
        mode=mode,
        track_type=TrackType.VEHICLE,
        length_m=round(length, 2),
        width_m=round(width, 2),
        wheelbase_m=0.6 * length,
        front_overhang_m=0.19 * length,
        sumo_attributes=tuple(attributes.items()),
    )


def _bicycle(rng: np.random.Generator, mode: str, index: int) -> RoadUserType:
    attributes = {
        "id": f"{mode}{index}",
        "vClass": "bicycle",
        "length": "1.80",
        "width": "0.65",
        "carFollowModel": "IDM",
        "accel": f"{rng.uniform(0.8, 1.2):.2f}",
        "decel": "2.5",
        "emergencyDecel": "5",
        "maxSpeed": f"{rng.uniform(4.0, 6.5):.2f}",
        "tau": "1.0",
        "minGap": "0.8",
        "speedFactor": "1",
        "laneChangeModel": "SL2015",
        "latAlignment": "right",
        "maxSpeedLat": "0.6",
        "lcMaxSpeedLatStanding": "0",
        "lcMaxSpeedLatFactor": "0.1",
        "minGapLat": "0.6",
    }
    return RoadUserType(
        name=attributes["id"],
        mode=mode,
        track_type=TrackType.CYCLIST,
        length_m=1.8,
        width_m=0.65,
        wheelbase_m=1.05,
        front_overhang_m=0.35,
        sumo_attributes=tuple(attributes.items()),
    )


def _pedestrian(rng: np.random.Generator, mode: str, index: int) -> RoadUserType:
    attributes = {
        "id": f"{mode}{index}",
        "vClass": "pedestrian",
        "length": "0.50",
        "width": "0.60",
        "maxSpeed": f"{rng.uniform(1.1, 1.7):.2f}",
        "speedFactor": "1",
    }
    return RoadUserType(
        name=attributes["id"],
        mode=mode,
        track_type=TrackType.PEDESTRIAN,
        length_m=0.5,
        width_m=0.6,
        wheelbase_m=0.0,
        front_overhang_m=0.0,
        sumo_attributes=tuple(attributes.items()),
    )
