"""What is fuzzed: our own files. Datasets, models, training runs, unfinished evaluations, indices, drives."""

import json
import shutil
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dataset_run import make_shard
from fuzz_base import Finding, Target, refused
from fuzz_inputs import Random, damaged_bytes, damaged_json, damaged_table, json_text
from scenes import small_scene
from waycode.dataset.checks import check_dataset
from waycode.dataset.dataset import INFO_FILE, Dataset, load_scene, write_dataset
from waycode.dataset.files import sha256_of_file
from waycode.dataset.storage import scenes_to_table, write_shard
from waycode.model import VarianceGate
from waycode.scene import WaycodeError


class DatasetFolder(Target):
    """Datasets: damaged descriptions, shards of other columns, damaged bytes."""

    @cached_property
    def table(self) -> pa.Table:
        return scenes_to_table([small_scene(f"1-{number}") for number in range(3)])

    def prepare(self) -> None:
        write_dataset(self.folder / "whole", range(2), make=make_shard, source="made-up", settings={"seed": 0})

    def run(self, random: Random) -> bool:
        out = self.folder / "damaged"
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(self.folder / "whole", out)
        shard, info = out / "shard-00001.parquet", json.loads((out / INFO_FILE).read_text())
        kind = random.random()
        if kind < 0.4:
            write_damaged(self.table, shard, random, row_group_size=1)
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


def write_damaged(table: pa.Table, path: Path, random: Random, **options: Any) -> None:
    """Writes a damaged table, as long as Parquet can hold it."""
    try:
        pq.write_table(damaged_table(table, random), path, **options)
    except pa.ArrowException:  # such as nulls where the schema has none; what was begun is removed
        pq.write_table(table, path, **options)
        path.write_bytes(damaged_bytes(path.read_bytes(), random))


class ModelFolder(Target):
    """Models, single and joint: damaged configurations, thresholds, weights and calibrations."""

    def prepare(self) -> None:
        from tiny_model import tiny_model
        from waycode.model.saved import save_model
        from waycode.planner.familiarity import Familiarity

        for joint in (False, True):
            out, model = self.folder / f"whole-{joint}", tiny_model(joint=joint)
            save_model(out, model, gate=VarianceGate(sigma_max_m={1: 4.5, 2: 3.25}), card="# A model")
            width = model.config.width
            limits = {"max_distance": np.array(2.0), "max_off_lane": np.array(0.5)}
            Familiarity(mean=np.zeros(width), precision=np.eye(width), **limits).save(out)

    def run(self, random: Random) -> bool:
        from waycode.model.saved import load_model
        from waycode.planner.familiarity import FAMILIARITY_FILE, Familiarity

        out = self.folder / "damaged"
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(self.folder / f"whole-{random.random() < 0.5}", out)
        for name in ("config.json", "thresholds.json"):
            if random.random() < 0.4:
                content = damaged_json(json.loads((out / name).read_text()), random)
                (out / name).write_bytes(json_text(content, random))
        for name, share in (("model.safetensors", 0.2), (FAMILIARITY_FILE, 0.5)):
            if random.random() < share:
                (out / name).write_bytes(damaged_bytes((out / name).read_bytes(), random))
        try:
            saved, familiarity = load_model(out), Familiarity.load(out)
        except WaycodeError as error:
            return refused(out, error)
        if not all(bool(value.isfinite().all()) for value in saved.model.state_dict().values()):
            raise Finding("a weight is not finite")
        if not all(np.isfinite(value) for value in saved.gate.sigma_max_m.values()):
            raise Finding("a threshold is not finite")
        if familiarity is not None and not all(np.isfinite(value).all() for value in vars(familiarity).values()):
            raise Finding("a number of the calibration is not finite")
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


class ScoresFolder(Target):
    """Results of an unfinished closed-loop evaluation, which is to go on."""

    @property
    def campaign(self) -> Any:
        from waycode.simulation.campaign import Campaign
        from waycode.simulation.registry import DriverSpec

        return Campaign(folder=self.folder, indices=(0,), planner=DriverSpec(name="constant-velocity"))

    def prepare(self) -> None:
        from waycode.evaluation.closed_loop_store import ResultStore
        from waycode.simulation.campaign import failed_result

        ResultStore(self.folder).save("whole", failed_result(small_scene(), 0, "why"), digest="d")

    def run(self, random: Random) -> bool:
        from waycode.evaluation.closed_loop_store import ResultStore

        whole, path = self.folder / "whole", self.folder / "damaged" / "scene-000000.parquet"
        shutil.rmtree(path.parent, ignore_errors=True)
        shutil.copytree(whole, path.parent)
        if random.random() < 0.6:
            write_damaged(pq.read_table(path), path, random, write_page_checksum=True)
        else:
            path.write_bytes(damaged_bytes(path.read_bytes(), random))
        try:
            (result,) = ResultStore(self.folder).load("damaged", self.campaign, digest="d")
        except WaycodeError as error:
            return refused(path, error)
        judged = [value for value in result.metrics.values() if not np.isnan(value)]  # NaN: not judged
        numbers = [result.score, result.frozen_s, *judged, *result.planning_s.tolist()]
        if result.index != 0 or not np.isfinite(numbers).all() or not 0 <= result.score <= 1:
            raise Finding(f"a damaged result is used: {result}")
        return True


class IndexFile(Target):
    """Indices of manoeuvres."""

    def prepare(self) -> None:
        from waycode.planner.manoeuvre_index import ManoeuvreIndex

        self.folder.mkdir(parents=True, exist_ok=True)
        ManoeuvreIndex(
            levels=2, scene_index=np.arange(3), scene_ids=("a", "a", "b"), agent_ids=("1", "2", "1"),
            manoeuvres=("left turn", "straight", "straight"), tokens=np.array([[0, 1], [2, 3], [4, 7]]),
            latents=np.ones((3, 2, 3), np.float32),
        ).save(self.folder / "whole.parquet")  # fmt: skip

    def run(self, random: Random) -> bool:
        from waycode.planner.manoeuvre_index import ManoeuvreIndex

        path, table = self.folder / "damaged.parquet", pq.read_table(self.folder / "whole.parquet")
        shutil.copy(self.folder / "whole.parquet", path)
        kind = random.random()
        if kind < 0.3:
            path.write_bytes(damaged_bytes(path.read_bytes(), random))
        elif kind < 0.7:
            write_damaged(table, path, random)
        else:
            ((key, notes),) = table.schema.metadata.items()
            notes = json_text(damaged_json(json.loads(notes), random), random)
            pq.write_table(table.replace_schema_metadata({key: notes}), path)
        try:
            index = ManoeuvreIndex.load(path)
            for row in range(len(index)):
                entry = index.entry(row)
                if index.row_of(entry.scene_id, entry.agent_id) > row:
                    raise Finding("a row is not found where it is")
                index.find(prefix=entry.tokens)
            if len(index):
                index.nearest(index.latents[0], 2)
        except WaycodeError as error:
            return refused(path, error)
        return True


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
