"""`waycode data`: generate, convert, describe, split, check and draw datasets."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import tyro

from waycode.cli.console import (
    FAILED,
    Count,
    DatasetPath,
    File,
    Flag,
    Folder,
    MaybeAgent,
    MaybeCount,
    MaybeFile,
    MaybeFolder,
    MaybeSeconds,
    Metres,
    Picture,
    Seconds,
    UsageError,
    check_at_least,
    complain,
    progress_bar,
    say_result,
)

if TYPE_CHECKING:
    from waycode.dataset.dataset import DatasetInfo
    from waycode.sources.base import Source

SourceName = Literal["womd", "gpudrive", "nuplan", "argoverse2"]


@dataclass(frozen=True, kw_only=True)
class Sumo:
    """Generate scenes with SUMO: random road networks of ten families, with cars, bicycles and pedestrians.

    The same seed gives the same bytes for any number of workers. Run a stopped command again to continue it.
    """

    out: Folder
    """Folder of the dataset."""
    scenes: Count = 2000
    """Number of scenes."""
    seed: Count = 0
    """Random seed: 1000 to 1999 for training, 9000 and above for tests, all others for development."""
    future_s: Seconds = 8.0
    """Seconds of future after the current step: 8 for open loop, 15 for closed loop."""
    families: tuple[str, ...] = ()
    """Families of road networks; all ten if not given."""
    workers: Count = 1
    """Number of processes."""
    json: Flag = False
    """Print the content of dataset.json."""

    def run(self) -> int:
        from waycode.sources.sumo import Family, SumoSettings, generate_dataset

        check_at_least(1, workers=self.workers)
        unknown = sorted(set(self.families) - set(Family))
        if unknown:
            raise UsageError(f"--families has {', '.join(unknown)}; available: {', '.join(Family)}")
        families = tuple(Family(name) for name in self.families) or tuple(Family)
        settings = SumoSettings(
            num_scenes=self.scenes, seed=self.seed, duration_s=self.future_s, families=families
        )  # fmt: skip
        with progress_bar("generating", self.scenes) as advance:
            info = generate_dataset(self.out, settings=settings, workers=self.workers, on_shard=advance)
        say_result(info, _written(info, self.out), as_json=self.json)
        return 0


@dataclass(frozen=True, kw_only=True)
class Convert:
    """Convert the scenes of a public dataset. Run a stopped command again to continue it."""

    sources: tyro.conf.Positional[tuple[File, ...]]
    """Files or folders of the raw data."""
    kind: Annotated[SourceName, tyro.conf.arg(name="from")]
    """Format of the raw data."""
    out: Folder
    """Folder of the dataset."""
    workers: Count = 1
    """Number of processes."""
    skip_bad: Flag = False
    """Count and skip scenes that cannot be read, instead of stopping."""
    scenes: MaybeCount = None
    """Convert at most this many scenes, the first ones; all if not given."""
    maps: MaybeFolder = None
    """Folder of the maps (nuplan only)."""
    scenario_types: tuple[str, ...] = ()
    """Convert scenes of these types only; all if not given (nuplan only)."""
    future_s: MaybeSeconds = None
    """Seconds of future after the current step; 8 if not given (nuplan only)."""
    every_s: MaybeSeconds = None
    """Convert a scene every so many seconds, instead of the scenes tagged in the log (nuplan only)."""
    max_unpacked_mb: MaybeCount = None
    """Refuse packed files that are larger when unpacked; 256 if not given (gpudrive only)."""
    json: Flag = False
    """Print the content of dataset.json."""

    def run(self) -> int:
        from waycode.sources import convert

        check_at_least(1, scenes=self.scenes, workers=self.workers)
        check_at_least(1, max_unpacked_mb=self.max_unpacked_mb)
        names = ("maps", "scenario_types", "future_s", "every_s", "max_unpacked_mb")
        options = {name: getattr(self, name) for name in names if getattr(self, name) not in (None, ())}
        source = open_source(self.kind, self.sources, options)
        settings: dict[str, Any] = {"sources": [str(path) for path in self.sources]}
        for name, value in options.items():
            settings[name] = str(value) if isinstance(value, Path) else value
        with progress_bar("converting", len(source.references()[: self.scenes])) as advance:
            info = convert(
                source, self.out, settings=settings, workers=self.workers, skip_bad=self.skip_bad, limit=self.scenes,
                on_shard=advance,
            )  # fmt: skip
        say_result(info, _written(info, self.out), as_json=self.json)
        if info.num_scenes == 0:
            return complain(f"no scene of {', '.join(map(str, self.sources))} could be read: all were skipped", FAILED)
        return 0


def open_source(name: SourceName, paths: tuple[Path, ...], options: dict[str, Any]) -> "Source":
    """Opens a source of scenes; `sources` imports only the module that is used.

    Args:
        name: Format of the raw data.
        paths: Its files and folders.
        options: Arguments of `NuplanSource` or `GpuDriveSource` by name; no other source has any.
    """
    from waycode import sources

    if not paths:
        raise UsageError(f"no raw data was named: expected files or folders of {name}")
    for option in options:
        owner = "gpudrive" if option == "max_unpacked_mb" else "nuplan"
        if owner != name:
            raise UsageError(f"--{option.replace('_', '-')} goes with --from {owner} only, got --from {name}")
    if name == "nuplan":
        maps = options.get("maps")
        if maps is None:
            raise UsageError("nuplan needs --maps, the folder of its maps, got none")
        if not maps.is_dir():
            raise UsageError(f"--maps is {maps}, expected a folder that exists")
        return sources.nuplan.NuplanSource(paths, maps, **{key: options[key] for key in options if key != "maps"})
    if name == "womd":
        return sources.womd.WomdSource(paths)
    if name == "gpudrive":
        return sources.gpudrive.GpuDriveSource(paths, **options)
    return sources.argoverse2.Argoverse2Source(paths)


@dataclass(frozen=True, kw_only=True)
class Info:
    """Describe a dataset: scenes, road users, manoeuvres, comfort, map features, rejected scenes, settings."""

    data: tyro.conf.Positional[DatasetPath]
    """Scenes: folder of a dataset, Parquet file of scenes, or `sample` or `sample-crossings` for the bundled ones."""
    workers: Count = 1
    """Number of processes."""
    json: Flag = False
    """Print JSON instead of tables."""

    def run(self) -> int:
        from waycode.cli.tables import summary_tables
        from waycode.dataset.dataset import Dataset
        from waycode.dataset.summary import summarise

        check_at_least(1, workers=self.workers)
        with progress_bar("reading", len(Dataset(self.data))) as advance:
            summary = summarise(self.data, workers=self.workers, on_scenes=advance)
        say_result(summary, summary_tables(summary), as_json=self.json)
        return 0


@dataclass(frozen=True, kw_only=True)
class Split:
    """Split a dataset in two by the scenes' ids, to hold scenes out for validation."""

    TRAIN: ClassVar[str] = "train"
    VALIDATION: ClassVar[str] = "val"

    data: tyro.conf.Positional[DatasetPath]
    """Scenes: folder of a dataset, Parquet file of scenes, or `sample` or `sample-crossings` for the bundled ones."""
    out: Folder
    """Folder of the two datasets: FOLDER/train, and FOLDER/val with the scenes that are held out."""
    share: float = 0.1
    """Fraction of the scenes to hold out."""
    workers: Count = 1
    """Number of processes."""
    json: Flag = False
    """Print the contents of both dataset.json."""

    def run(self) -> int:
        from waycode.dataset.dataset import Dataset
        from waycode.dataset.split import split_dataset

        check_at_least(1, workers=self.workers)
        with progress_bar("copying", len(Dataset(self.data))) as advance:
            kept, held_out = split_dataset(
                self.data, kept=self.out / self.TRAIN, held_out=self.out / self.VALIDATION, share=self.share,
                workers=self.workers, on_shard=advance,
            )  # fmt: skip
        result = {self.TRAIN: asdict(kept), self.VALIDATION: asdict(held_out)}
        texts = [_written(kept, self.out / self.TRAIN), _written(held_out, self.out / self.VALIDATION)]
        say_result(result, *texts, as_json=self.json)
        return 0


