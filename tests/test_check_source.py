"""`check_source` finds what is wrong with a source, and `convert` turns a good one into a dataset."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from scenes import small_scene
from waycode.dataset.dataset import Dataset, DatasetError
from waycode.scene import InvalidScene, Scene
from waycode.sources import SourceError, check_source, convert
from waycode.sources import base as base_module


@dataclass(frozen=True)
class GoodSource:
    """Three scenes that are made up on the spot."""

    name: str = "made-up"
    count: int = 3

    def references(self) -> Sequence[Any]:
        return [f"scene-{index}" for index in range(self.count)]

    def read(self, reference: Any) -> Scene:
        return small_scene(reference, source=self.name)


class Empty(GoodSource):
    def references(self) -> Sequence[Any]:
        return []


class Twice(GoodSource):
    def references(self) -> Sequence[Any]:
        return ["a", "b", "a"]


class Generator(GoodSource):
    def references(self) -> Any:
        return iter(["a", "b"])


class Unpicklable(GoodSource):
    def references(self) -> Sequence[Any]:
        return [lambda: "a"]

    def read(self, reference: Any) -> Scene:
        return small_scene(reference())


class Bound(GoodSource):
    """Holds something that cannot go to another process."""

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("cannot pickle an open database")


class Unstable(GoodSource):
    calls: list[int] = []  # noqa: RUF012 (the fault to be found: state that all share)

    def references(self) -> Sequence[Any]:
        self.calls.append(1)
        return [f"{len(self.calls)}-{index}" for index in range(2)]


class Invalid(GoodSource):
    def read(self, reference: Any) -> Scene:
        return replace(super().read(reference), dt_s=0.0)


class Misnamed(GoodSource):
    def read(self, reference: Any) -> Scene:
        return replace(super().read(reference), source="other")


class SameId(GoodSource):
    def read(self, reference: Any) -> Scene:
        return super().read("always")


class Changing(GoodSource):
    calls: list[int] = []  # noqa: RUF012

    def read(self, reference: Any) -> Scene:
        self.calls.append(1)
        return replace(super().read(reference), tags=(str(len(self.calls)),))


class Raising(GoodSource):
    def read(self, reference: Any) -> Scene:
        if reference == "scene-1":
            raise SourceError("scene-1: byte 17 is not what it should be")
        return super().read(reference)


class Crashing(GoodSource):
    def read(self, reference: Any) -> Scene:
        return {"scene-0": super().read("scene-0")}[reference]


class NotAScene(GoodSource):
    def read(self, reference: Any) -> Any:
        return {"id": reference}


class Lossy(GoodSource):
    """Its tracks' names are a list, where the types say a tuple: on disk, the two are one."""

    def read(self, reference: Any) -> Scene:
        scene = super().read(reference)
        object.__setattr__(scene.tracks, "ids", list(scene.tracks.ids))
        return scene


BAD_SOURCES: list[tuple[type[GoodSource], str]] = [
    (Empty, "references() is empty"),
    (Twice, "references() names a scene twice"),
    (Generator, "references() gives a list_iterator, expected a list"),
    (Unpicklable, "cannot be pickled, so other processes cannot read it"),
    (Bound, "the source cannot be pickled, so other processes cannot read it (cannot pickle an open database)"),
    (Unstable, "references() gives another list when called again"),
    (Invalid, "scene-0: scene 'scene-0' has 1 fault(s): dt_s is 0.0, expected 0.0001 to 60 seconds"),
    (Misnamed, "scene-2: scene.source is 'other', expected 'made-up'"),
    (SameId, "3 scenes have the id 'always'"),
    (Changing, "scene-0: reading twice gives different scenes"),
    (Raising, "scene-1: read() raises SourceError (scene-1: byte 17 is not what it should be)"),
    (Crashing, "scene-2: read() raises KeyError ('scene-2')"),
    (NotAScene, "scene-0: read() gives a dict, expected a Scene"),
    (Lossy, "tracks.ids is ['car', 'walker', 'rider', 'thing'], expected text"),
]


def test_a_good_source_passes() -> None:
    report = check_source(GoodSource())
    assert report.passed
    assert (report.name, report.num_references, report.num_checked) == ("made-up", 3, 3)
    assert check_source(GoodSource(), limit=2).num_checked == 2


@pytest.mark.parametrize(("source", "sentence"), BAD_SOURCES, ids=[kind.__name__ for kind, _ in BAD_SOURCES])
def test_a_bad_source_is_found_out(source: type[GoodSource], sentence: str) -> None:
    report = check_source(source())
    assert not report.passed
    assert any(sentence in fault for fault in report.faults), report.faults


def test_a_scene_that_changes_on_disk_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base_module, "scene_from_row", lambda table: small_scene("another"))
    report = check_source(GoodSource(count=1))
    assert report.faults == ("scene-0: the scene changes on its way through Parquet",)


def test_converting_a_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base_module, "_SCENES_PER_SHARD", 2)
    info = convert(GoodSource(count=5), tmp_path / "d", settings={"files": "x"})
    assert (info.num_scenes, info.num_shards, info.source) == (5, 3, "made-up")
    assert info.settings == {"files": "x", "limit": None, "num_references": 5}
    assert [scene.id for scene in Dataset(tmp_path / "d")] == [f"scene-{index}" for index in range(5)]


def test_converting_a_few(tmp_path: Path) -> None:
    assert convert(GoodSource(count=5), tmp_path / "d", settings={}, limit=2).num_scenes == 2


def test_raw_data_that_grew_is_noticed(tmp_path: Path) -> None:
    convert(GoodSource(count=5), tmp_path / "d", settings={})
    with pytest.raises(DatasetError, match="num_references is 5, asked for 6"):
        convert(GoodSource(count=6), tmp_path / "d", settings={})


def test_nothing_to_convert(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="made-up: nothing to convert was found"):
        convert(Empty(), tmp_path / "d", settings={})
    assert not (tmp_path / "d").exists()


def test_bad_scenes_stop_a_conversion_or_are_counted(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="byte 17"):
        convert(Raising(), tmp_path / "strict", settings={})
    with pytest.raises(SourceError, match="byte 17"):
        convert(Raising(), tmp_path / "strict", settings={"other": 1})  # a failure hinders no other settings
    assert convert(Raising(), tmp_path / "strict", settings={}, skip_bad=True).num_scenes == 2
    info = convert(Raising(), tmp_path / "lenient", settings={}, skip_bad=True, workers=2)
    assert (info.num_scenes, info.rejected) == (2, {"SourceError": 1})
    with pytest.raises(InvalidScene):
        convert(Invalid(), tmp_path / "invalid", settings={})
    assert convert(Invalid(), tmp_path / "none", settings={}, skip_bad=True).rejected == {"InvalidScene": 3}


class Unexpected(GoodSource):
    """Raises what no reader expects."""

    def read(self, reference: Any) -> Scene:
        if reference == "scene-0":
            raise RecursionError("too deep")
        if reference == "scene-1":
            raise OverflowError("int too large")
        return super().read(reference)


def test_whatever_a_source_raises_is_a_source_error_and_can_be_skipped(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="scene-0: RecursionError: too deep"):
        convert(Unexpected(), tmp_path / "none", settings={})
    info = convert(Unexpected(), tmp_path / "some", settings={}, skip_bad=True)
    assert (info.num_scenes, dict(info.rejected)) == (1, {"SourceError": 2})
