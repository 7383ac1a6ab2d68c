"""`Plan`: the result of planning. A trajectory in the world frame with its cost, tokens, status and certainty.

Axes: T future steps, n tokens, D dimensions of a token.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import Any

import numpy as np
import pyarrow as pa
from jaxtyping import Float32, Float64

from waycode.dataset.files import describe, parse_json
from waycode.scene import Scene, WaycodeError
from waycode.scene.equality import EqualByValue, same_values
from waycode.scene.frames import wrap_angle
from waycode.search.result import trace_schema

JSON_VERSION = 3  # 3: satisfied, rejected; 2: log probabilities
_PER_STEP = ("time_s", "x_m", "y_m", "heading_rad", "speed_mps")
_ARRAYS = {*_PER_STEP, "std_m", "latents"}


class PlannerError(WaycodeError, ValueError):
    """A scene, an agent, a code or an argument that planning cannot use."""


class PlanStatus(StrEnum):
    """How planning ended. If several apply, the first of NO_COST, VIOLATED, UNCERTAIN, DEADLINE is reported."""

    FOUND = "found"  # the best plan; whether it does what was asked for is `Plan.satisfied`
    VIOLATED = "violated"  # the plan violates a constraint given by `where`; none that keeps it was found
    UNCERTAIN = "uncertain"  # the gate rejected every candidate with a finite cost, or the scene is of an unknown kind
    DEADLINE = "deadline"  # stopped early: the plan has fewer tokens than requested
    NO_COST = "no-cost"  # no candidate had a finite cost; the plan is arbitrary


@dataclass(frozen=True, kw_only=True, eq=False)
class Plan(EqualByValue):
    """A trajectory of one agent in the world frame, from the step after the current one on."""

    scene_id: str
    agent_id: str
    time_s: Float64[np.ndarray, " T"]  # after the current step
    x_m: Float64[np.ndarray, " T"]
    y_m: Float64[np.ndarray, " T"]
    heading_rad: Float64[np.ndarray, " T"]
    speed_mps: Float64[np.ndarray, " T"]
    std_m: Float64[np.ndarray, "T 2"]  # along and across the agent's heading at the current step
    tokens: tuple[int, ...] | None  # None if the latents are not codes of a codebook
    latents: Float64[np.ndarray, "n D"]
    log_probability: float | None  # of the nearest code by the model's prior, in nats; None if not computed or no prior
    costs: Mapping[str, float]  # the parts of the objective by name, for display; empty if not computed
    levels: tuple[float, ...]  # the cost levels that the search compared; () without an objective
    status: PlanStatus
    satisfied: bool | None  # whether it does what was asked for; None without an objective that has a notion of it
    rejected: bool  # by the gate: the model is uncertain of this trajectory
    message: str  # what the plan achieves and how planning ended, as a sentence
    depth: int  # number of tokens
    num_decodes: int  # number of decoded codes, over all steps of search and refinement
    timings_s: Mapping[str, float]  # "encode", "search", "refine", "decode"
    trace: pa.Table | None = field(default=None, repr=False)  # every candidate that the search evaluated
    scene: Scene | None = field(default=None, repr=False)  # for pictures; not in JSON

    def __eq__(self, other: object) -> bool:
        """Whether all values are equal but the timings and the scene."""
        return same_values(self, other, ignored=frozenset({"timings_s", "scene"}))

    __hash__ = None  # arrays have none

    def __repr__(self) -> str:
        tokens = "refined" if self.tokens is None else f"tokens {' '.join(map(str, self.tokens))}"
        return (
            f"Plan of {self.agent_id!r} in {self.scene_id!r}, {self.time_s[-1]:g} s, {tokens}\n"
            f"  {self.summary}\n"
            f"  ends at x {self.x_m[-1]:.1f} m, y {self.y_m[-1]:.1f} m, {self.speed_mps[-1]:.1f} m/s"
        )

    def plot(self, scene: Scene | None = None) -> Any:
        """The plan beside the recorded path as a matplotlib figure, which notebooks show.

        Args:
            scene: of the plan; needed only if the plan was read from JSON.
        """
        from waycode.plotting import ComparisonPanel, comparison_figure

        scene = self.scene if scene is None else scene
        if scene is None or self.agent_id not in scene.tracks.ids:
            raise PlannerError(f"the plan does not know its scene: expected plot(scene) with scene {self.scene_id!r}")
        agent, after = scene.tracks.ids.index(self.agent_id), scene.current_step + 1
        valid = scene.tracks.valid[agent, after : after + len(self.time_s)]
        recorded_m = scene.tracks.position_m[agent, after : after + len(self.time_s)][valid]
        panel = ComparisonPanel(
            scene=scene, agent=agent, planned_m=self.position_in(scene),
            recorded_m=recorded_m if len(recorded_m) else None,
        )  # fmt: skip
        return comparison_figure([panel], note=self.summary)

    def _repr_png_(self) -> bytes | None:
        from waycode.plotting import png_of

        return None if self.scene is None else png_of(self.plot())

    def __post_init__(self) -> None:
        """Raises `PlannerError` for a plan that nobody could drive: gaps in it, or numbers that are not finite."""
        for name in ("scene_id", "agent_id", "message"):
            if not isinstance(getattr(self, name), str):
                raise PlannerError(f"{name} of the plan is {getattr(self, name)!r:.60}, expected text")
        num_steps = len(self.time_s)
        shapes = dict.fromkeys(_PER_STEP, (num_steps,)) | {
            "std_m": (num_steps, 2), "latents": (self.depth, *np.shape(self.latents)[1:2]),
        }  # fmt: skip
        for name, shape in shapes.items():
            values = getattr(self, name)
            if values.shape != shape:
                raise PlannerError(f"{name} of the plan has shape {list(values.shape)}, expected {list(shape)}")
            wrong = values[~np.isfinite(values)]
            if len(wrong):
                raise PlannerError(
                    f"{name} of the plan for agent {self.agent_id!r:.60} has {len(wrong)} values that are not finite, "
                    f"such as {wrong[0]}: is a value of scene {self.scene_id!r:.60} or a weight of the model absurd?"
                )
        if num_steps == 0 or np.any(np.diff(self.time_s, prepend=0.0) <= 0):
            raise PlannerError(
                f"time_s of the plan is {self.time_s[:3].tolist()}..., expected increasing times above 0"
            )
        if self.tokens is not None and len(self.tokens) != self.depth:
            raise PlannerError(f"the plan has {len(self.tokens)} tokens, expected depth = {self.depth}")

    @property
    def summary(self) -> str:
        """Status, whether it is satisfied, and the message: one line for terminals and pictures."""
        word = {None: "", True: ", satisfied", False: ", not satisfied"}[self.satisfied]
        return f"{self.status}{word}: {self.message}"

    @property
    def final_std_m(self) -> float:
        """Standard deviation at the last step: the model's certainty, which the gate compares (paper, section 4)."""
        return float(np.linalg.norm(self.std_m[-1]))

    def position_in(self, scene: Scene) -> Float32[np.ndarray, "T 2"]:
        """The positions in the scene frame."""
        world = np.stack([self.x_m, self.y_m], axis=-1)
        return np.asarray(world - np.asarray(scene.origin_m), np.float32)

    def in_scene(self, scene: Scene) -> Scene:
        """The scene with the plan as the future of its agent, as far as the scene's steps go.

        Args:
            scene: the scene that was planned for.
        """
        tracks = scene.tracks
        if scene.id != self.scene_id or self.agent_id not in tracks.ids:
            planned_for = f"agent {self.agent_id!r:.60} of scene {self.scene_id!r:.60}"
            raise PlannerError(f"the plan is for {planned_for}, which scene {scene.id!r:.60} does not have")
        row, first = tracks.ids.index(self.agent_id), scene.current_step + 1
        count = min(scene.num_steps - first, len(self.time_s))
        position_m, heading_rad = self.position_in(scene), self.heading_rad
        planned = {
            "x_m": position_m[:, 0], "y_m": position_m[:, 1], "heading_rad": wrap_angle(heading_rad),
            "vx_mps": self.speed_mps * np.cos(heading_rad), "vy_mps": self.speed_mps * np.sin(heading_rad),
            "valid": np.ones(len(self.time_s), np.bool_),
        }  # fmt: skip
        changed = {}
        for name, values in planned.items():
            changed[name] = getattr(tracks, name).copy()
            changed[name][row, first:] = 0
            changed[name][row, first : first + count] = values[:count]
        return replace(scene, tracks=replace(tracks, **changed))

    def as_dict(self) -> dict[str, Any]:
        """The plan as plain values; non-finite numbers become the strings "nan", "inf" and "-inf"."""
        content = {name: _plain(getattr(self, name)) for name in _names()}
        trace = None if self.trace is None else _plain(self.trace.to_pylist())
        return {"version": JSON_VERSION, **content, "trace": trace}

    def to_json(self) -> str:
        return json.dumps(self.as_dict(), allow_nan=False)

    @staticmethod
    def from_json(text: str) -> "Plan":
        """The exact plan that `to_json` wrote."""
        try:
            content = parse_json(text)
            version = content["version"]
        except (ValueError, TypeError, KeyError) as error:
            raise PlannerError(f"{text!r:.60} is not a plan in JSON ({error!r})") from error
        if version != JSON_VERSION:
            raise PlannerError(f"the plan has version {version!r:.60}, this waycode reads {JSON_VERSION}")
        try:
            return Plan(**{name: _restored(name, content[name]) for name in [*_names(), "trace"]})
        except Exception as error:  # of numpy and Arrow, and our own
            raise PlannerError(f"the plan in JSON is damaged ({describe(error)})") from error


