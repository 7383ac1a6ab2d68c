"""What is fuzzed: every reader of files and text. A run ends well, or with an error of ours that names the file."""

import gzip
import json
import lzma
import shutil
import sqlite3
from abc import ABC, abstractmethod
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

import test_argoverse2
import test_gpudrive
from dataset_run import make_shard
from fuzz_inputs import ODD_VALUES, Random, choose, damaged_bytes, damaged_json, damaged_table, damaged_words, json_text
from scenes import small_scene, traffic_scene
from waycode.dataset.checks import check_dataset
from waycode.dataset.dataset import INFO_FILE, Dataset, load_scene, write_dataset
from waycode.dataset.files import sha256_of_file
from waycode.dataset.storage import scenes_to_table, write_shard
from waycode.scene import Scene, WaycodeError


@dataclass(frozen=True)
class Target(ABC):
    """Something that reads what others wrote.

    `prepare` is called once; `run` reads one damaged input, which is a function of the random generator alone.
    """

    folder: Path  # for the target's files

    @property
    def name(self) -> str:
        return type(self).__name__.lower()

    @abstractmethod
    def prepare(self) -> None:
        """Writes the undamaged files."""

    @abstractmethod
    def run(self, random: Random) -> bool:
        """Damages and reads; whether the input was accepted. Raises `Finding` for an answer that is not as promised."""


class Finding(Exception):  # noqa: N818 (what fuzzing looks for)
    """An answer that breaks a promise."""


def refused(path: Path, error: WaycodeError) -> bool:
    """False; an error of a reader must be one sentence that names the file."""
    text = str(error)
    if str(path) not in text:
        raise Finding(f"the file is not named in: {text[:300]}") from error
    if len(text) > 2000:
        raise Finding(f"the message has {len(text)} characters: {text[:300]}") from error
    return False


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


class Nuplan(Target):
    """nuPlan's logs: any value in any column, damaged pages; and its maps."""

    def prepare(self) -> None:
        import nuplan_files

        self.folder.mkdir(parents=True, exist_ok=True)
        nuplan_files.write_map(self.folder / "maps")
        nuplan_files.write_log(self.folder / "whole.db")

    def run(self, random: Random) -> bool:
        import nuplan_files
        from waycode.sources.nuplan import NuplanSource
        from waycode.sources.nuplan.maps import city_map

        log, root = self.folder / "log.db", self.folder / "maps"
        shutil.copy(self.folder / "whole.db", log)
        damaged = [log]
        if random.random() < 0.3:
            root = self.folder / "other-maps"
            shutil.rmtree(root, ignore_errors=True)
            shutil.copytree(self.folder / "maps", root)
            damaged = [root / nuplan_files.LOCATION / nuplan_files.VERSION / "map.gpkg"]
            city_map.cache_clear()
        for path in damaged:
            if random.random() < 0.2:
                path.write_bytes(damaged_bytes(path.read_bytes(), random))
            else:
                _damage_database(path, random)
        source = NuplanSource(log, root)
        try:
            for reference in source.references()[:1]:
                source.read(reference).validate()
        except WaycodeError as error:
            return _source_refusal(self.folder, error)
        return True


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


class DatasetFolder(Target):
    """Datasets: damaged descriptions, shards of other columns, damaged bytes."""

    def prepare(self) -> None:
        write_dataset(self.folder / "whole", range(2), make=make_shard, source="made-up", settings={"seed": 0})

    def run(self, random: Random) -> bool:
        out = self.folder / "damaged"
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(self.folder / "whole", out)
        shard, info = out / "shard-00001.parquet", json.loads((out / INFO_FILE).read_text())
        known = [small_scene(f"1-{number}") for number in range(3)]
        kind = random.random()
        if kind < 0.4:
            table = damaged_table(scenes_to_table(known), random)
            pq.write_table(table, shard, row_group_size=1)
        elif kind < 0.6:
            shard.write_bytes(damaged_bytes(shard.read_bytes(), random))
        if random.random() < 0.7:  # as a tool that wrote it on purpose would
            info["shards"][1]["sha256"] = sha256_of_file(shard)
        if kind >= 0.6:
            info = damaged_json(info, random)
        (out / INFO_FILE).write_bytes(json_text(info, random))
        accepted = True
        try:
            dataset = Dataset(out)
            dataset.ids()
            for scene in dataset:
                scene.validate()
        except WaycodeError as error:
            accepted = refused(out, error)
        try:
            load_scene(shard, 1).validate()
        except WaycodeError as error:
            refused(shard, error)
        try:
            check_dataset(out)
        except WaycodeError as error:
            refused(out, error)
        return accepted


