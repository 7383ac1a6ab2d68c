"""Requests and replies of the API: what the studio has, and plans. Scenes and drives have modules of their own.

Positions are metres in the scene frame; numbers that are not finite are null. Replies carry one list per coordinate:
the page draws thousands of points, and lists of numbers are small and fast.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from waycode.planner.joint_view import MAX_AGENTS

Theme = Literal["light", "dark"]
SceneIndex = Annotated[int, Field(ge=0, le=10_000_000, description="index of the scene in its dataset")]
DatasetName = Annotated[str, StringConstraints(min_length=1, max_length=100)]
AgentId = Annotated[str, StringConstraints(min_length=1, max_length=200)]
ObjectiveString = Annotated[str, StringConstraints(min_length=1, max_length=2000)]
Numbers = list[float]
MaybeNumbers = list[float | None]
ArgumentValue = bool | int | float | str | list[float] | None


class Message(BaseModel):
    """A request or a reply; unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Problem(Message):
    """Why a request failed."""

    kind: Literal["not-found", "bad-request", "too-large", "forbidden", "busy", "failed"]
    message: str = Field(description="one sentence: what was got, what was expected, what is available")


# What the studio has


class DatasetReply(Message):
    name: str
    num_scenes: int
    source: str
    has_drives: bool = Field(description="its scenes are drives of `waycode simulate`")


class ModelReply(Message):
    name: str
    num_tokens: int
    token_dim: int
    has_prior: bool
    horizon_s: float
    sigma_max_m: dict[int, float] = Field(description="the gate's limit by number of tokens; empty: not calibrated")


class ParameterReply(Message):
    name: str
    kind: str
    unit: str | None
    default: ArgumentValue
    required: bool
    positional: bool
    choices: list[str]
    in_text: bool = Field(description="false: the parameter is an array and can be given in Python only")


class ObjectiveReply(Message):
    name: str
    summary: str
    parameters: list[ParameterReply]
    differentiable: bool
    only_joint: bool = Field(description="it compares agents with each other, so that it needs a joint plan")


class LimitsReply(Message):
    max_candidates: int = Field(description="of one search step: beam width times codes of a token")
    max_beam_width: int
    max_levels: int
    max_refine_steps: int
    max_deadline_s: float
    max_draws: int
    max_agents: int = Field(description="that are planned for jointly")


class AboutReply(Message):
    """Everything that the page needs once."""

    version: str
    model: ModelReply
    joint: ModelReply | None = Field(description="the model that plans for several agents; null: there is none")
    joint_problem: str | None = Field(description="why there is none")
    datasets: list[DatasetReply]
    objectives: list[ObjectiveReply]
    drivers: list[str]
    traffic: list[str]
    limits: LimitsReply
    palettes: dict[Theme, dict[str, str]] = Field(description="colours of the canvas by theme and name")


class StatusReply(Message):
    """The state of the server, for load tests."""

    num_plans: int
    num_waiting: int
    largest_stall_ms: float = Field(description="longest time for which the event loop did not run, of the last minute")
    memory_mb: float = Field(description="resident memory of all processes; what they share counts in each")


class PolylineReply(Message):
    x_m: Numbers
    y_m: Numbers


# Plans


class AgentChoice(Message):
    """A road user of a scene, or several that share a code."""

    dataset: DatasetName
    scene: SceneIndex
    agent: AgentId | None = Field(
        default=None, description="id of the track; null: the ego, else the first track to predict"
    )
    agents: list[AgentId] = Field(
        default=[],
        max_length=MAX_AGENTS,
        description="ids of tracks that are planned for at once, by the joint model; they replace `agent`",
    )


class PlanRequest(AgentChoice):
    objective: ObjectiveString
    beam_width: int = Field(default=1, ge=1, le=64)
    depth: int | None = Field(default=None, ge=1, le=64)
    levels: int = Field(default=2, ge=2, le=9)
    gate: bool = True
    refine_steps: int = Field(default=0, ge=0, le=200)
    deadline_s: float | None = Field(default=None, ge=0, le=10)
    with_search: bool = Field(default=True, description="reply with the candidates of every token")


class DecodeRequest(AgentChoice):
    """Token ids to decode in this scene: toggled by hand, or copied from another scene."""

    tokens: list[Annotated[int, Field(ge=0, le=1_000_000)]] = Field(min_length=1, max_length=64)
    levels: int = Field(default=2, ge=2, le=9)


