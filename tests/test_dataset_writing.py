"""Writing datasets: killed at any moment and run again, the bytes are those of an undisturbed run."""

import errno
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import dataset_run
from dataset_run import NUM_SHARDS, make_or_die, make_or_fail, make_shard
from scenes import small_scene
from waycode.dataset import dataset as dataset_module
from waycode.dataset.dataset import INFO_FILE, Dataset, DatasetError, DatasetInfo, ShardContents, write_dataset
from waycode.dataset.files import only_writer, replace_file, temporary_folder
from waycode.dataset.storage import write_shard
from waycode.scene import InvalidScene


def write(folder: Path, *, make: Callable[[Any], ShardContents] = make_shard, **changes: Any) -> DatasetInfo:
    options: dict[str, Any] = {"source": "made-up", "settings": {"seed": 0}, **changes}
    return write_dataset(folder, options.pop("tasks", range(NUM_SHARDS)), make=make, **options)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def identities(folder: Path) -> dict[str, tuple[int, int]]:
    """What would change if a shard were written again."""
    return {path.name: (path.stat().st_ino, path.stat().st_mtime_ns) for path in folder.glob("*.parquet")}


def wait_until(condition: Callable[[], bool], what: str) -> None:
    for _ in range(600):
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError(f"waited in vain for {what}")


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"  # ended, though nobody asked how


@pytest.mark.parametrize(("workers", "seed"), [(1, 0), (1, 1), (2, 2), (2, 3)])
def test_a_killed_run_goes_on_where_it_stopped(tmp_path: Path, workers: int, seed: int) -> None:
    num_before_kill = random.Random(seed).randrange(1, NUM_SHARDS - 2)
    folder, log = tmp_path / "killed", tmp_path / "log"
    process = subprocess.Popen([sys.executable, dataset_run.__file__, str(folder), str(log), str(workers)])
    wait_until(lambda: len(list(folder.glob("shard-*"))) >= num_before_kill, "the first shards")
    process.send_signal(signal.SIGKILL)
    process.wait()

    lines = [line.split() for line in log.read_text().splitlines()]
    wait_until(lambda: not any(is_running(int(pid)) for _, pid in lines), "the workers to end with their parent")
    finished = identities(folder)
    assert num_before_kill <= len(finished) < NUM_SHARDS
    with pytest.raises(DatasetError, match="is not finished"):
        Dataset(folder)

    log.unlink()
    dataset_run.run(folder, log, workers)
    made_again = {f"shard-{int(line.split()[0]):05d}.parquet" for line in log.read_text().splitlines()}
    assert made_again == set(identities(folder)) - set(finished)
    assert {name: identities(folder)[name] for name in finished} == finished
    dataset_run.run(tmp_path / "undisturbed", tmp_path / "other-log", 1)
    assert contents(folder) == contents(tmp_path / "undisturbed")


def test_the_number_of_workers_does_not_change_a_byte(tmp_path: Path) -> None:
    counts: list[int] = []
    info = write(tmp_path / "one", workers=1)
    assert write(tmp_path / "three", workers=3, on_shard=counts.append) == info
    assert contents(tmp_path / "one") == contents(tmp_path / "three")
    assert sum(counts) == info.num_scenes == 3 * NUM_SHARDS
    assert set(contents(tmp_path / "one")) == {INFO_FILE, *(f"shard-{i:05d}.parquet" for i in range(NUM_SHARDS))}


def test_a_finished_dataset_is_left_alone(tmp_path: Path) -> None:
    counts: list[int] = []
    info = write(tmp_path / "d")
    before = identities(tmp_path / "d")
    assert write(tmp_path / "d", make=make_or_fail, on_shard=counts.append) == info
    assert identities(tmp_path / "d") == before
    assert counts == [3 * NUM_SHARDS]


