"""What is fuzzed: the readers of the raw data of others."""

import gzip
import lzma
import shutil
import sqlite3
from contextlib import closing
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

import test_argoverse2
import test_gpudrive
from fuzz_base import Target, refused
from fuzz_inputs import ODD_VALUES, Random, choose, damaged_bytes, damaged_json, damaged_table, json_text
from waycode.scene import WaycodeError


class GpuDrive(Target):
    """GPUDrive's JSON, plain and packed."""

    def prepare(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)

    def run(self, random: Random) -> bool:
        from waycode.sources.gpudrive import GpuDriveSource

        content = json_text(damaged_json(test_gpudrive.small_content(), random), random)
        suffix, pack = choose(random, [("", bytes), ("", bytes), (".gz", _gzip), (".xz", _xz)])
        packed = pack(content)
        path = self.folder / f"scene.json{suffix}"
        path.write_bytes(damaged_bytes(packed, random) if suffix and random.random() < 0.5 else packed)
        source = GpuDriveSource(self.folder)
        try:
            source.read(str(path)).validate()
        except WaycodeError as error:
            return _source_refusal(path, error)
        return True


def _gzip(content: bytes) -> bytes:
    return gzip.compress(content, 1)


def _xz(content: bytes) -> bytes:
    return lzma.compress(content, preset=0)


def _source_refusal(path: Path, error: WaycodeError) -> bool:
    from waycode.scene import InvalidScene

    return False if isinstance(error, InvalidScene) else refused(path, error)  # `convert` adds the file to the former


class Argoverse2(Target):
    """Argoverse 2: a table of tracks and a map in JSON."""

    def prepare(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(test_argoverse2.small_table("one"), self.folder / "scenario_one.parquet")

    def run(self, random: Random) -> bool:
        from waycode.sources.argoverse2 import Argoverse2Source

        path, world = self.folder / "scenario_one.parquet", test_argoverse2.small_map()
        table = test_argoverse2.small_table("one")
        if random.random() < 0.5:
            world = damaged_json(world, random)
        elif random.random() < 0.8:
            table = damaged_table(table, random)
        (self.folder / "log_map_archive_one.json").write_bytes(json_text(world, random))
        pq.write_table(table, path)
        if random.random() < 0.1:
            path.write_bytes(damaged_bytes(path.read_bytes(), random))
        try:
            Argoverse2Source(self.folder).read(str(path)).validate()
        except WaycodeError as error:
            return _source_refusal(path.parent, error)
        return True


class Womd(Target):
    """WOMD's TFRecords: damaged messages in whole frames, and damaged frames."""

    @cached_property
    def message(self) -> Any:
        from google.protobuf.json_format import MessageToDict

        import test_womd

        return MessageToDict(test_womd.small_scenario(), preserving_proto_field_name=True)

    def prepare(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)

    def run(self, random: Random) -> bool:
        from google.protobuf.json_format import ParseDict, ParseError

        import test_womd
        from waycode.sources.womd import WomdSource
        from waycode.sources.womd.scenario import scenario_class

        try:
            payload = ParseDict(damaged_json(self.message, random), scenario_class()()).SerializeToString()
        except (ParseError, TypeError, ValueError, AttributeError, RecursionError, OverflowError):  # not in a message
            payload = damaged_bytes(test_womd.small_scenario().SerializeToString(), random)
        content = test_womd.framed(payload)
        if random.random() < 0.2:
            content = damaged_bytes(content + content, random)
        path = self.folder / "a.tfrecord"
        path.write_bytes(content)
        source = WomdSource(path)
        try:
            for reference in source.references():
                source.read(reference).validate()
        except WaycodeError as error:
            return _source_refusal(path, error)
        return True


class NuplanLog(Target):
    """nuPlan's logs: any value in any column, damaged pages."""

    def prepare(self) -> None:
        import nuplan_files

        self.folder.mkdir(parents=True, exist_ok=True)
        nuplan_files.write_map(self.folder / "maps")
        nuplan_files.write_log(self.folder / "whole.db")

    def run(self, random: Random) -> bool:
        log = self.folder / "log.db"
        shutil.copy(self.folder / "whole.db", log)
        _damage_file(log, random)
        return self.read(log, self.folder / "maps")

    def read(self, log: Path, maps: Path) -> bool:
        from waycode.sources.nuplan import NuplanSource

        source = NuplanSource(log, maps)
        try:
            for reference in source.references()[:1]:
                source.read(reference).validate()
        except WaycodeError as error:
            return _source_refusal(self.folder, error)
        return True


class NuplanMap(NuplanLog):
    """nuPlan's maps: any value in any layer, damaged pages."""

    def run(self, random: Random) -> bool:
        import nuplan_files
        from waycode.sources.nuplan.maps import city_map

        maps = self.folder / "other-maps"
        shutil.rmtree(maps, ignore_errors=True)
        shutil.copytree(self.folder / "maps", maps)
        _damage_file(maps / nuplan_files.LOCATION / nuplan_files.VERSION / "map.gpkg", random)
        city_map.cache_clear()
        return self.read(self.folder / "whole.db", maps)


def _damage_file(path: Path, random: Random) -> None:
    if random.random() < 0.2:
        path.write_bytes(damaged_bytes(path.read_bytes(), random))
    else:
        _damage_database(path, random)


def _damage_database(path: Path, random: Random) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for _ in range(int(random.integers(1, 4))):
            table = choose(random, [name for name in tables if not name.startswith(("sqlite_", "rtree_"))])
            columns = [row[1] for row in connection.execute(f'PRAGMA table_info("{table}")')]
            value = choose(random, [v for v in ODD_VALUES if isinstance(v, (int, float, str, type(None)))])
            if isinstance(value, int) and abs(value) >= 2**63:
                value = b"\0\1"
            where = "" if random.random() < 0.3 else f" WHERE rowid % 7 = {int(random.integers(7))}"
            try:
                connection.execute(f'UPDATE "{table}" SET "{choose(random, columns)}" = ?{where}', [value])  # noqa: S608
            except sqlite3.Error:  # a constraint, or a table without rowid
                connection.execute(f'DELETE FROM "{table}"')  # noqa: S608
