"""Damage that random bytes seldom find, in files that are otherwise whole: each is refused in one sentence."""

import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dataset_run import make_shard
from scenes import small_scene
from test_closed_loop_campaign import campaign_of
from tiny_model import tiny_model
from waycode.cli import main
from waycode.dataset.dataset import DatasetError, save_scene, write_dataset
from waycode.dataset.seeds import episode_of
from waycode.evaluation.closed_loop_store import ResultStore
from waycode.evaluation.report import EvaluationError
from waycode.model.saved import save_model
from waycode.planner import PlannerError
from waycode.planner.familiarity import Familiarity
from waycode.planner.manoeuvre_index import ManoeuvreIndex
from waycode.scene import InvalidScene
from waycode.simulation.campaign import failed_result
from waycode.sources import SourceError
from waycode.sources.sumo.episode import origin_of
from waycode.studio.app import _sequence

NESTED = "[" * 50_000


def changed(table: pa.Table, column: str, value: Any) -> pa.Table:
    """The table with one value in all rows of a column, of the column's type if it can be."""
    place, kind = table.schema.names.index(column), table.schema.field(column).type
    try:
        values = pa.array([value] * table.num_rows, kind)
    except (pa.ArrowException, ValueError, TypeError):
        values = pa.array([value] * table.num_rows)
    return table.set_column(place, column, values)


@pytest.mark.parametrize(
    "damage",
    [
        lambda table: table.drop_columns(["frozen_s"]),
        lambda table: table.slice(0, 0),
        lambda table: changed(table, "tags", None),
        lambda table: changed(table, "score", "text"),
        lambda table: changed(table, "score", 1.5),
        lambda table: changed(table, "score", float("nan")),
        lambda table: changed(table, "comfort", -0.5),
        lambda table: changed(table, "comfort", float("inf")),
        lambda table: changed(table, "frozen_s", float("-inf")),
        lambda table: changed(table, "index", 7),
    ],
)
def test_a_damaged_result_is_not_counted(damage: Callable[[pa.Table], pa.Table], tmp_path: Path) -> None:
    store = ResultStore(tmp_path)
    store.save("a", failed_result(small_scene(), 0, "why"), digest="d")
    assert len(store.load("a", campaign_of(0), digest="d")) == 1
    (path,) = tmp_path.rglob("*.parquet")
    pq.write_table(damage(pq.read_table(path)), path)
    with pytest.raises(EvaluationError, match=r"scene-000000\.parquet cannot be read .* remove it to drive"):
        store.load("a", campaign_of(0), digest="d")


def test_a_flipped_bit_of_a_result_is_noticed(tmp_path: Path) -> None:
    store = ResultStore(tmp_path)
    result = replace(failed_result(small_scene(), 0, "why"), planning_s=np.full(500, 0.123))
    store.save("a", result, digest="d")
    (path,) = tmp_path.rglob("*.parquet")
    whole = path.read_bytes()
    refused = 0
    for place in range(4, len(whole) - 2000, 101):  # the pages; the footer, at the end, has no checksum
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 16]) + whole[place + 1 :])
        try:
            (read,) = store.load("a", campaign_of(0), digest="d")
        except EvaluationError:
            refused += 1
        else:
            np.testing.assert_array_equal(read.planning_s, result.planning_s)
            assert (read.score, read.metrics, read.tags) == (result.score, result.metrics, result.tags)
    assert refused > 0


@pytest.mark.parametrize(
    "damage",
    [
        lambda table: changed(table, "tokens", [2, 10_000_000]),
        lambda table: changed(table, "tokens", [-1, 0]),
        lambda table: changed(table, "scene_id", 5),
        lambda table: changed(table, "scene_index", [1]),
        lambda table: changed(table, "latents", [[float("nan")] * 3] * 2),
        lambda table: table.replace_schema_metadata({b"waycode-index": NESTED}),
        lambda table: table.replace_schema_metadata(
            {b"waycode-index": '{"version": 1, "levels": 0, "token_shape": [2, 3]}'}
        ),
        lambda table: table.replace_schema_metadata(
            {b"waycode-index": '{"version": 1, "levels": 1e999, "token_shape": [2, 3]}'}
        ),
    ],
)
def test_a_damaged_index_is_refused(damage: Callable[[pa.Table], pa.Table], tmp_path: Path) -> None:
    path = tmp_path / "index.parquet"
    ManoeuvreIndex(
        levels=2, scene_index=np.arange(3), scene_ids=("a", "a", "b"), agent_ids=("1", "2", "1"),
        manoeuvres=("left", "straight", "straight"), tokens=np.array([[0, 1], [2, 3], [4, 7]]),
        latents=np.ones((3, 2, 3), np.float32),
    ).save(path)  # fmt: skip
    assert len(ManoeuvreIndex.load(path)) == 3
    pq.write_table(damage(pq.read_table(path)), path)
    with pytest.raises(PlannerError, match=r"index\.parquet is not an index of manoeuvres"):
        ManoeuvreIndex.load(path)