class EncodeRequest(AgentChoice):
    """Asks for the code of what the road user was recorded to do."""

    levels: int = Field(default=2, ge=2, le=9)


class DrawRequest(AgentChoice):
    """Asks for plans without an objective, by the model's prior."""

    how: Literal["samples", "most-likely"] = "samples"
    count: int = Field(default=12, ge=1, le=64)
    seed: int = Field(default=0, ge=0, le=2**31 - 1)
    temperature: float = Field(default=1.0, gt=0.01, le=100)


class TrajectoryReply(Message):
    x_m: Numbers
    y_m: Numbers
    heading_rad: Numbers
    speed_mps: Numbers
    std_along_m: Numbers = Field(description="along the agent's heading at the current step")
    std_across_m: Numbers


class CandidateReply(Message):
    tokens: list[int]
    costs: MaybeNumbers = Field(description="the levels that were compared, in lexicographic order")
    is_usable: bool = Field(description="all levels are finite")
    is_rejected: bool = Field(description="by the gate")
    is_kept: bool
    rank: int = Field(description="0 is the best")
    final_std_m: float | None
    log_probability: float | None
    x_m: Numbers
    y_m: Numbers
    others: list[PolylineReply] = Field(description="of a joint plan: the other agents, in the order of the plan's")


class SearchStepReply(Message):
    """The candidates of one token, best first."""

    depth: int
    num_candidates: int
    candidates: list[CandidateReply] = Field(description="the best ones, if there are too many to draw")


class AgentPlanReply(Message):
    agent: str
    trajectory: TrajectoryReply


class PlanReply(Message):
    agent: str
    objective: str | None = Field(description="as the parser reads it; null if the code was given or drawn")
    trajectory: TrajectoryReply
    others: list[AgentPlanReply] = Field(description="the other agents of a joint plan")
    tokens: list[int] | None = Field(description="null after refinement: the latents are off the levels")
    latents: list[Numbers]
    levels: int | None
    log_probability: float | None
    costs: dict[str, float | None]
    cost_levels: MaybeNumbers
    status: Literal["found", "violated", "uncertain", "deadline", "no-cost"]
    satisfied: bool | None  # whether the plan does what was asked for; None without a notion of it
    message: str
    num_decodes: int
    final_std_m: float
    timings_ms: dict[str, float]
    search: list[SearchStepReply] = Field(description="empty if not asked for, or if nothing was searched")


class DrawReply(Message):
    plans: list[PlanReply]
    counts: list[int] = Field(description="how often each plan was drawn")


class CodeReply(Message):
    tokens: list[int]
    levels: int


class LiveRequest(Message):
    """A message to the socket /api/v1/live; of those that wait, only the latest is planned."""

    sequence: int = Field(ge=0)
    plan: PlanRequest


class LiveReply(Message):
    sequence: int
    plan: PlanReply | None = None
    problem: Problem | None = None
    skipped: int = Field(description="requests since the last reply that a later one replaced")


# Objectives


class ObjectiveTextRequest(Message):
    text: ObjectiveString


class ObjectiveRow(Message):
    """A part of an objective without brackets, as a line of a form."""

    joined: Literal["first", "+", "then", "where"]
    weight: float
    agent: str | None = Field(description="id of the agent of a joint plan that it is for; null: it does not say")
    is_for_all: bool = Field(description="it is for every agent of a joint plan")
    name: str
    arguments: dict[str, ArgumentValue] = Field(description="those that differ from the default")


class ParsedObjective(Message):
    text: str = Field(description="in the form that the library prints")
    rows: list[ObjectiveRow] | None = Field(description="null if it needs brackets: no form can show it")
    level_names: list[str]
    is_differentiable: bool = Field(description="whether some part has a gradient, so that plans can be refined")


class PythonReply(Message):
    code: str


def finite(value: float) -> float | None:
    """The number, or None if it is not finite: JSON has no other number for it."""
    return value if value - value == 0 else None


def rounded(values: Any, digits: int = 2) -> list[float]:
    """An array as a list of rounded numbers; a centimetre is less than a pixel."""
    return [round(value, digits) for value in values.tolist()]
