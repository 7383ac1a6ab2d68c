"""Reading datasets: random access from any process, and a clear sentence for whatever is wrong with the files."""

import json
import multiprocessing
import pickle
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dataset_run import make_shard, read_ids
from scenes import small_scene
from waycode.dataset import dataset as dataset_module
from waycode.dataset import shards as shards_module
from waycode.dataset.checks import check_dataset
from waycode.dataset.dataset import (
    INFO_FILE,
    Dataset,
    DatasetError,
    DatasetInfo,
    check_shards,
    load_scene,
    save_scene,
    write_dataset,
)
from waycode.dataset.files import sha256_of_file
from waycode.dataset.storage import same_scene, scenes_to_table

IDS = [f"{shard}-{number}" for shard in range(4) for number in range(3)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A finished dataset of 4 shards with 3 scenes each."""
    write_dataset(tmp_path / "data", range(4), make=make_shard, source="made-up", settings={"seed": 0})
    return tmp_path / "data"


def test_scenes_by_index(folder: Path) -> None:
    dataset = Dataset(folder)
    assert len(dataset) == 12
    assert [dataset[index].id for index in range(12)] == IDS
    assert [dataset[-1 - index].id for index in range(12)] == IDS[::-1]
    assert dataset[np.int64(7)].id == IDS[7]
    assert same_scene(dataset[4], small_scene("1-1"))


def test_slices_and_iteration(folder: Path) -> None:
    dataset = Dataset(folder)
    assert [scene.id for scene in dataset] == IDS
    assert [scene.id for scene in dataset[2:9:3]] == IDS[2:9:3]
    assert [scene.id for scene in dataset[::-1]] == IDS[::-1]
    assert dataset[5:5] == []


@pytest.mark.parametrize("index", [12, -13, 10**9])
def test_an_index_outside_is_an_index_error(folder: Path, index: int) -> None:
    with pytest.raises(IndexError, match=f"scene {index} of 12 in "):
        Dataset(folder)[index]


def test_shards_without_scenes_are_passed_over(tmp_path: Path) -> None:
    contents = {0: [], 1: make_shard(1).scenes, 2: [], 3: make_shard(3).scenes[:1], 4: []}
    write_dataset(
        tmp_path / "d",
        range(5),
        make=lambda index: dataset_module.ShardContents(contents[index]),
        source="s",
        settings={},
    )
    assert [scene.id for scene in Dataset(tmp_path / "d")] == ["1-0", "1-1", "1-2", "3-0"]


def test_an_empty_dataset_has_no_scenes(tmp_path: Path) -> None:
    write_dataset(tmp_path / "d", [], make=make_shard, source="s", settings={})
    assert list(Dataset(tmp_path / "d")) == []


def test_pickling_leaves_the_open_files_behind(folder: Path) -> None:
    dataset = Dataset(folder)
    assert dataset[0].id == IDS[0]
    copy = pickle.loads(pickle.dumps(dataset))  # noqa: S301 (our own bytes)
    assert [scene.id for scene in copy] == IDS


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_several_processes_read_at_once(folder: Path, method: str) -> None:
    dataset = Dataset(folder)
    assert dataset[0].id == IDS[0]  # with a file open, which a forked process shares
    orders = [np.random.default_rng(seed).integers(0, 12, 100).tolist() for seed in range(4)]
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context(method)) as pool:
        answers = list(pool.map(read_ids, [dataset] * 4, orders))
    assert answers == [[IDS[index] for index in order] for order in orders]


def test_few_files_are_open_at_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards_module, "MAX_OPEN_ROW_GROUPS", 7)  # two shards of three
    dataset = Dataset(folder)
    for index in np.random.default_rng(0).permutation(12).tolist() * 2:
        assert dataset[index].id == IDS[index]
        assert len(dataset._open._idle) <= 2
    monkeypatch.setattr(shards_module, "MAX_OPEN_ROW_GROUPS", 1)  # less than one shard: that one stays
    assert read_ids(Dataset(folder), list(range(12))) == IDS


def test_threads_share_a_dataset(folder: Path) -> None:
    """In a process of its own: it used to end in a segmentation fault."""
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("dataset_threads.py"), folder],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "as read by one thread\n", "")


def test_a_flipped_bit_is_found_when_the_shard_is_opened(folder: Path) -> None:
    path = folder / "shard-00001.parquet"
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 1
    path.write_bytes(content)
    with pytest.raises(DatasetError, match=r"00001.parquet cannot be read \(it does not have the checksum"):
        Dataset(folder)[3]
    with pytest.raises(DatasetError, match=r"00001.parquet cannot be read \(it does not have the checksum"):
        Dataset(folder).ids()
    assert Dataset(folder)[0].id == IDS[0]
    path.write_bytes(bytes(content))
    assert len(Dataset(folder, verify=False).ids()) == 12  # on request, without the check


def test_a_flipped_bit_is_found_in_a_file_without_checksum(tmp_path: Path) -> None:
    path = tmp_path / "scene.parquet"
    save_scene(small_scene(), path)
    whole = path.read_bytes()
    silent = 0
    for place in np.linspace(4, len(whole) - 9, 300).astype(int):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 16]) + whole[place + 1 :])
        with suppress(DatasetError):
            silent += not same_scene(load_scene(path), small_scene())
    assert silent == 0


def other_forms() -> list[tuple[str, Any, str]]:
    table = scenes_to_table([small_scene()])

    def with_column(name: str, values: pa.Array) -> pa.Table:
        return table.set_column(table.schema.names.index(name), name, values)

    empty_floats = pa.array([[]], pa.list_(pa.float32()))
    return [
        ("another type", with_column("id", pa.array([7])), "column id holds int64, expected string"),
        ("text for numbers", with_column("tracks_x_m", pa.array([["a"]])), "column tracks_x_m holds list"),
        ("one number", with_column("dt_s", pa.array([None], pa.float64())), "column dt_s is null"),
        ("short list", with_column("tracks_x_m", pa.array([[1.0, 2.0]], pa.list_(pa.float32()))), "tracks_x_m has 2"),
        ("no origin", with_column("origin_m", pa.array([[]], pa.list_(pa.float64()))), "origin_m has 0 values"),
        ("no starts", with_column("map_crosswalks_starts", pa.array([[]], pa.list_(pa.int32()))), "crosswalks.starts"),
        ("null", with_column("tracks_types", pa.array([[1, None, 2, 3]], pa.list_(pa.int8()))), "has 1 nulls"),
        ("too few", with_column("tracks_length_m", empty_floats), "cannot be read"),
        ("no column", table.drop_columns(["signals_valid"]), "signals_valid"),
        ("two rows", pa.concat_tables([table, table]), "row group 0 has 2 rows"),
        ("invalid", scenes_to_table([replace(small_scene(), current_step=77)]), "current_step is 77"),
    ]


@pytest.mark.parametrize(
    ("table", "sentence"), [row[1:] for row in other_forms()], ids=[row[0] for row in other_forms()]
)
def test_a_file_of_another_form_is_named(folder: Path, table: pa.Table, sentence: str) -> None:
    path = folder / "shard-00001.parquet"
    pq.write_table(table, path)
    shards = json.loads((folder / INFO_FILE).read_text())["shards"]
    shards[1] |= {"sha256": sha256_of_file(path), "num_scenes": 1}
    rewrite(folder, shards=shards)
    with pytest.raises(DatasetError, match=sentence) as error:
        Dataset(folder)[3]
    assert str(path) in str(error.value)
    with pytest.raises(DatasetError, match=sentence):
        load_scene(path)
    assert any(sentence in fault and "shard-00001" in fault for fault in check_dataset(folder).faults)


@pytest.mark.parametrize("file", [7, None, ["a"], "../other.parquet", "/etc/passwd", "a\\b", "..", ""])
def test_a_shard_is_a_file_of_the_folder(folder: Path, file: Any) -> None:
    shards = json.loads((folder / INFO_FILE).read_text())["shards"]
    shards[0]["file"] = file
    rewrite(folder, shards=shards)
    with pytest.raises(DatasetError, match=r"(?s)dataset.json is damaged \(.*file"):
        check_dataset(folder)


def rewrite(folder: Path, **changes: Any) -> None:
    path = folder / INFO_FILE
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


DAMAGES: list[tuple[str, Callable[[Path], object], str]] = [
    ("no info", lambda folder: (folder / INFO_FILE).unlink(), "is not a dataset: it has no dataset.json"),
    ("unfinished", lambda folder: rewrite(folder, complete=False), "is not finished: run the command that makes it"),
    ("not JSON", lambda folder: (folder / INFO_FILE).write_text('{"sch'), "dataset.json is damaged"),
    ("not text", lambda folder: (folder / INFO_FILE).write_bytes(b"\xff\xfe"), "dataset.json is damaged"),
    ("a list", lambda folder: (folder / INFO_FILE).write_text("[1, 2]"), "dataset.json is damaged"),
    ("a hole", lambda folder: (folder / INFO_FILE).write_text('{"schema_version": 1}'), "dataset.json is damaged"),
    ("nested", lambda folder: (folder / INFO_FILE).write_text("[" * 100_000), "dataset.json is damaged"),
    ("other values", lambda folder: rewrite(folder, source=None), "dataset.json is damaged"),
    ("a stranger", lambda folder: rewrite(folder, colour="red"), "dataset.json is damaged"),
    (
        "another version",
        lambda folder: rewrite(folder, schema_version=99, new_field=1),
        "dataset.json has schema version 99, this waycode reads 1",
    ),
]


@pytest.mark.parametrize(("damage", "sentence"), [row[1:] for row in DAMAGES], ids=[row[0] for row in DAMAGES])
def test_a_damaged_description_is_named(folder: Path, damage: Callable[[Path], object], sentence: str) -> None:
    damage(folder)
    with pytest.raises(DatasetError, match=sentence):
        Dataset(folder)


@pytest.mark.parametrize("content", [None, b"", b"PAR1 not really", "half", "other"])
def test_a_damaged_shard_is_named(folder: Path, content: bytes | str | None) -> None:
    path = folder / "shard-00001.parquet"
    whole = path.read_bytes()
    path.unlink()
    if content == "other":  # a Parquet file, but with fewer scenes than dataset.json says
        save_scene(small_scene(), path)
    elif content == "half":
        path.write_bytes(whole[: len(whole) // 2])
    elif isinstance(content, bytes):
        path.write_bytes(content)
    dataset = Dataset(folder)
    assert dataset[0].id == IDS[0]
    with pytest.raises(DatasetError, match=r"shard-00001.parquet cannot be read .* `waycode data check` lists"):
        dataset[5]


def test_a_good_dataset_passes_the_check(folder: Path) -> None:
    assert check_shards(folder) == []


def test_the_check_names_what_is_wrong(folder: Path) -> None:
    (folder / "shard-00000.parquet").unlink()
    content = bytearray((folder / "shard-00001.parquet").read_bytes())
    content[len(content) // 3] ^= 1
    (folder / "shard-00001.parquet").write_bytes(content)
    save_scene(small_scene(), folder / "more.parquet")
    rewrite(folder, settings={"seed": 1})
    assert check_shards(folder) == [
        "the settings in dataset.json do not have the hash that it gives",
        "shard-00000.parquet is missing",
        "shard-00001.parquet does not have the checksum that dataset.json gives",
        "more.parquet is not listed in dataset.json",
    ]


def test_the_check_of_an_unfinished_dataset(folder: Path) -> None:
    rewrite(folder, complete=False)
    assert check_shards(folder) == ["the dataset is not finished"]


def test_the_description_says_what_the_dataset_is(folder: Path) -> None:
    content = json.loads((folder / INFO_FILE).read_text())
    assert content["source"] == "made-up"
    assert content["settings"] == {"seed": 0}
    assert (content["num_scenes"], content["num_shards"], content["complete"]) == (12, 4, True)
    assert content["rejected"] == {"overlap": 1 + 2 + 3}
    assert content["shards"][1]["num_bytes"] == (folder / "shard-00001.parquet").stat().st_size
    assert DatasetInfo.read(folder) == Dataset(folder).info


def test_one_scene_can_be_saved_and_loaded(tmp_path: Path) -> None:
    save_scene(small_scene(), tmp_path / "scene.parquet")
    assert same_scene(load_scene(tmp_path / "scene.parquet"), small_scene())
    assert [path.name for path in tmp_path.iterdir()] == ["scene.parquet"]


def test_a_scene_is_loaded_from_a_dataset_or_a_shard(folder: Path) -> None:
    assert load_scene(folder, 7).id == IDS[7]
    assert load_scene(str(folder / "shard-00002.parquet"), 1).id == "2-1"


@pytest.mark.parametrize(
    ("name", "index", "sentence"),
    [
        ("", 12, "has no scene 12: expected 0 to 11"),
        ("", -1, "has no scene -1: expected 0 to 11"),
        ("shard-00000.parquet", 3, "has no scene 3: expected 0 to 2"),
        ("absent.parquet", 0, "does not exist: expected a Parquet file of scenes or a dataset's folder"),
        (INFO_FILE, 0, "expected a Parquet file of scenes"),
    ],
)
def test_loading_what_is_not_there(folder: Path, name: str, index: int, sentence: str) -> None:
    with pytest.raises(DatasetError, match=sentence):
        load_scene(folder / name, index)


def test_saving_where_there_is_no_folder(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"absent/scene.parquet could not be written"):
        save_scene(small_scene(), tmp_path / "absent" / "scene.parquet")
