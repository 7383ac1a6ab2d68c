"""Requests and replies of the API about drives in closed loop."""

from typing import Literal

from pydantic import Field

from waycode.simulation.names import DriverName, TrafficKind
from waycode.studio.messages import DatasetName, Message, Numbers, PolylineReply, Problem, SceneIndex
from waycode.studio.scene_messages import TrackReply


class DriveRequest(Message):
    dataset: DatasetName
    scene: SceneIndex
    driver: DriverName = "latent"
    traffic: TrafficKind = "replay"
    horizon_s: float = Field(default=15.0, gt=0, le=60)


class DriveEvent(Message):
    time_s: float
    description: str
    track: str | None


class DriveResult(Message):
    """A finished drive; step 0 of all lists but the tracks' is the scene's current step."""

    driver: str
    traffic: str
    score: float
    failure: str | None
    metrics: dict[str, float]
    reasons: list[DriveEvent] = Field(description="what cost score, in order of time")
    score_time_s: Numbers
    scores: Numbers = Field(description="the score of the drive up to each of these times")
    speed_mps: Numbers
    expert_speed_mps: Numbers
    expert: PolylineReply = Field(description="the recorded path of the ego")
    planning_ms: Numbers
    plans: list[PolylineReply] = Field(description="the trajectory that was followed from each step on")
    tracks: list[TrackReply]
    num_steps: int


class DriveReply(Message):
    id: str
    request: DriveRequest
    state: Literal["waiting", "running", "done", "failed"]
    steps_done: int
    num_steps: int | None
    problem: Problem | None = None
    result: DriveResult | None = None
