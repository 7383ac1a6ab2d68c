"""Everything that `waycode eval reconstruction` finds: table 1, the beam figure and table A5 of the paper."""

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool

from waycode.evaluation.calibration import risk_coverage
from waycode.evaluation.orderings import CONTINUOUS, ENCODER_2, GREEDY_2, Ordering, check_orderings
from waycode.evaluation.reconstruction import (
    BEAM_COLUMNS,
    COLUMNS,
    AgentErrors,
    Cell,
    reconstruction_errors,
    reconstruction_table,
)
from waycode.model import Model
from waycode.scene import Scene, TrackType

REPORT_FILE, PICTURE_FILE = "reconstruction.json", "reconstruction.png"
PAPER_ADE_M = {
    ENCODER_2: (0.800, 0.519, 0.403),
    "encoder N_l = 3": (0.617, 0.410, 0.334),
    CONTINUOUS: (0.567, 0.365, 0.298),
    GREEDY_2: (0.708, 0.485, 0.386),
    "greedy N_l = 3": (0.524, 0.363, 0.301),
}  # on the validation scenes of WOMD, for comparison


@dataclass(frozen=True, kw_only=True)
class ReconstructionReport:
    """ADE and FDE in metres; columns by name, a value for 1, 2, ... tokens."""

    model: str
    data: str
    num_scenes: int
    num_agents: int
    table: dict[str, list[Cell]]
    by_type: dict[str, dict[str, list[Cell]]]
    agents_by_type: dict[str, int]
    orderings: list[Ordering]
    beam_ade_m: dict[int, Cell]  # by beam width, all tokens, N_l = 2
    risk_coverage: dict[str, list[tuple[float, float]]]  # (share of agents, their mean FDE), most certain first
    risk_is_monotone: dict[str, bool]

    def as_json(self) -> dict[str, Any]:
        content = asdict(self)
        content["orderings"] = [{**asdict(ordering), "holds": ordering.holds} for ordering in self.orderings]
        return content

    def write(self, folder: Path) -> None:
        """Writes the report as JSON."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / REPORT_FILE).write_text(json.dumps(self.as_json(), indent=1) + "\n")


def reconstruction_report(
    model: Model,
    scenes: Iterable[Scene],
    *,
    name: str,
    data: str,
    on_scenes: Callable[[int], None] = lambda count: None,
) -> ReconstructionReport:
    """Reconstructs the tracks to predict in every way, and says how well that went."""
    beams = tuple(column for column in BEAM_COLUMNS if column not in COLUMNS)
    errors = reconstruction_errors(model, scenes, columns=COLUMNS + beams, on_scenes=on_scenes)
    columns = [column.name for column in COLUMNS]
    kinds = {TrackType(kind).name.lower(): errors.types == kind for kind in np.unique(errors.types)}
    every_table = reconstruction_table(errors)
    table = {column: every_table[column] for column in columns}
    risks = {
        column: risk_coverage(errors.fde_m[column][:, -1], errors.final_std_m[column][:, -1])
        for column in (CONTINUOUS, ENCODER_2, GREEDY_2)
    }
    return ReconstructionReport(
        model=name,
        data=data,
        num_scenes=len(np.unique(errors.scenes)),
        num_agents=len(errors.types),
        table=table,
        by_type={kind: reconstruction_table(_chosen(errors, rows, columns)) for kind, rows in kinds.items()},
        agents_by_type={kind: int(rows.sum()) for kind, rows in kinds.items()},
        orderings=check_orderings({column: [cell.ade_m for cell in cells] for column, cells in table.items()}),
        beam_ade_m={column.beam_width: every_table[column.name][-1] for column in BEAM_COLUMNS},
        risk_coverage=risks,
        risk_is_monotone={column: _rises(pairs) for column, pairs in risks.items()},
    )


def _chosen(errors: AgentErrors, rows: Bool[np.ndarray, " R"], columns: Iterable[str]) -> AgentErrors:
    names = list(columns)
    return AgentErrors(
        types=errors.types[rows],
        scenes=errors.scenes[rows],
        ade_m={name: errors.ade_m[name][rows] for name in names},
        fde_m={name: errors.fde_m[name][rows] for name in names},
        final_std_m={name: errors.final_std_m[name][rows] for name in names},
    )


def _rises(pairs: list[tuple[float, float]]) -> bool:
    errors = [error for _, error in pairs]
    return all(before <= after for before, after in pairwise(errors))