@pytest.mark.parametrize("workers", [1, 2])
def test_a_failing_task_leaves_the_finished_shards(tmp_path: Path, workers: int) -> None:
    folder = tmp_path / "d"
    with pytest.raises(RuntimeError, match="task 5 fails"):
        write(folder, make=make_or_fail, workers=workers)
    finished = identities(folder)
    assert {f"shard-{index:05d}.parquet" for index in range(5)} <= set(finished)
    assert "shard-00005.parquet" not in finished
    assert set(contents(folder)) == {INFO_FILE, *finished}
    write(folder)
    write(tmp_path / "undisturbed")
    assert contents(folder) == contents(tmp_path / "undisturbed")
    assert {name: identities(folder)[name] for name in finished} == finished


def test_a_worker_that_is_killed_is_named(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"a worker process was killed .* run the same command again"):
        write(tmp_path / "d", make=make_or_die, workers=2)
    write(tmp_path / "d")
    assert len(Dataset(tmp_path / "d")) == 3 * NUM_SHARDS


def test_an_invalid_scene_is_never_written(tmp_path: Path) -> None:
    bad = replace(small_scene("bad"), dt_s=-1.0)
    with pytest.raises(InvalidScene, match="scene 'bad' has 1 fault"):
        write(tmp_path / "d", make=lambda index: ShardContents([bad]) if index == 1 else make_shard(index))
    assert set(contents(tmp_path / "d")) == {INFO_FILE, "shard-00000.parquet"}


def test_a_full_disk_leaves_nothing_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = 0

    def fill_the_disk(path: Path, *args: Any, **options: Any) -> None:
        nonlocal written
        written += 1
        write_shard(path, *args, **options)
        if written == 3:
            os.truncate(path, 100)
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(dataset_module, "write_shard", fill_the_disk)
    with pytest.raises(DatasetError, match=r"shard-00002.*No space left on device"):
        write(tmp_path / "d")
    monkeypatch.undo()
    assert set(contents(tmp_path / "d")) == {INFO_FILE, "shard-00000.parquet", "shard-00001.parquet"}
    write(tmp_path / "d")
    write(tmp_path / "undisturbed")
    assert contents(tmp_path / "d") == contents(tmp_path / "undisturbed")


def test_shards_are_on_the_disk_before_they_have_their_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.readlink(f"/proc/self/fd/{descriptor}")))
    write(tmp_path / "d", tasks=range(1))
    names = [Path(path).name.partition(".part-")[0] for path in synced]
    assert names == [".dataset.json", "d", ".shard-00000.parquet", "d", ".dataset.json", "d"]


def test_leftovers_of_a_killed_run_are_removed(tmp_path: Path) -> None:
    folder = tmp_path / "d"
    folder.mkdir()
    for name in (".dataset.json.part-99", ".shard-00001.parquet.part-99", ".lock"):  # killed at the very beginning
        (folder / name).write_text("half")
    write(folder, make=make_or_fail, tasks=range(3))
    assert set(contents(folder)) == {INFO_FILE, *(f"shard-{index:05d}.parquet" for index in range(3))}


def test_two_runs_at_once_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "d"
    folder.mkdir()
    with only_writer(folder):
        part = folder / ".shard-00001.parquet.part-1"
        part.write_text("of the run that has the folder")
        with pytest.raises(DatasetError, match=rf"another run \(process {os.getpid()}\): wait for it or choose"):
            write(folder)
        assert part.exists()
        part.unlink()
    write(folder)
    assert len(Dataset(folder)) == 3 * NUM_SHARDS