def _names() -> list[str]:
    return [field.name for field in fields(Plan) if field.name not in ("trace", "scene")]


def _plain(value: Any) -> Any:
    """Arrays and tuples as lists, non-finite numbers as strings."""
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, Mapping):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def _restored(name: str, value: Any) -> Any:
    """The value of a field from its JSON form."""
    if name in _ARRAYS:
        return np.array(value, np.float64)
    if name in {"costs", "timings_s"}:
        return {key: float(number) for key, number in value.items()}
    if name == "log_probability":
        return None if value is None else float(value)
    if name == "levels":
        return tuple(float(level) for level in value)
    if name == "tokens":
        return None if value is None else tuple(_whole(token, name) for token in value)
    if name in {"depth", "num_decodes"}:
        return _whole(value, name)
    if name == "status":
        return PlanStatus(value)
    if name == "trace":
        return None if value is None else _table(value)
    return value


def trace_columns() -> pa.Schema:
    """The columns of `Plan.trace`: those of the search, and what each candidate achieves."""
    search: pa.Schema = trace_schema()
    return search.append(pa.field("satisfied", pa.bool_())).append(pa.field("violated", pa.bool_()))


def _whole(value: Any, name: str) -> int:
    if type(value) is not int:
        raise ValueError(f"{name} has {value!r:.60}, expected a whole number")
    return value


def _table(rows: list[dict[str, Any]]) -> pa.Table:
    """The trace from its rows; JSON keeps all columns but non-finite costs."""
    rows = [{**row, "costs": [float(cost) for cost in row["costs"]]} for row in rows]
    return pa.Table.from_pylist(rows, schema=trace_columns())