class ObjectiveText(Target):
    """Objectives as text."""

    def prepare(self) -> None:
        pass

    def run(self, random: Random) -> bool:
        from waycode.objectives import OBJECTIVES, ObjectiveError, parse_objective

        vocabulary = [
            *OBJECTIVES, "(", ")", ",", "=", "[", "]", "+", "*", "then", "where", "1", "-1", "+1", "2.5", "1e999", ".",
            "#", "\n", "frame", "agent", "x_m", "\0", "é", "lane-", "--", "1e", "true", "none", "'", "a" * 500,
        ]  # fmt: skip
        text = damaged_words(
            "2 * goal-point( 10 , 3 ) + comfort then lane-change( +1 ) where road-edge", vocabulary, random
        )
        try:
            objective = parse_objective(text)
        except ObjectiveError as error:
            if len(str(error)) > 2000:
                raise Finding(f"the message has {len(str(error))} characters") from error
            return False
        if str(parse_objective(str(objective))) != str(objective):
            raise Finding(f"{objective} is not what its text says")
        return True


class PlanJson(Target):
    """Plans in JSON."""

    @cached_property
    def content(self) -> Any:
        return json.loads(example_plan().to_json())

    def prepare(self) -> None:
        pass

    def run(self, random: Random) -> bool:
        from waycode.planner import Plan, PlannerError

        try:
            plan = Plan.from_json(json_text(damaged_json(self.content, random), random).decode(errors="replace"))
        except PlannerError as error:
            if len(str(error)) > 2000:
                raise Finding(f"the message has {len(str(error))} characters") from error
            return False
        if not all(np.isfinite(getattr(plan, name)).all() for name in ("x_m", "y_m", "heading_rad", "speed_mps")):
            raise Finding("the plan is not finite")
        if len({len(getattr(plan, name)) for name in ("time_s", "x_m", "y_m", "std_m")}) != 1:
            raise Finding("the plan has arrays of unequal length")
        plan.to_json()
        return True


def example_plan() -> Any:
    """A plan as `View.plan` gives it."""
    from waycode.planner import Plan, PlanStatus

    steps = np.arange(1.0, 9.0)
    return Plan(
        scene_id="a", agent_id="b", time_s=0.1 * steps, x_m=steps, y_m=-steps, heading_rad=0 * steps,
        speed_mps=steps, std_m=np.ones((8, 2)), tokens=(1, 2), latents=np.ones((2, 3)), log_probability=-1.5,
        costs={"comfort": 1.0}, levels=(1.0, 2.0), status=PlanStatus.FOUND, satisfied=True, rejected=False,
        message="the best plan", depth=2,
        num_decodes=16, timings_s={"encode": 0.1},
    )  # fmt: skip


class ModelFolder(Target):
    """Models: damaged configurations, thresholds and weights."""

    def prepare(self) -> None:
        from tiny_model import tiny_model
        from waycode.model.saved import save_model

        save_model(self.folder / "whole", tiny_model(), sigma_max_m={1: 4.5, 2: 3.25}, card="# A model")

    def run(self, random: Random) -> bool:
        from waycode.model.saved import load_model

        out = self.folder / "damaged"
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(self.folder / "whole", out)
        for name in ("config.json", "thresholds.json"):
            if random.random() < 0.6:
                content = damaged_json(json.loads((out / name).read_text()), random)
                (out / name).write_bytes(json_text(content, random))
        if random.random() < 0.3:
            path = out / "model.safetensors"
            path.write_bytes(damaged_bytes(path.read_bytes(), random))
        try:
            saved = load_model(out)
        except WaycodeError as error:
            return refused(out, error)
        if not all(bool(value.isfinite().all()) for value in saved.model.state_dict().values()):
            raise Finding("a weight is not finite")
        if not all(np.isfinite(value) for value in saved.sigma_max_m.values()):
            raise Finding("a threshold is not finite")
        return True


class RunFolder(Target):
    """Folders of training runs that are to be resumed: everything that is read before the first step."""

    def prepare(self) -> None:
        import torch

        from waycode.training.checkpoints import WholeCheckpoints
        from waycode.training.config import config_as_json, tiny

        out = self.folder / "whole"
        out.mkdir(parents=True, exist_ok=True)
        config = config_as_json(tiny())
        (out / "training.json").write_text(json.dumps(config))
        (out / "metrics.csv").write_text("step,loss,ade_m\n20,1.5,2.5\n40,1.25,2.0\n")
        (out / "validation.jsonl").write_text('{"step": 20, "sigma": 0.1}\n{"step": 40, "sigma": 0.2}\n')
        writer = WholeCheckpoints(config)
        for step in (20, 40):
            content: dict[str, Any] = {
                "global_step": step, "state_dict": {"weight": torch.ones(50)}, "optimizer_states": [], "loops": {},
                "callbacks": {},
            }  # fmt: skip
            writer.save_checkpoint(content, out / "last.ckpt")

    def run(self, random: Random) -> bool:
        from waycode.training import run
        from waycode.training.callbacks import keep_rows
        from waycode.training.config import tiny

        out = self.folder / "damaged"
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(self.folder / "whole", out)
        for path in sorted(out.iterdir()):
            if random.random() < 0.4:
                content = path.read_bytes()
                if path.suffix == ".json" and random.random() < 0.5:
                    path.write_bytes(json_text(damaged_json(json.loads(content), random), random))
                else:
                    path.write_bytes(damaged_bytes(content, random))
        notices: list[str] = []
        accepted = True
        try:
            checkpoint = run._check_folder(out, tiny(), resume=True, on_notice=notices.append)
            if checkpoint is not None and run.last_step(out) not in (20, 40):
                raise Finding(f"the run goes on from step {run.last_step(out)}")
        except WaycodeError as error:
            accepted = refused(out, error)
        keep_rows(out / "metrics.csv", up_to_step=40)
        return accepted