@dataclass(frozen=True, kw_only=True)
class Check:
    """Check a dataset: checksums, every scene, unique ids. The exit code is 1 if there is any fault."""

    data: tyro.conf.Positional[DatasetPath]
    """Scenes: folder of a dataset, Parquet file of scenes, or `sample` or `sample-crossings` for the bundled ones."""
    workers: Count = 1
    """Number of processes."""
    json: Flag = False
    """Print JSON instead of text."""

    def run(self) -> int:
        from waycode.dataset.checks import check_dataset
        from waycode.dataset.dataset import DatasetInfo

        check_at_least(1, workers=self.workers)
        with progress_bar("checking", DatasetInfo.read(self.data).num_scenes) as advance:
            report = check_dataset(self.data, workers=self.workers, on_scenes=advance)
        if report.passed:
            text = f"{self.data} is whole: {report.num_scenes} scenes in {report.num_shards} shards, 0 faults"
        else:
            text = "\n".join([f"{self.data} has {len(report.faults)} fault(s):", *report.faults])
        say_result({"passed": report.passed, **asdict(report)}, text, as_json=self.json)
        return 0 if report.passed else FAILED


@dataclass(frozen=True, kw_only=True)
class Show:
    """Draw a scene, or several on one sheet."""

    data: tyro.conf.Positional[DatasetPath]
    """Scenes: folder of a dataset, Parquet file of scenes, or `sample` or `sample-crossings` for the bundled ones."""
    index: tuple[Count, ...] = (0,)
    """Index of the scene; several are drawn side by side."""
    out: Picture = Path("scene.png")
    """The picture: .png, .pdf, .svg or .jpg."""
    radius_m: Metres = 60.0
    """Metres from the centre to each side."""
    whole: Flag = False
    """Show the whole scene instead."""
    agent: MaybeAgent = None
    """Id of the road user in the centre; the ego if not given."""
    step: MaybeCount = None
    """Time step; the current one if not given."""
    json: Flag = False
    """Print the path and the ids of what was drawn as JSON."""

    def run(self) -> int:
        from waycode.dataset.dataset import load_scene
        from waycode.plotting import save_contact_sheet, save_scene_picture

        if not self.index:
            raise UsageError("--index names no scene, expected at least one number")
        if len(self.index) > 1 and (self.agent is not None or self.step is not None):
            raise UsageError(f"--agent and --step need a single --index, got {len(self.index)}")
        scenes = [load_scene(self.data, index) for index in self.index]
        radius_m = None if self.whole else self.radius_m
        if len(scenes) == 1:
            save_scene_picture(scenes[0], self.out, agent=self.agent, radius_m=radius_m, step=self.step)
        else:
            save_contact_sheet(scenes, self.out, radius_m=radius_m)
        drawn = [{"index": index, "id": scene.id} for index, scene in zip(self.index, scenes, strict=True)]
        text = f"{', '.join(scene.id for scene in scenes)} -> {self.out}"
        say_result({"path": str(self.out), "scenes": drawn}, text, as_json=self.json)
        return 0


