"""Results of a closed-loop evaluation on disk, one file per scenario, so that an interrupted evaluation can resume.

Each Parquet file holds a digest of the settings that it was computed with. Results of another planner, model, traffic
or dataset are refused. The folder is removed when the report is complete.
"""

import hashlib
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from waycode.dataset.dataset import DatasetInfo
from waycode.dataset.files import describe, only_writer, replace_file
from waycode.evaluation.report import EvaluationError
from waycode.model.saved import find_model
from waycode.planner.familiarity import weights_sha256
from waycode.simulation.campaign import Campaign, ScenarioResult
from waycode.simulation.metrics import METRICS

_DIGEST = b"waycode.driven_with"
_RESULT_SCHEMA = pa.schema(
    [
        ("index", pa.int64()),
        ("scene_id", pa.string()),
        ("episode", pa.string()),
        ("tags", pa.list_(pa.string())),
        ("score", pa.float64()),
        *((metric.name, pa.float64()) for metric in METRICS),
        ("failure", pa.string()),
        ("reasons", pa.list_(pa.string())),
        ("frozen_s", pa.float64()),
        ("planning_s", pa.list_(pa.float64())),
    ]
)


@dataclass(frozen=True)
class ResultStore:
    """A folder with a subfolder per campaign and a file per scenario."""

    folder: Path

    @contextmanager
    def until_complete(self) -> Iterator[None]:
        """Locks the folder against other processes; removes it if the block ends without an exception."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with only_writer(self.folder):
            yield
        shutil.rmtree(self.folder)

    def load(self, name: str, campaign: Campaign, *, digest: str) -> list[ScenarioResult]:
        """The stored results of a campaign.

        Args:
            name: name of the campaign.
            campaign: only results of its scene indices are read.
            digest: `settings_digest` of the campaign; results with another one raise `EvaluationError`.
        """
        paths = {index: self._path(name, index) for index in campaign.indices}
        return [_read(path, digest=digest, index=index) for index, path in paths.items() if path.is_file()]

    def save(self, name: str, result: ScenarioResult, *, digest: str) -> None:
        """Writes one result atomically; arguments as for `load`."""
        table = result_table([result]).replace_schema_metadata({_DIGEST: digest.encode()})
        path = self._path(name, result.index)
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, lambda unfinished: pq.write_table(table, unfinished, write_page_checksum=True))

    def _path(self, name: str, index: int) -> Path:
        letters = "".join(letter if letter.isalnum() else "-" for letter in name)
        return self.folder / letters / f"scene-{index:06d}.parquet"


def settings_digest(campaign: Campaign) -> str:
    """SHA-256 of everything that a result and its file depend on, except the scene's index and the code."""
    shards = [shard.sha256 for shard in DatasetInfo.read(campaign.folder).shards]
    planner = campaign.planner
    model = f"{planner} {weights_sha256(find_model(planner.model))}" if planner.has_model else planner.name
    content = f"{campaign.traffic} {campaign.horizon_s} {shards} {model} {_RESULT_SCHEMA.names}"
    return hashlib.sha256(content.encode()).hexdigest()


def result_table(results: Sequence[ScenarioResult]) -> pa.Table:
    """Results as a table, one row per scenario."""
    return pa.Table.from_pylist([{**vars(result), **result.metrics} for result in results], schema=_RESULT_SCHEMA)


def _read(path: Path, *, digest: str, index: int) -> ScenarioResult:
    with _readable(path):
        table = pq.ParquetFile(path, page_checksum_verification=True).read()
    if (table.schema.metadata or {}).get(_DIGEST) != digest.encode():
        raise EvaluationError(
            f"{path} was driven with other settings, another model or another dataset: "
            f"remove {path.parent.parent} or give another folder"
        )
    with _readable(path):
        if not table.schema.equals(_RESULT_SCHEMA) or table.num_rows != 1:
            raise ValueError(f"it has {table.num_rows} rows and the columns {table.schema.names}")
        (row,) = table.to_pylist()
        result = ScenarioResult(
            index=row["index"],
            scene_id=str(row["scene_id"]),
            episode=str(row["episode"]),
            tags=tuple(row["tags"]),
            score=row["score"],
            metrics={metric.name: row[metric.name] for metric in METRICS},
            reasons=tuple(row["reasons"]),
            failure=row["failure"],
            frozen_s=row["frozen_s"],
            planning_s=np.array(row["planning_s"], np.float64),
        )
        if result.index != index:
            raise ValueError(f"it is of scene {result.index}, expected {index}")
        judged = [value for value in result.metrics.values() if not np.isnan(value)]  # NaN: the source cannot tell it
        if not all(0 <= value <= 1 for value in (result.score, *judged)):
            raise ValueError(f"its score is {result.score} and its metrics {result.metrics}, expected 0 to 1")
        if not np.isfinite(result.frozen_s) or not np.isfinite(result.planning_s).all():
            raise ValueError("its times are not finite")
    return result


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Turns whatever a damaged file raises into an `EvaluationError` that names it."""
    try:
        yield
    except Exception as error:  # Arrow's, numpy's and our own: there is no list of them
        raise EvaluationError(
            f"{path} cannot be read ({describe(error)}): remove it to drive its scenario again"
        ) from error
