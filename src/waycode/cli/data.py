"""`waycode data`: make, convert, describe, check and look at datasets."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from waycode.cli.console import progress, say, say_json
from waycode.scene import WaycodeError

SourceName = Literal["womd", "gpudrive", "nuplan", "argoverse2"]
Flag = tyro.conf.FlagCreatePairsOff[bool]


class UsageError(WaycodeError):
    """Options that do not go together."""


def checked_workers(workers: int) -> int:
    if workers < 1:
        raise UsageError(f"--workers is {workers}, expected at least 1")
    return workers


@dataclass(frozen=True, kw_only=True)
class Sumo:
    """Generate scenes with SUMO: random road networks of ten families, with cars, bicycles and pedestrians.

    The same seed gives the same bytes for any number of workers. A run that was stopped goes on when it is run again.
    """

    out: Path
    """Folder of the dataset."""
    scenes: int = 2000
    """Number of scenes."""
    seed: int = 0
    """Seed of everything random."""
    duration: float = 8.0
    """Seconds of future after the current step: 8 for open loop, 15 for closed loop."""
    families: tuple[str, ...] = ()
    """Families of road networks, by name; all ten if none is named."""
    workers: int = 1
    """Processes to use."""
    json: Flag = False
    """Print the content of dataset.json."""

    def run(self) -> int:
        from waycode.sources.sumo import Family, SumoSettings, generate_dataset

        workers = checked_workers(self.workers)
        unknown = sorted(set(self.families) - set(Family))
        if unknown:
            raise UsageError(f"--families has {', '.join(unknown)}; available: {', '.join(Family)}")
        families = tuple(Family(name) for name in self.families) or tuple(Family)
        settings = SumoSettings(
            num_scenes=self.scenes, seed=self.seed, duration_s=self.duration, families=families
        )  # fmt: skip
        with progress("generating", self.scenes) as advance:
            info = generate_dataset(
                self.out, settings=settings, workers=workers, on_shard=advance
            )  # fmt: skip
        if self.json:
            say_json(info)
        else:
            say(_done(info.num_scenes, info.num_shards, sum(info.rejected.values()), self.out))
        return 0


@dataclass(frozen=True, kw_only=True)
class Convert:
    """Convert the scenes of a real dataset. A run that was stopped goes on when it is run again."""

    sources: tyro.conf.Positional[tuple[Path, ...]]
    """Files or folders of the raw data."""
    kind: Annotated[SourceName, tyro.conf.arg(name="from")]
    """What the raw data is."""
    out: Path
    """Folder of the dataset."""
    workers: int = 1
    """Processes to use."""
    skip_bad: Flag = False
    """Count what cannot be read and go on, instead of stopping at it."""
    limit: int | None = None
    """Convert the first scenes only, at most this many."""
    maps: Path | None = None
    """Folder of the maps (nuplan only)."""
    scenario_types: tuple[str, ...] = ()
    """Take scenes of these types only; all if none is named (nuplan only)."""
    future_s: float | None = None
    """Seconds of future after the current step; 8 if not given (nuplan only)."""
    every_s: float | None = None
    """Take a scene every so many seconds, instead of those that the log's authors have tagged (nuplan only)."""
    json: Flag = False
    """Print the content of dataset.json."""

    def run(self) -> int:
        from waycode.cli.sources import NuplanOptions, open_source
        from waycode.sources import convert

        if self.limit is not None and self.limit < 1:
            raise UsageError(f"--limit is {self.limit}, expected at least 1")
        workers = checked_workers(self.workers)
        options = NuplanOptions(
            maps=self.maps, scenario_types=self.scenario_types, future_s=self.future_s, every_s=self.every_s
        )
        source = open_source(self.kind, self.sources, options)
        settings = {"sources": [str(path) for path in self.sources], **options.as_settings()}
        total = len(source.references()[: self.limit])
        with progress("converting", total) as advance:
            info = convert(
                source, self.out, settings=settings, workers=workers, skip_bad=self.skip_bad, limit=self.limit,
                on_shard=advance,
            )  # fmt: skip
        if self.json:
            say_json(info)
        else:
            say(_done(info.num_scenes, info.num_shards, sum(info.rejected.values()), self.out))
        return 0


@dataclass(frozen=True, kw_only=True)
class Info:
    """Tell what is in a dataset: scenes, road users, manoeuvres, comfort, map features, rejected scenes, settings."""

    folder: tyro.conf.Positional[Path]
    """Folder of the dataset."""
    workers: int = 1
    """Processes to use."""
    json: Flag = False
    """Print JSON instead of tables."""

    def run(self) -> int:
        from waycode.cli.tables import summary_tables
        from waycode.dataset.dataset import Dataset
        from waycode.dataset.summary import summarise

        workers = checked_workers(self.workers)
        with progress("reading", len(Dataset(self.folder))) as advance:
            summary = summarise(self.folder, workers=workers, on_scenes=advance)
        if self.json:
            say_json(summary)
        else:
            say(summary_tables(summary))
        return 0