def test_a_folder_never_has_two_writers(tmp_path: Path) -> None:
    inside: list[int] = []
    most, entered = 0, 0

    def enter_often() -> None:
        nonlocal most, entered
        for _ in range(200):
            try:
                with only_writer(tmp_path):
                    inside.append(1)
                    most, entered = max(most, len(inside)), entered + 1
                    time.sleep(1e-5)
                    inside.pop()
            except DatasetError:
                continue

    threads = [threading.Thread(target=enter_often) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1
    assert entered > 0
    assert list(tmp_path.iterdir()) == []


def test_other_settings_are_refused_by_name(tmp_path: Path) -> None:
    settings = {"seed": 0, "families": ("grid", "ramp"), "size": {"a": 1}}
    write(tmp_path / "d", settings=settings)
    assert write(tmp_path / "d", settings={**settings, "families": ["grid", "ramp"]}).complete  # the same in JSON
    with pytest.raises(DatasetError, match=r"other settings \(seed is 0, asked for 7, speed is None, asked for 2.5\)"):
        write(tmp_path / "d", settings={**settings, "seed": 7, "speed": 2.5})
    with pytest.raises(DatasetError, match="source is 'made-up', asked for 'womd'"):
        write(tmp_path / "d", settings=settings, source="womd")
    with pytest.raises(DatasetError, match=r"holds a dataset of 8 shards, but the same settings now ask for 9"):
        write(tmp_path / "d", settings=settings, tasks=range(9))


def test_long_settings_are_cut_short(tmp_path: Path) -> None:
    write(tmp_path / "d", settings={"files": ["x" * 1000]})
    with pytest.raises(DatasetError) as caught:
        write(tmp_path / "d", settings={"files": ["y" * 1000]})
    assert len(str(caught.value)) < 400 + len(str(tmp_path))


def test_a_folder_with_other_things_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(DatasetError, match="is not empty and holds no dataset: choose another folder"):
        write(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_file_is_not_a_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DatasetError, match="is a file: expected a folder, or the name of one to make"):
        write(tmp_path / "file")
    with pytest.raises(DatasetError, match="cannot be made"):
        write(tmp_path / "file" / "d")


def test_a_folder_that_cannot_be_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "d").mkdir()

    def refuse(path: Path, *args: Any, **options: Any) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "open", refuse)  # the tests may run as root, whom the system refuses nothing
    with pytest.raises(DatasetError, match=r"cannot be written to .*Permission denied"):
        write(tmp_path / "d")


def test_a_foreign_shard_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "d"
    with pytest.raises(RuntimeError):
        write(folder, make=make_or_fail)
    (folder / "shard-00006.parquet").write_text("not Parquet")
    with pytest.raises(
        DatasetError, match=r"shard-00006.parquet cannot be read .* it is not a shard of this dataset, so remove it"
    ):
        write(folder)


def test_a_newer_dataset_is_not_continued(tmp_path: Path) -> None:
    write(tmp_path / "d")
    path = tmp_path / "d" / INFO_FILE
    path.write_text(json.dumps({**json.loads(path.read_text()), "schema_version": 2}))
    with pytest.raises(DatasetError, match="schema version 2, this waycode reads 1"):
        write(tmp_path / "d")


def test_temporary_folders_of_killed_processes_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    abandoned, young, used, other = (tmp_path / name for name in ("waycode-a", "waycode-b", "waycode-c", "others-d"))
    for folder in (abandoned, young, used, other):
        folder.mkdir()
        (folder / "network.xml").write_text("<net/>")
        if folder != young:
            os.utime(folder, (0, 0))
    with only_writer(used):
        os.utime(used, (0, 0))
        with temporary_folder("waycode-") as mine:
            assert mine.stat().st_mode & 0o777 == 0o700
            assert {path.name for path in tmp_path.iterdir()} == {"waycode-b", "waycode-c", "others-d", mine.name}
    assert not mine.exists()


def test_a_temporary_file_has_a_name_that_cannot_be_guessed(tmp_path: Path) -> None:
    names: list[str] = []

    def write_to(path: Path) -> None:
        names.append(path.name)
        path.write_text("a")

    for _ in range(2):
        replace_file(tmp_path / ("x" * 255), write_to)
    assert names[0] != names[1]
    assert str(os.getpid()) not in names[0].split("part-")[0]
    assert [path.name for path in tmp_path.iterdir()] == ["x" * 255]
