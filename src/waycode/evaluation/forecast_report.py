"""The report of `waycode eval forecast`: errors of forecasts, the likelihood of what happened, and its calibration."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import log

import numpy as np
from jaxtyping import Bool

from waycode.evaluation.calibration import Reliability, reliability
from waycode.evaluation.forecast import (
    COLLISION,
    MEAN_SPEED,
    MIN_ADE,
    MIN_FDE,
    MISS,
    AgentForecasts,
    agent_forecasts,
)
from waycode.evaluation.guidance import RECORDED
from waycode.evaluation.guidance_report import Rows
from waycode.evaluation.report import Estimate, Provenance, Report
from waycode.model import Model
from waycode.scene import Scene, TrackType

RELATIVE_SPEED = "relative_speed"  # mean speed as a share of the recorded mean speed
_ERRORS = (MIN_ADE, MIN_FDE, MISS)


@dataclass(frozen=True, kw_only=True)
class ForecastReport(Report):
    """Forecasts of the tracks to predict without an objective."""

    num_scenes: int
    num_episodes: int
    num_agents: int
    num_driving: int  # vehicles that are observed at every step: speed and collisions are theirs
    rows: Rows  # errors: means over object types
    by_type: dict[str, Rows]  # errors only
    agents_by_type: dict[str, int]
    nll_nats: list[Estimate]  # minus the log probability of the recorded code's first, second, ... token
    nll_nats_per_token: Estimate
    uniform_nats_per_token: float  # if all tokens were equally likely
    reliability: dict[str, Reliability]  # of the probabilities of the recorded code's tokens

    @property
    def file_name(self) -> str:
        return "forecast.json"


def forecast_report(
    model: Model,
    scenes: Iterable[Scene],
    *,
    provenance: Provenance,
    on_scenes: Callable[[int], None] = lambda count: None,
) -> ForecastReport:
    """Forecasts the tracks to predict by all methods and summarises the results.

    Args:
        model: with a prior.
        scenes: scenes with recorded futures that the model was not trained on.
        provenance: what the figures are measured with.
        on_scenes: called with the number of scenes done since the last call.
    """
    found = agent_forecasts(model, scenes, on_scenes=on_scenes)
    kinds = {TrackType(kind).name.lower(): found.types == kind for kind in np.unique(found.types)}
    nll = -np.log(np.take_along_axis(found.probability, found.tokens[..., None], axis=2)[..., 0])  # [R, N]
    return ForecastReport(
        provenance=provenance,
        num_scenes=len(np.unique(found.scenes)),
        num_episodes=len(np.unique(found.episodes)),
        num_agents=len(found.types),
        num_driving=int(np.isfinite(found.measures[RECORDED][COLLISION]).sum()),
        rows=_rows(found),
        by_type={kind: _error_rows(found, rows) for kind, rows in kinds.items()},
        agents_by_type={kind: int(rows.sum()) for kind, rows in kinds.items()},
        nll_nats=[Estimate.of(column, found.episodes) for column in nll.T],
        nll_nats_per_token=Estimate.of(nll.mean(axis=1), found.episodes),
        uniform_nats_per_token=log(found.probability.shape[2]),
        reliability=token_reliability(found),
    )


def token_reliability(found: AgentForecasts) -> dict[str, Reliability]:
    """Reliability of the probabilities of all values of a token, and of the most likely value alone."""
    values = np.arange(found.probability.shape[2])
    happened = found.tokens[..., None] == values
    top = found.probability.argmax(axis=2)[..., None] == values
    return {
        "all tokens": reliability(found.probability.ravel(), happened.ravel()),
        "most likely token": reliability(found.probability[top], happened[top]),
    }


def _rows(found: AgentForecasts) -> Rows:
    errors, recorded = _error_rows(found, np.ones(len(found.types), np.bool_)), found.measures[RECORDED]
    return {
        method: {
            **errors.get(method, {}),
            RELATIVE_SPEED: Estimate.of_ratio(measures[MEAN_SPEED], recorded[MEAN_SPEED], found.episodes),
            COLLISION: Estimate.of(measures[COLLISION], found.episodes),
        }
        for method, measures in found.measures.items()
    }


def _error_rows(found: AgentForecasts, rows: Bool[np.ndarray, " R"]) -> Rows:
    return {
        method: {name: Estimate.of(measures[name][rows], found.episodes[rows], found.types[rows]) for name in _ERRORS}
        for method, measures in found.measures.items()
        if method != RECORDED
    }
