"""The scenes that the studio may read, and a list of them that can be filtered."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq

from waycode.dataset.dataset import INFO_FILE, Dataset, DatasetError, load_scene
from waycode.dataset.samples import sample_folder
from waycode.dataset.shards import unreadable
from waycode.scene import Scene, WaycodeError
from waycode.scene.manoeuvre import classify
from waycode.simulation.drive_file import DRIVES_FOLDER, Drive, drive_notes, drive_paths, load_drive
from waycode.studio.errors import NotFoundError
from waycode.studio.messages import DatasetReply
from waycode.studio.scene_messages import SceneFacts, SceneList
from waycode.studio.scenes import default_agent


@dataclass(frozen=True, kw_only=True)
class SceneFilter:
    """Which scenes to list; what is None fits every scene."""

    dataset: str | None = None
    family: str | None = None
    manoeuvre: str | None = None
    source: str | None = None
    text: str | None = None  # part of the scene's id
    offset: int = 0  # number of matching scenes to skip
    limit: int = 60  # number of scenes to return

    def fits(self, facts: SceneFacts) -> bool:
        exact = ("dataset", "family", "manoeuvre", "source")
        is_same = all(getattr(self, name) in (None, getattr(facts, name)) for name in exact)
        return is_same and (self.text is None or self.text.lower() in facts.id.lower())


@dataclass(frozen=True, kw_only=True)
class SceneSource:
    """A dataset, a Parquet file of scenes, or the drives of `waycode simulate`; with what is told of every scene."""

    name: str  # in the API; unique in the studio
    path: Path
    bundled: str | None  # name of the bundled dataset, if it is one
    ids: tuple[str, ...]
    sources: tuple[str, ...]
    tags: tuple[tuple[str, ...], ...]
    dataset: Dataset | None  # None: drives
    drives: tuple[Path, ...] = ()  # a file per scene, the worst drive first
    scores: tuple[float, ...] = ()  # of the drives
    drivers: tuple[str, ...] = ()  # planner and traffic of the drives

    @staticmethod
    def open(path: str | Path, *, name: str, bundled: str | None = None) -> "SceneSource":
        """Reads three small columns; raises `DatasetError` if there are no scenes.

        Args:
            path: folder of a dataset or of `waycode simulate --out`, Parquet file of scenes, or name of bundled scenes.
            name: in the API.
            bundled: name of the bundled dataset, if it is one.
        """
        path = sample_folder(path) or Path(path)
        if path.is_dir() and not (path / INFO_FILE).is_file():
            paths = drive_paths(path / DRIVES_FOLDER)
            if paths:
                return _open_drives(path, paths, name=name)
        dataset = Dataset(path)
        if not len(dataset):
            raise DatasetError(f"{path} has no scenes, expected one or more")
        return SceneSource(
            name=name,
            path=path,
            bundled=bundled,
            ids=tuple(map(str, dataset.column("id"))),
            sources=tuple(map(str, dataset.column("source"))),
            tags=tuple(tuple(tags or ()) for tags in dataset.column("tags")),
            dataset=dataset,
        )

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def has_drives(self) -> bool:
        """Whether every scene is a drive with a score."""
        return len(self.drives) > 0

    def read(self, index: int) -> Scene:
        """A scene; raises `NotFoundError` for a wrong index."""
        self._check(index)
        return load_scene(self.drives[index]) if self.dataset is None else self.dataset[index]

    def drive(self, index: int) -> Drive:
        """The drive that a scene is; raises `NotFoundError` if it is none."""
        self._check(index)
        if not self.has_drives:
            raise NotFoundError(f"{self.name} has recorded scenes, expected drives of `waycode simulate --out`")
        return load_drive(self.drives[index])

    def place(self, index: int) -> tuple[Path, int]:
        """What `load_scene` takes to read a scene."""
        return (self.drives[index], 0) if self.dataset is None else (self.path, index)

    def _check(self, index: int) -> None:
        if not 0 <= index < len(self):
            raise NotFoundError(f"{self.name} has no scene {index}: expected 0 to {len(self) - 1}")


def _open_drives(folder: Path, paths: Sequence[Path], *, name: str) -> SceneSource:
    """The drives of a run of `waycode simulate`; whoever looks at them wants to see the worst first."""
    notes = {path: drive_notes(path) for path in paths}
    with unreadable(folder / DRIVES_FOLDER, hint="run `waycode simulate` again"):
        ordered = sorted(paths, key=lambda path: (float(notes[path]["score"]), path))
        columns = [pq.read_table(path, columns=["id", "source", "tags"]).to_pylist()[0] for path in ordered]
        return SceneSource(
            name=name,
            path=folder,
            bundled=None,
            ids=tuple(str(row["id"]) for row in columns),
            sources=tuple(str(row["source"]) for row in columns),
            tags=tuple(tuple(row["tags"] or ()) for row in columns),
            dataset=None,
            drives=tuple(ordered),
            scores=tuple(float(notes[path]["score"]) for path in ordered),
            drivers=tuple(f"{notes[path]['planner']}, {notes[path]['traffic']} traffic" for path in ordered),
        )


class SceneCatalogue:
    """All scene sources, and what is known of their scenes. Manoeuvres are found by `read_next`, scene by scene."""

    def __init__(self, sources: Sequence[SceneSource]):
        self.sources = {source.name: source for source in sources}
        self._manoeuvres: dict[tuple[str, int], tuple[str, int]] = {}  # -> manoeuvre, number of tracks
        self._unread = iter([(source.name, index) for source in sources for index in range(len(source))])

    def source(self, name: str) -> SceneSource:
        """The source of that name; no other file can be read."""
        if name not in self.sources:
            raise NotFoundError(f"there is no dataset {name!r}; available: {', '.join(self.sources)}")
        return self.sources[name]

    def read_next(self) -> bool:
        """Finds the manoeuvre of one more scene; false if all are known."""
        key = next(self._unread, None)
        if key is None:
            return False
        try:
            scene = self.sources[key[0]].read(key[1])
        except WaycodeError:
            self._manoeuvres[key] = ("unreadable", 0)  # who opens it gets the reason
            return True
        self._manoeuvres[key] = (_main_manoeuvre(scene), len(scene.tracks))
        return True

    def about(self) -> list[DatasetReply]:
        return [
            DatasetReply(
                name=source.name,
                num_scenes=len(source),
                source=", ".join(sorted(set(source.sources))),
                has_drives=source.has_drives,
            )
            for source in self.sources.values()
        ]

    def list(self, wanted: SceneFilter) -> SceneList:
        """The scenes that fit all given filters."""
        if wanted.dataset is not None:
            self.source(wanted.dataset)
        everything = list(self._facts())
        matching = [facts for facts in everything if wanted.fits(facts)]
        return SceneList(
            scenes=matching[wanted.offset : wanted.offset + wanted.limit],
            num_matching=len(matching),
            num_read=len(self._manoeuvres),
            num_scenes=len(everything),
            families=_counts(facts.family for facts in everything),
            manoeuvres=_counts(facts.manoeuvre for facts in everything),
            sources=_counts(facts.source for facts in everything),
        )

    def _facts(self) -> Iterator[SceneFacts]:
        for source in self.sources.values():
            for index, (name, origin, tags) in enumerate(zip(source.ids, source.sources, source.tags, strict=True)):
                manoeuvre, num_tracks = self._manoeuvres.get((source.name, index), (None, None))
                yield SceneFacts(
                    dataset=source.name,
                    index=index,
                    id=name,
                    source=origin,
                    tags=list(tags),
                    family=tags[0] if tags else None,
                    manoeuvre=manoeuvre,
                    num_tracks=num_tracks,
                    score=source.scores[index] if source.has_drives else None,
                    driver=source.drivers[index] if source.has_drives else None,
                )


def _counts(values: Iterator[str | None]) -> dict[str, int]:
    return dict(sorted(Counter(value for value in values if value is not None).items()))


def _main_manoeuvre(scene: Scene) -> str:
    """That of the ego, else of the first track to predict."""
    agent = default_agent(scene)
    return "unobserved" if agent is None else str(classify(scene)[agent])
