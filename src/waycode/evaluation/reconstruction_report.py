"""The report of `waycode eval reconstruction`: table 1, the beam-width figure and table A5 of the paper."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from waycode.evaluation.reconstruction import BEAM_METHODS, TABLE_METHODS, AgentErrors, reconstruction_errors
from waycode.evaluation.report import Estimate, Report
from waycode.model import Model
from waycode.scene import Scene, TrackType

ENCODER_2, ENCODER_3, CONTINUOUS = "encoder N_l = 2", "encoder N_l = 3", "encoder continuous"
GREEDY_2, GREEDY_3 = "greedy N_l = 2", "greedy N_l = 3"
PAPER_ADE_M = {  # on the validation scenes of WOMD, for comparison
    ENCODER_2: (0.800, 0.519, 0.403),
    ENCODER_3: (0.617, 0.410, 0.334),
    CONTINUOUS: (0.567, 0.365, 0.298),
    GREEDY_2: (0.708, 0.485, 0.386),
    GREEDY_3: (0.524, 0.363, 0.301),
}
COVERAGES = (0.05, 0.15, 0.20, 0.35, 0.65, 0.80, 0.95, 1.0)  # of table A5
_BETTER_THAN = {  # claim -> pairs of (better, worse) methods
    "greedy search beats the quantised encoder": ((GREEDY_2, ENCODER_2), (GREEDY_3, ENCODER_3)),
    "three levels beat two": ((ENCODER_3, ENCODER_2), (GREEDY_3, GREEDY_2)),
    "continuous beats quantised": ((CONTINUOUS, ENCODER_2), (CONTINUOUS, ENCODER_3)),
}


@dataclass(frozen=True)
class Ordering:
    """A claim about the table, and the cells that violate it."""

    claim: str
    breaks: tuple[str, ...]

    @property
    def holds(self) -> bool:
        return not self.breaks


@dataclass(frozen=True, kw_only=True)
class ReconstructionReport(Report):
    """ADE and FDE in metres by name of the method, a value for 1, 2, ... tokens."""

    model: str
    data: str
    num_scenes: int
    num_agents: int
    table: dict[str, list[Estimate]]  # ADE, mean over object types
    by_type: dict[str, dict[str, list[Estimate]]]
    agents_by_type: dict[str, int]
    orderings: list[Ordering]
    beam_ade_m: dict[int, Estimate]  # by beam width, all tokens, N_l = 2
    risk_coverage: dict[str, list[tuple[float, float]]]  # (share of agents, their mean FDE), most certain first
    risk_is_monotone: dict[str, bool]

    @property
    def file_name(self) -> str:
        return "reconstruction.json"

    def as_json(self) -> dict[str, Any]:
        def cells(table: Mapping[str, Sequence[Estimate]]) -> dict[str, Any]:
            return {name: [_cell(estimate) for estimate in estimates] for name, estimates in table.items()}

        return {
            **asdict(self),
            "table": cells(self.table),
            "by_type": {name: cells(table) for name, table in self.by_type.items()},
            "orderings": [{**asdict(ordering), "holds": ordering.holds} for ordering in self.orderings],
            "beam_ade_m": {width: _cell(estimate) for width, estimate in self.beam_ade_m.items()},
        }


def reconstruction_report(
    model: Model,
    scenes: Iterable[Scene],
    *,
    name: str,
    data: str,
    on_scenes: Callable[[int], None] = lambda count: None,
) -> ReconstructionReport:
    """Reconstructs the tracks to predict by all methods and summarises the errors.

    Args:
        model: the autoencoder.
        scenes: scenes with recorded futures that the model was not trained on.
        name: name of the model, for the report.
        data: name of the dataset, for the report.
        on_scenes: called with the number of scenes done since the last call.
    """
    beams = tuple(method for method in BEAM_METHODS if method not in TABLE_METHODS)
    errors = reconstruction_errors(model, scenes, methods=TABLE_METHODS + beams, on_scenes=on_scenes)
    methods = [method.name for method in TABLE_METHODS]
    rows_of = {TrackType(kind).name.lower(): errors.types == kind for kind in np.unique(errors.types)}
    all_methods = reconstruction_table(errors)
    table = {method: all_methods[method] for method in methods}
    risks = {
        method: risk_coverage(errors.fde_m[method][:, -1], errors.final_std_m[method][:, -1])
        for method in (CONTINUOUS, ENCODER_2, GREEDY_2)
    }
    return ReconstructionReport(
        model=name,
        data=data,
        num_scenes=len(np.unique(errors.scenes)),
        num_agents=len(errors.types),
        table=table,
        by_type={kind: reconstruction_table(errors, methods=methods, rows=rows) for kind, rows in rows_of.items()},
        agents_by_type={kind: int(rows.sum()) for kind, rows in rows_of.items()},
        orderings=check_orderings({method: [cell.mean for cell in cells] for method, cells in table.items()}),
        beam_ade_m={method.beam_width: all_methods[method.name][-1] for method in BEAM_METHODS},
        risk_coverage=risks,
        risk_is_monotone={
            method: all(before <= after for (_, before), (_, after) in pairwise(pairs))
            for method, pairs in risks.items()
        },
    )


def reconstruction_table(
    errors: AgentErrors, *, methods: Iterable[str] | None = None, rows: Bool[np.ndarray, " R"] | None = None
) -> dict[str, list[Estimate]]:
    """ADE averaged over object types, by method: an estimate for 1, 2, ..., N tokens.

    Args:
        errors: errors of all agents.
        methods: None: all.
        rows: which agents to use; None: all.
    """
    chosen = slice(None) if rows is None else rows
    scenes, types = errors.scenes[chosen], errors.types[chosen]
    return {
        name: [Estimate.of(column, scenes, types) for column in errors.ade_m[name][chosen].T]
        for name in methods or errors.ade_m
    }


def risk_coverage(
    final_error_m: Float[np.ndarray, " R"], final_std_m: Float[np.ndarray, " R"]
) -> list[tuple[float, float]]:
    """Pairs (share of agents, their mean final error in metres), most certain predictions first.

    Args:
        final_error_m: FDE per agent; NaN where the last step was not observed.
        final_std_m: predicted standard deviation at the last step.
    """
    known = np.isfinite(final_error_m)
    sorted_error = final_error_m[known][np.argsort(final_std_m[known], kind="stable")]
    counts = [max(1, round(coverage * len(sorted_error))) for coverage in COVERAGES]
    return [(share, float(sorted_error[:count].mean())) for share, count in zip(COVERAGES, counts, strict=True)]


def check_orderings(table: Mapping[str, Sequence[float]]) -> list[Ordering]:
    """Checks the orderings of an ordered, discrete and searchable code (paper, section 5.1).

    Args:
        table: ADE in metres for 1, 2, ... tokens, by method. Claims about absent methods are skipped. Equal numbers
            violate a claim.
    """
    not_falling = [
        f"{name}: {before:.3f} m with {tokens}, {after:.3f} m with {tokens + 1} tokens"
        for name, column in table.items()
        for tokens, (before, after) in enumerate(pairwise(column), start=1)
        if not after < before
    ]
    orderings = [Ordering("more tokens are better in every column", tuple(not_falling))]
    for claim, pairs in _BETTER_THAN.items():
        present = [(better, worse) for better, worse in pairs if better in table and worse in table]
        not_better = [
            f"{tokens} tokens: {better} {good:.3f} m, {worse} {bad:.3f} m"
            for better, worse in present
            for tokens, (good, bad) in enumerate(zip(table[better], table[worse], strict=True), start=1)
            if not good < bad
        ]
        if present:
            orderings.append(Ordering(claim, tuple(not_better)))
    return orderings


def _cell(estimate: Estimate) -> dict[str, float]:
    return {"ade_m": estimate.mean, "low_m": estimate.low, "high_m": estimate.high}