@dataclass(frozen=True, kw_only=True)
class Export:
    """Write scenes in the format of other tools.

    womd: Scenario messages in one TFRecord. gpudrive: a JSON file per scene, as GPUDrive and Nocturne read them.
    nuplan: a log (.db) per scene and one map, which nuplan-devkit opens: set its NUPLAN_DATA_ROOT to the folder, and
    NUPLAN_MAPS_ROOT to maps in it. scenarionet: a pickle per scene and a summary, which MetaDrive replays. commonroad:
    an XML file per scene (needs commonroad-io). docs/sources.md says what each format leaves out.
    """

    data: tyro.conf.Positional[DatasetPath]
    """Scenes: folder of a dataset, Parquet file of scenes, or `sample` or `sample-crossings` for the bundled ones."""
    form: Annotated[Literal["womd", "gpudrive", "nuplan", "scenarionet", "commonroad"], tyro.conf.arg(name="to")]
    """The format."""
    out: Folder
    """Folder for the files."""
    index: tuple[Count, ...] = ()
    """Indices of the scenes; all if not given."""
    plan: MaybeFile = None
    """A plan that `waycode plan --json` printed: it becomes its agent's future; needs a single --index."""
    json: Flag = False
    """Print the files as JSON."""

    def run(self) -> int:
        from waycode.dataset.dataset import Dataset, load_scene
        from waycode.sources.export import export_scenes

        if self.plan is not None and len(self.index) != 1:
            raise UsageError(f"--plan needs a single --index, got {len(self.index)}")
        chosen = self.index or range(len(Dataset(self.data)))
        scenes = [load_scene(self.data, index) for index in chosen]
        if self.plan is not None:
            from waycode.planner import Plan

            scenes = [Plan.from_json(self.plan.read_text(errors="replace")).in_scene(scenes[0])]
        files = export_scenes(scenes, self.out, form=self.form)
        text = f"{len(scenes)} scene(s) -> {files[0]}" + (f" and {len(files) - 1} more" if len(files) > 1 else "")
        say_result({"files": [str(file) for file in files]}, text, as_json=self.json)
        return 0


def _written(info: "DatasetInfo", out: Path) -> str:
    counts = f"{info.num_scenes} scenes in {info.num_shards} shards, {sum(info.rejected.values())} rejected"
    return f"{out}: {counts} (more: waycode data info {out})"


@dataclass(frozen=True, kw_only=True)
class Data:
    """Generate, convert, describe, split, check, draw and export datasets of scenes."""

    command: (
        Annotated[Sumo, tyro.conf.subcommand("sumo")]
        | Annotated[Convert, tyro.conf.subcommand("convert")]
        | Annotated[Info, tyro.conf.subcommand("info")]
        | Annotated[Split, tyro.conf.subcommand("split")]
        | Annotated[Check, tyro.conf.subcommand("check")]
        | Annotated[Show, tyro.conf.subcommand("show")]
        | Annotated[Export, tyro.conf.subcommand("export")]
    )

    def run(self) -> int:
        return self.command.run()