class DriveFile(Target):
    """Drives of `waycode simulate`, which the studio plays."""

    def prepare(self) -> None:
        import waycode as wc
        from waycode.baselines import ConstantVelocity
        from waycode.demo import bundled_dataset
        from waycode.simulation.drive_file import Drive, save_drive
        from waycode.simulation.rollout import SimulationConfig

        scene, config = bundled_dataset()[0], SimulationConfig(horizon_s=0.5, keep_plans=True)
        rollout = wc.simulate(scene, ConstantVelocity(), config=config)
        save_drive(Drive.of(scene, rollout, planner="idm", traffic="replay"), self.folder / "whole.parquet")

    def run(self, random: Random) -> bool:
        from waycode.simulation.drive_file import drive_notes, load_drive

        whole, path = self.folder / "whole.parquet", self.folder / "scene-000000.parquet"
        notes = damaged_json({"drive": drive_notes(whole)}, random)
        write_shard(path, [load_scene(whole)], metadata=notes if isinstance(notes, dict) else {"drive": notes})
        if random.random() < 0.2:
            path.write_bytes(damaged_bytes(path.read_bytes(), random))
        try:
            load_drive(path)
        except WaycodeError as error:
            return refused(path, error)
        return True


class OddScenes(Target):
    """Valid scenes that no sensor would record: they are stored, classified, drawn and planned for all the same."""

    @cached_property
    def planner(self) -> Any:
        from tiny_model import tiny_model
        from waycode.planner import Planner

        return Planner(tiny_model())

    def prepare(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)

    def run(self, random: Random) -> bool:
        from waycode.scene.manoeuvre import classify

        scene = odd_scene(random)
        scene.validate()
        classify(scene)
        objective = choose(random, ["comfort", "lane-change(+1)", "terminal-variance", "left-turn", "collision"])
        try:
            plan = self.planner.encode(scene).plan(objective, gate=False)
        except WaycodeError as error:
            if not any(words in str(error) for words in ("observed", "no lanes", "lane")):
                raise Finding(f"a valid scene is refused: {error}") from error
            return False
        if not np.isfinite(plan.x_m).all():
            raise Finding("the plan is not finite")
        return True


def odd_scene(random: Random) -> Scene:
    """A scene with crowds, gaps, duplicates, points instead of lines, and coordinates at the limits."""
    from waycode.scene import MapFeatures, Polylines, Signals

    scene = traffic_scene(int(random.integers(1000)), num_tracks=int(choose(random, [8, 8, 8, 40])), num_lanes=16)
    tracks, lanes = scene.tracks, scene.map.lanes
    kind = int(random.integers(8))
    if random.random() < 0.01:  # a crowd
        scene = traffic_scene(0, num_tracks=2000, num_lanes=16)
    elif kind == 0:
        scene = replace(scene, map=MapFeatures(), signals=Signals(), route=None)
    elif kind == 1:
        scene = replace(scene, origin_m=(1e7, -1e7))
    elif kind == 2:  # gaps in time
        valid = tracks.valid & (random.random(tracks.valid.shape) < 0.7)
        names = ("x_m", "y_m", "heading_rad", "vx_mps", "vy_mps")
        masked = {name: getattr(tracks, name) * valid for name in names}
        scene = replace(scene, tracks=replace(tracks, valid=valid, **masked))
    elif kind == 3:  # all at one point
        scene = replace(scene, tracks=replace(tracks, x_m=0 * tracks.x_m, y_m=0 * tracks.y_m))
    elif kind == 4:  # lanes without extent, or one upon the other
        points = lanes.centrelines.points_m * 0
        scene = replace(
            scene, map=replace(scene.map, lanes=replace(lanes, centrelines=replace(lanes.centrelines, points_m=points)))
        )
    elif kind == 5:  # the same line many times
        many = Polylines.of([scene.map.road_edges[0]] * 300)
        scene = replace(scene, map=replace(scene.map, road_edges=many, road_edge_types=np.zeros(300, np.int8)))
    elif kind == 6:
        sizes = np.full(len(tracks), choose(random, [1e-6, 200.0]), np.float32)
        scene = replace(scene, tracks=replace(tracks, length_m=sizes, width_m=sizes))
    else:
        far = Polylines.of([np.array([[-16_000, -16_000], [16_000, 16_000]], np.float32)])
        scene = replace(scene, map=replace(scene.map, road_edges=far, road_edge_types=np.zeros(1, np.int8)))
    return scene


TARGETS: tuple[type[Target], ...] = (
    GpuDrive, Argoverse2, Womd, Nuplan, DatasetFolder, ObjectiveText, PlanJson, ModelFolder, RunFolder, OddScenes,
    DriveFile,
)  # fmt: skip
