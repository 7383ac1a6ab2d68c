"""The library's desk: scenes to list, draw and save, drives to play, and objectives to read."""

import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from waycode.dataset.dataset import save_scene
from waycode.scene import Scene
from waycode.studio.caching import ComputedOnce
from waycode.studio.catalogue import SceneCatalogue, SceneFilter, SceneSource
from waycode.studio.drive_messages import DriveResult
from waycode.studio.drives import drive_result
from waycode.studio.messages import ParsedObjective, Theme
from waycode.studio.objective_rows import parsed_objective
from waycode.studio.scene_messages import SceneList, SceneReply
from waycode.studio.scenes import scene_reply, thumbnail

_READ_PAUSE_S = 0.02  # between scenes that are read in the background: requests come first
_NUM_CACHED_PICTURES = 512  # thumbnails, some 10 kB each


class Library:
    """Answers requests about scenes. Their manoeuvres are found in the background."""

    def __init__(self, sources: Sequence[SceneSource], *, reads_ahead: bool = True):
        """Opens the list.

        Args:
            sources: scenes that can be read; there are no others.
            reads_ahead: find the manoeuvres of all scenes in the background.
        """
        self.catalogue = SceneCatalogue(sources)
        self._thumbnails: ComputedOnce[tuple[str, int, Theme], str] = ComputedOnce(
            lambda key: thumbnail(self._read(*key[:2]), theme=key[2]), size=_NUM_CACHED_PICTURES
        )
        if reads_ahead:
            threading.Thread(target=self._read_manoeuvres, daemon=True).start()

    def scenes(self, wanted: SceneFilter) -> SceneList:
        return self.catalogue.list(wanted)

    def scene(self, dataset: str, index: int) -> SceneReply:
        has_drive = self.catalogue.source(dataset).has_drives
        return scene_reply(self._read(dataset, index), dataset=dataset, index=index, has_drive=has_drive)

    def thumbnail(self, dataset: str, index: int, theme: Theme) -> str:
        return self._thumbnails((dataset, index, theme))

    def parquet(self, dataset: str, index: int) -> bytes:
        """The scene as a file."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "scene.parquet"
            save_scene(self._read(dataset, index), path)
            return path.read_bytes()

    def drive(self, dataset: str, index: int) -> DriveResult:
        """The kept drive that this scene is."""
        return drive_result(self.catalogue.source(dataset).drive(index))

    def parse(self, text: str) -> ParsedObjective:
        return parsed_objective(text)

    def _read(self, dataset: str, index: int) -> Scene:
        return self.catalogue.source(dataset).read(index)

    def _read_manoeuvres(self) -> None:
        while self.catalogue.read_next():
            time.sleep(_READ_PAUSE_S)
