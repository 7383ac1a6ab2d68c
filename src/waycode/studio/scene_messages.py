"""Replies of the API about scenes: the list, and a whole scene to draw."""

from typing import Literal

from pydantic import Field

from waycode.studio.messages import MaybeNumbers, Message, Numbers, PolylineReply

TrackKind = Literal["vehicle", "pedestrian", "cyclist", "other"]
PaintStyle = Literal["solid", "broken", "double", "double-broken"]
SignalWord = Literal["unknown", "stop", "caution", "go"]


class SceneFacts(Message):
    """A scene in the list."""

    dataset: str
    index: int
    id: str
    source: str
    tags: list[str]
    family: str | None = Field(description="the first tag: the road network's family or the scenario type")
    manoeuvre: str | None = Field(description="of the ego, else of the first track to predict; null: not read yet")
    num_tracks: int | None = Field(description="null: not read yet")
    score: float | None = Field(description="of a drive of `waycode simulate`, from 0 to 1; null: a recorded scene")
    driver: str | None = Field(description="driver and traffic of a drive")


class SceneList(Message):
    scenes: list[SceneFacts]
    num_matching: int
    num_read: int = Field(description="scenes whose manoeuvre is known so far; they are read in the background")
    num_scenes: int
    families: dict[str, int] = Field(description="scenes by family, of all datasets")
    manoeuvres: dict[str, int]
    sources: dict[str, int]


class LaneReply(Message):
    x_m: Numbers
    y_m: Numbers
    width_m: float
    is_bike: bool
    on_route: bool


class LineReply(Message):
    x_m: Numbers
    y_m: Numbers
    colour: Literal["white", "yellow"]
    style: PaintStyle


class SignalReply(Message):
    x_m: float
    y_m: float
    heading_rad: float = Field(description="of the lane at the stop line")
    width_m: float
    states: list[SignalWord] = Field(description="one per step")


class TrackReply(Message):
    id: str
    kind: TrackKind
    length_m: float
    width_m: float
    is_ego: bool
    is_to_predict: bool
    manoeuvre: str
    x_m: MaybeNumbers = Field(description="one per step, null where not observed; so are the other lists")
    y_m: MaybeNumbers
    heading_rad: MaybeNumbers
    speed_mps: MaybeNumbers


class MapReply(Message):
    lanes: list[LaneReply]
    road_lines: list[LineReply]
    road_edges: list[PolylineReply]
    crosswalks: list[PolylineReply]
    speed_bumps: list[PolylineReply]
    driveways: list[PolylineReply]
    drivable_areas: list[PolylineReply]
    stop_signs: PolylineReply


class SceneReply(Message):
    """A whole scene, to draw."""

    dataset: str
    index: int
    id: str
    source: str
    tags: list[str]
    dt_s: float
    current_step: int
    num_steps: int
    has_drive: bool = Field(description="the scene is a drive of `waycode simulate`: see /drive")
    origin_m: tuple[float, float] = Field(description="world position of the scene frame's (0, 0)")
    default_agent: str | None
    map: MapReply
    signals: list[SignalReply]
    tracks: list[TrackReply]