@dataclass(frozen=True, kw_only=True)
class Split:
    """Split a dataset in two by the scenes' ids, to hold scenes out for validation."""

    folder: tyro.conf.Positional[Path]
    """Folder of the dataset."""
    kept: Path
    """Folder for the scenes that are kept."""
    held_out: Path
    """Folder for the scenes that are held out."""
    share: float = 0.1
    """Share of the scenes to hold out."""
    workers: int = 1
    """Processes to use."""
    json: Flag = False
    """Print the contents of both dataset.json."""

    def run(self) -> int:
        from waycode.dataset.dataset import Dataset
        from waycode.dataset.split import split_dataset

        workers = checked_workers(self.workers)
        with progress("copying", len(Dataset(self.folder))) as advance:
            infos = split_dataset(
                self.folder, kept=self.kept, held_out=self.held_out, share=self.share, workers=workers, on_shard=advance
            )
        if self.json:
            say_json({"kept": asdict(infos[0]), "held_out": asdict(infos[1])})
        else:
            for info, out in zip(infos, (self.kept, self.held_out), strict=True):
                say(_done(info.num_scenes, info.num_shards, 0, out))
        return 0


@dataclass(frozen=True, kw_only=True)
class Check:
    """Check a dataset: checksums, every scene, unique ids. Exit code 1 if there is any fault."""

    folder: tyro.conf.Positional[Path]
    """Folder of the dataset."""
    workers: int = 1
    """Processes to use."""
    json: Flag = False
    """Print JSON instead of text."""

    def run(self) -> int:
        from waycode.dataset.checks import check_dataset
        from waycode.dataset.dataset import DatasetInfo

        workers = checked_workers(self.workers)
        with progress("checking", DatasetInfo.read(self.folder).num_scenes) as advance:
            report = check_dataset(self.folder, workers=workers, on_scenes=advance)
        if self.json:
            say_json({"passed": report.passed, **asdict(report)})
        elif report.passed:
            say(f"{self.folder} is whole: {report.num_scenes} scenes in {report.num_shards} shards, 0 faults")
        else:
            say("\n".join([f"{self.folder} has {len(report.faults)} fault(s):", *report.faults]))
        return 0 if report.passed else 1


@dataclass(frozen=True, kw_only=True)
class Show:
    """Draw a scene, or several on one sheet."""

    path: tyro.conf.Positional[Path]
    """Folder of a dataset, or a Parquet file of scenes."""
    index: tuple[int, ...] = (0,)
    """Which scene; several are drawn side by side."""
    out: Path = Path("scene.png")
    """The picture: .png, .pdf, .svg or .jpg."""
    radius: float = 60.0
    """Metres around the ego that are shown."""
    whole: Flag = False
    """Show the whole scene instead."""
    agent: str | None = None
    """Id of the road user in the middle; the ego if none is named."""
    step: int | None = None
    """Time step; the current one if none is given."""
    json: Flag = False
    """Print the path and the ids of what was drawn as JSON."""

    def run(self) -> int:
        from waycode.dataset.dataset import load_scene
        from waycode.plotting import save_contact_sheet, save_scene_picture

        if not self.index:
            raise UsageError("--index names no scene, expected at least one number")
        if len(self.index) > 1 and (self.agent is not None or self.step is not None):
            raise UsageError(f"--agent and --step need a single --index, got {len(self.index)}")
        scenes = [load_scene(self.path, index) for index in self.index]
        radius_m = None if self.whole else self.radius
        if len(scenes) == 1:
            save_scene_picture(scenes[0], self.out, agent=self.agent, radius_m=radius_m, step=self.step)
        else:
            save_contact_sheet(scenes, self.out, radius_m=radius_m)
        drawn = [{"index": index, "id": scene.id} for index, scene in zip(self.index, scenes, strict=True)]
        if self.json:
            say_json({"path": str(self.out), "scenes": drawn})
        else:
            say(f"{', '.join(scene.id for scene in scenes)} -> {self.out}")
        return 0


def _done(num_scenes: int, num_shards: int, rejected: int, out: Path) -> str:
    return f"{out}: {num_scenes} scenes in {num_shards} shards, {rejected} turned down (more: waycode data info {out})"


DataCommand = (
    Annotated[Sumo, tyro.conf.subcommand("sumo")]
    | Annotated[Convert, tyro.conf.subcommand("convert")]
    | Annotated[Info, tyro.conf.subcommand("info")]
    | Annotated[Split, tyro.conf.subcommand("split")]
    | Annotated[Check, tyro.conf.subcommand("check")]
    | Annotated[Show, tyro.conf.subcommand("show")]
)


@dataclass(frozen=True, kw_only=True)
class Data:
    """Make, convert, describe, check and draw datasets of scenes."""

    command: DataCommand

    def run(self) -> int:
        return self.command.run()