@pytest.mark.parametrize(
    "wrong",
    [{"mean": np.zeros(3)}, {"precision": np.full((4, 4), np.nan)}, {"max_distance": np.array(np.inf)},
     {"max_off_lane": np.zeros(4)}],
)  # fmt: skip
def test_a_calibration_that_makes_no_sense_is_refused(wrong: dict[str, np.ndarray], tmp_path: Path) -> None:
    save_model(tmp_path, tiny_model())
    sound = {"mean": np.zeros(4), "precision": np.eye(4), "max_distance": np.array(2.0), "max_off_lane": np.array(0.5)}
    from safetensors.numpy import save_file

    from waycode.planner.familiarity import weights_sha256

    for content, is_refused in ((sound, False), ({**sound, **wrong}, True)):
        metadata = {"weights_sha256": weights_sha256(tmp_path)}
        save_file(content, tmp_path / "familiarity.safetensors", metadata=metadata)
        if is_refused:
            with pytest.raises(PlannerError, match=r"familiarity\.safetensors cannot be read .* `waycode calibrate`"):
                Familiarity.load(tmp_path)
        else:
            assert Familiarity.load(tmp_path) is not None


@pytest.mark.parametrize(
    "rebuild",
    ["{}", "[]", "7", '{"episode": 7}', '{"episode": {"family": "curved_road", "numbers": 3}}',
     '{"episode": {"family": "no such", "numbers": ["a", 0, 0]}, "window": {}}'],
)  # fmt: skip
def test_a_scene_that_does_not_say_how_it_was_generated(rebuild: str) -> None:
    scene = replace(small_scene("one"), source="sumo", rebuild=rebuild)
    scene.validate()
    with pytest.raises(SourceError, match="scene 'one' cannot be rebuilt"):
        origin_of(scene)
    if "numbers" not in rebuild or "3}" in rebuild:
        with pytest.raises(DatasetError, match="scene 'one' does not say which episode it is from"):
            episode_of(scene)


def test_values_nested_too_deeply_are_a_fault_of_a_scene() -> None:
    with pytest.raises(InvalidScene, match="rebuild is JSON that is nested too deeply"):
        replace(small_scene(), rebuild=NESTED).validate()


def test_a_live_message_nested_too_deeply_has_no_number() -> None:
    """Without this the connection would never be answered again."""
    assert _sequence(NESTED) == 0


def test_a_full_disk_while_examples_are_prepared_is_one_sentence(tmp_path: Path) -> None:
    """In a process of its own, whose files may have 2,000 bytes."""
    write_dataset(tmp_path / "data", range(1), make=make_shard, source="made-up", settings={})
    code = f"""
import resource
from pathlib import Path
from waycode.dataset.dataset import Dataset, DatasetError
from waycode.features import FeatureConfig
from waycode.training.examples import prepare_examples
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
try:
    prepare_examples(Dataset({str(tmp_path / "data")!r}), FeatureConfig(), cache=Path({str(tmp_path / "cache")!r}))
except DatasetError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "part-00000.safetensors could not be written ([Errno 27] File too large)" in done.stdout, done.stderr
    assert not list((tmp_path / "cache").rglob("*.part-*"))


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ("CREATE VIRTUAL TABLE meta USING VirtualText('{file}', 'UTF-8', 1, POINT, DOUBLEQUOTE, ',')", "virtual table"),
        ("create/**/virtual table meta using --\n VirtualText('{file}')", "virtual table"),
        ("CREATE VIEW meta AS SELECT ogr_geocode('here') AS key, 1 AS value", "view"),
    ],
)
def test_a_map_leads_to_no_other_file(schema: str, told: str, tmp_path: Path) -> None:
    """GDAL's SQLite would read the other file, or open an address: it does not get the map."""
    import nuplan_files
    from waycode.sources.nuplan.maps import city_map

    other = tmp_path / "other.csv"
    other.write_text(f"key,value\nprojectedCoordSystem,{nuplan_files.CITY_SYSTEM}\n")
    file = nuplan_files.write_map(tmp_path / "maps")
    assert city_map(str(file)).lanes is not None
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("DROP TABLE meta")
        connection.execute("PRAGMA writable_schema = ON")
        kind = "view" if "VIEW" in schema else "table"
        connection.execute(
            "INSERT INTO sqlite_master (type, name, tbl_name, rootpage, sql) VALUES (?, 'meta', 'meta', 0, ?)",
            [kind, schema.format(file=other)],
        )
    city_map.cache_clear()
    with pytest.raises(SourceError, match=rf"map\.gpkg cannot be read as a nuPlan map: 'meta' is a {told}, expected"):
        city_map(str(file))


@pytest.mark.parametrize("scene_id", ["../../escaped", "/escaped", "$\\frac{1$" * 30, "a\nb"])
def test_generated_pictures_stay_in_their_folder(scene_id: str, tmp_path: Path) -> None:
    save_model(tmp_path / "model", tiny_model(joint=True, num_tokens=2))
    scene = small_scene(scene_id, num_steps=40)
    save_scene(scene, tmp_path / "scene.parquet")
    before = {path for path in tmp_path.rglob("*") if path.is_file()}
    out = tmp_path / "below" / "out"
    agents = [scene.tracks.ids[track] for track in np.flatnonzero(scene.tracks.valid[:, scene.current_step])[:2]]
    command = ["generate", str(tmp_path / "scene.parquet"), "--model", str(tmp_path / "model"), "--out", str(out)]
    assert main([*command, "--count", "1", "--agents", *agents]) == 0
    made = {path for path in tmp_path.rglob("*") if path.is_file()} - before
    assert {path.parent for path in made} == {out}
    assert sum(path.suffix == ".png" for path in made) == 1
