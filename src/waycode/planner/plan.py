"""The result of planning: where the agent will be, what that is worth, and how sure the model is of it.

Axes: T future steps, n tokens, D dimensions of a token.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import pyarrow as pa
from jaxtyping import Float32, Float64

from waycode.planner.errors import PlannerError
from waycode.scene import Scene
from waycode.search import SearchStatus

JSON_VERSION = 1
PlanStatus = SearchStatus  # a plan ends as its search did
_ARRAYS = {"time_s", "x_m", "y_m", "heading_rad", "speed_mps", "std_m", "latents"}


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A trajectory of one road user in the world frame, from the step after the current one on."""

    scene_id: str
    agent_id: str
    time_s: Float64[np.ndarray, " T"]  # after the current step
    x_m: Float64[np.ndarray, " T"]
    y_m: Float64[np.ndarray, " T"]
    heading_rad: Float64[np.ndarray, " T"]
    speed_mps: Float64[np.ndarray, " T"]
    std_m: Float64[np.ndarray, "T 2"]  # along and across the agent's heading at the current step
    tokens: tuple[int, ...] | None  # None if the latents are no codes of a codebook
    latents: Float64[np.ndarray, "n D"]
    costs: Mapping[str, float]  # by name, for people
    levels: tuple[float, ...]  # what was compared, in lexicographic order; () if no objective was asked
    status: PlanStatus
    message: str
    depth: int
    num_decodes: int
    timings_s: Mapping[str, float]
    trace: pa.Table | None = field(default=None, repr=False)  # every candidate that was looked at

    @property
    def final_std_m(self) -> float:
        """How sure the model is of the end of the trajectory; what the gate looks at (paper, section 4)."""
        return float(np.linalg.norm(self.std_m[-1]))

    def position_in(self, scene: Scene) -> Float32[np.ndarray, "T 2"]:
        """The positions in the frame of a scene."""
        world = np.stack([self.x_m, self.y_m], axis=-1)
        return np.asarray(world - np.asarray(scene.origin_m), np.float32)

    def as_dict(self) -> dict[str, Any]:
        """The plan as plain values; numbers that JSON does not know are the words "nan", "inf" and "-inf"."""
        content = {name: _plain(getattr(self, name)) for name in _names()}
        return {"version": JSON_VERSION, **content, "trace": self.trace and _plain(self.trace.to_pylist())}

    def to_json(self) -> str:
        return json.dumps(self.as_dict(), allow_nan=False)

    @staticmethod
    def from_json(text: str) -> "Plan":
        """The same plan again, to the last bit."""
        try:
            content = json.loads(text)
            version = content["version"]
        except (ValueError, TypeError, KeyError) as error:
            raise PlannerError(f"{text!r:.60} is not a plan in JSON ({error!r})") from error
        if version != JSON_VERSION:
            raise PlannerError(f"the plan has version {version!r:.60}, this waycode reads {JSON_VERSION}")
        try:
            return Plan(**{name: _restored(name, content[name]) for name in [*_names(), "trace"]})
        except (ValueError, TypeError, KeyError, AttributeError, pa.ArrowException) as error:
            raise PlannerError(f"the plan in JSON is damaged ({error!r:.200})") from error


def _names() -> list[str]:
    return [one.name for one in fields(Plan) if one.name != "trace"]


def _plain(value: Any) -> Any:
    """Lists, dicts, strings and finite numbers in place of arrays, tuples and infinities."""
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def _restored(name: str, value: Any) -> Any:
    """The value of a field from what JSON holds of it."""
    if name in _ARRAYS:
        return np.array(value, np.float64)
    if name in {"costs", "timings_s"}:
        return {key: float(one) for key, one in value.items()}
    if name == "levels":
        return tuple(float(one) for one in value)
    if name == "tokens":
        return None if value is None else tuple(int(one) for one in value)
    if name == "status":
        return PlanStatus(value)
    if name == "trace":
        return None if value is None else _table(value)
    return value


def _table(rows: list[dict[str, Any]]) -> pa.Table:
    """The trace from its rows; all columns but the costs are what JSON has made of them."""
    return pa.Table.from_pylist([{**row, "costs": [float(cost) for cost in row["costs"]]} for row in rows])
