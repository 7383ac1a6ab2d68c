"""What has been driven so far, on disk as it comes: a run that was stopped goes on where it was when it is run again.

A part is a Parquet file of one scenario. Each says what it was driven with: those of another planner, model, traffic or
dataset are refused, not mixed in. When the report is written, the parts are no longer needed.
"""

import hashlib
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from waycode.dataset.dataset import DatasetInfo
from waycode.dataset.files import only_writer, replace_file
from waycode.evaluation.reconstruction import EvaluationError
from waycode.model.saved import load_model
from waycode.simulation.campaign import Campaign, ScenarioResult
from waycode.simulation.metrics import METRICS

SETTINGS = b"waycode.driven_with"
SCHEMA = pa.schema(
    [
        ("index", pa.int64()),
        ("scene_id", pa.string()),
        ("tags", pa.list_(pa.string())),
        ("score", pa.float64()),
        *((metric.name, pa.float64()) for metric in METRICS),
        ("failure", pa.string()),
        ("reasons", pa.list_(pa.string())),
        ("planning_s", pa.list_(pa.float64())),
    ]
)


@dataclass(frozen=True)
class Parts:
    """A folder with a folder per campaign, with a file per scenario."""

    folder: Path

    def __len__(self) -> int:
        return sum(1 for _ in self.folder.glob("*/scene-*.parquet"))

    @contextmanager
    def kept_until_done(self) -> Iterator[None]:
        """Keeps other runs out of the folder; removes it when all went well."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with only_writer(self.folder):
            yield
        shutil.rmtree(self.folder)

    def kept(self, name: str, campaign: Campaign, *, settings: str) -> list[ScenarioResult]:
        """The campaign's results that are there already."""
        paths = [self._path(name, index) for index in campaign.indices]
        return [_read(path, settings=settings) for path in paths if path.is_file()]

    def keep(self, name: str, result: ScenarioResult, *, settings: str) -> None:
        """Writes down one result, wholly or not at all."""
        table = as_table([result]).replace_schema_metadata({SETTINGS: settings.encode()})
        path = self._path(name, result.index)
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, lambda unfinished: pq.write_table(table, unfinished))

    def _path(self, name: str, index: int) -> Path:
        letters = "".join(letter if letter.isalnum() else "-" for letter in name)
        return self.folder / letters / f"scene-{index:06d}.parquet"


def settings_of(campaign: Campaign) -> str:
    """Everything that a result depends on, but for the scene's index and the code."""
    shards = [shard.sha256 for shard in DatasetInfo.read(campaign.folder).shards]
    planner = campaign.planner
    model = f"{planner} {_weights_sha256(planner.model)}" if planner.has_model else planner.name
    content = f"{campaign.traffic} {campaign.horizon_s} {shards} {model}"
    return hashlib.sha256(content.encode()).hexdigest()


def as_table(results: Sequence[ScenarioResult]) -> pa.Table:
    """One row per scenario."""
    return pa.Table.from_pylist([_as_row(result) for result in results], schema=SCHEMA)


def _as_row(result: ScenarioResult) -> dict[str, Any]:
    return {
        "index": result.index,
        "scene_id": result.scene_id,
        "tags": list(result.tags),
        "score": result.score,
        **result.metrics,
        "failure": result.failure,
        "reasons": list(result.reasons),
        "planning_s": result.planning_s.tolist(),
    }


def _read(path: Path, *, settings: str) -> ScenarioResult:
    try:
        table = pq.ParquetFile(path).read()
    except (OSError, pa.ArrowException) as error:
        raise EvaluationError(
            f"{path} cannot be read ({error}): remove it, and its scenario is driven again"
        ) from error
    if (table.schema.metadata or {}).get(SETTINGS) != settings.encode():
        raise EvaluationError(
            f"{path} was driven with other settings, another model or another dataset: "
            f"remove {path.parent.parent} or give another folder"
        )
    (row,) = table.to_pylist()
    return ScenarioResult(
        index=row["index"],
        scene_id=row["scene_id"],
        tags=tuple(row["tags"]),
        score=row["score"],
        metrics={metric.name: row[metric.name] for metric in METRICS},
        reasons=tuple(row["reasons"]),
        failure=row["failure"],
        planning_s=np.array(row["planning_s"], np.float64),
    )


def _weights_sha256(model: str) -> str:
    """Of a model's values: the name of a run's folder stays the same while its model gets better."""
    digest = hashlib.sha256()
    for name, value in load_model(model).model.state_dict().items():
        digest.update(name.encode() + value.detach().cpu().numpy().tobytes())
    return digest.hexdigest()
