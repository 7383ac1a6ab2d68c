"""Colours, widths and drawing order of all pictures."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from waycode.scene import SignalState, TrackType


class Layer(IntEnum):
    """Drawing order (matplotlib's zorder)."""

    GROUND = 1
    DRIVEWAYS = 2
    ROAD = 3
    ROUTE = 4
    CROSSWALKS = 5
    MARKINGS = 6
    EDGES = 7
    SIGNALS = 8
    TRAILS = 9
    HALOS = 10
    BOXES = 11
    HIGHLIGHTS = 12
    ANNOTATIONS = 20


def _track_colours() -> Mapping[TrackType, str]:
    return {
        TrackType.VEHICLE: "#4f7396",
        TrackType.PEDESTRIAN: "#8f5aa8",
        TrackType.CYCLIST: "#1f8f6b",
        TrackType.OTHER: "#8a857c",
    }


def _signal_colours() -> Mapping[SignalState, str]:
    red, amber, green = "#e0352f", "#f5a623", "#2bb24c"
    return {
        SignalState.UNKNOWN: "#8b9098",
        SignalState.ARROW_STOP: red,
        SignalState.ARROW_CAUTION: amber,
        SignalState.ARROW_GO: green,
        SignalState.STOP: red,
        SignalState.CAUTION: amber,
        SignalState.GO: green,
        SignalState.FLASHING_STOP: red,
        SignalState.FLASHING_CAUTION: amber,
    }


@dataclass(frozen=True, kw_only=True)
class Style:
    """Colours and widths. Widths are metres on the road; layers set a minimum in points so that nothing vanishes."""

    ground: str = "#f3f2ee"
    paper: str = "#fbfaf8"
    driveway: str = "#e4e2dc"
    asphalt: str = "#b4b9c1"
    bike_lane: str = "#bfb3a6"
    route: str = "#8fb0d6"
    road_edge: str = "#858c97"
    median: str = "#9aa58f"
    white_paint: str = "#ffffff"
    yellow_paint: str = "#f4c542"
    speed_bump: str = "#c79a4b"
    stop_sign: str = "#c8372d"
    ink: str = "#2e3440"
    faint_ink: str = "#7b828e"
    ego: str = "#e8542f"
    to_predict: str = "#ffb71b"
    future: str = "#0a9fb5"
    original: str = "#2b6fd6"  # the recorded path of a planned agent
    chosen: str = "#14945a"  # the planned path
    candidate: str = "#6a4fa3"
    rejected: str = "#7b828e"
    goal: str = "#c2187a"
    tracks: Mapping[TrackType, str] = field(default_factory=_track_colours)
    signals: Mapping[SignalState, str] = field(default_factory=_signal_colours)

    paint_width_m: float = 0.16  # of painted lines
    edge_width_m: float = 0.22  # of road edges
    trail_width_m: float = 0.55  # of the past and future of road users
    assumed_lane_width_m: float = 3.6  # where the source has no width
    dash_m: float = 3.0  # length of a dash of a broken line
    dash_gap_m: float = 4.5  # between dashes


DEFAULT_STYLE = Style()
