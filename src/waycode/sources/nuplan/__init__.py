"""nuPlan: logs from sqlite files (`<name>.db`), maps from GeoPackages (`<maps>/<location>/<version>/map.gpkg`).

No real nuPlan file was available when this was written: the schema was taken from nuPlan's documentation and from
how its devkit reads these files, and the tests run on small files of that schema (tests/nuplan_files.py).

What the data says, and how it is used: `ego_pose` is the rear axle in the world, with velocities in the car's own
frame; boxes (`lidar_box`) are in the world, velocities too; both are tied to 20 Hz frames (`lidar_pc`), of which
every second one, by its timestamp, becomes a step. A frame that is missing leaves a masked step; windows with longer
gaps are not offered. `to_predict` holds the ego alone, as nuPlan is about planning.

A user of the real logs reports that the ego's sideways velocity looks wrong (nuplan-devkit issue 337); it is used as
recorded. How lane boundaries are painted is not in the maps: see `crop._road_lines` for what is made of them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int64

from waycode.scene import Scene
from waycode.scene.frames import scene_origin
from waycode.sources.base import SourceError
from waycode.sources.nuplan.crop import crop_map
from waycode.sources.nuplan.log import STEP_S, LogIndex, Window, open_log, read_index, read_window, window_frames
from waycode.sources.nuplan.maps import city_map, map_file
from waycode.sources.nuplan.tracks import ego_path, signals_of, tracks_of, world_tracks

__all__ = ["NuplanReference", "NuplanSource", "read"]


class NuplanReference(NamedTuple):
    """A scene: the log's file and the token (in hexadecimal) of the frame that is its current step."""

    log: str
    token: str


@dataclass(frozen=True)
class NuplanSource:
    """Scenes around the tagged frames of nuPlan logs (or around a frame every `every_s` seconds).

    `logs` are .db files or folders of them. With `scenario_types`, only frames that carry one of these tags count.
    """

    logs: str | Path | Sequence[str | Path]
    maps_root: str | Path
    _: KW_ONLY
    history_s: float = 2.0
    future_s: float = 8.0  # 15 s for closed-loop simulation
    every_s: float | None = None
    scenario_types: tuple[str, ...] | None = None
    map_radius_m: float = 120.0

    def __post_init__(self) -> None:
        for name in ("history_s", "future_s", "map_radius_m", "every_s"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise SourceError(f"{name} is {value}, expected a positive number")

    @property
    def name(self) -> str:
        return "nuplan"

    @property
    def steps(self) -> Int64[np.ndarray, " T"]:
        """The steps of a scene, counted from the current one."""
        return np.arange(-round(self.history_s / STEP_S), round(self.future_s / STEP_S) + 1)

    def references(self) -> list[NuplanReference]:
        """The frames around which the log covers the whole history and future, log by log, in the order of time."""
        found: list[NuplanReference] = []
        available: set[str] = set()
        for file in self._files():
            with open_log(file) as log:
                index = read_index(log)
            available.update(*index.tags.values())
            frames = self._candidates(index)
            _, good = window_frames(index.times_us, frames, self.steps)
            found += [NuplanReference(str(file), index.tokens[frame].hex()) for frame in frames[good]]
        wanted = self.scenario_types
        if not found and wanted is not None and available.isdisjoint(wanted):
            raise SourceError(f"no frame has a tag of {', '.join(wanted)}; there are {', '.join(sorted(available))}")
        return found

    def read(self, reference: NuplanReference) -> Scene:
        file = Path(reference.log)
        with open_log(file) as log:
            window = read_window(log, bytes.fromhex(reference.token), self.steps)
        return self._scene(file, reference.token, window)

    def _scene(self, file: Path, token: str, window: Window) -> Scene:
        city = city_map(str(map_file(Path(self.maps_root), window.map_names, file)))
        tracks = world_tracks(window)
        origin_m = scene_origin(tracks.position_m, tracks.valid)
        cropped = crop_map(city, ego_path(tracks), radius_m=self.map_radius_m, origin_m=origin_m)
        return Scene(
            id=f"{file.stem}_{token}",
            source=self.name,
            dt_s=STEP_S,
            current_step=-int(self.steps[0]),
            origin_m=origin_m,
            tracks=tracks_of(tracks, origin_m),
            map=cropped.features,
            signals=signals_of(window, cropped, origin_m),
            route=cropped.route(city, window.roadblocks),
            tags=window.tags,
        )

    def _candidates(self, index: LogIndex) -> Int64[np.ndarray, " k"]:
        """Indices of the frames that are asked for, whether or not the log covers enough time around them."""
        if self.every_s is None:
            frames = [i for i, token in enumerate(index.tokens) if token in index.tags]
        else:
            first_us, last_us = index.times_us[0] + round(self.history_s * 1e6), index.times_us[-1]
            wanted_us = np.arange(first_us, last_us + 1, round(self.every_s * 1e6))
            frames = sorted({int(np.abs(index.times_us - time_us).argmin()) for time_us in wanted_us})
        if self.scenario_types is not None:
            wanted = set(self.scenario_types)
            frames = [frame for frame in frames if not wanted.isdisjoint(index.tags.get(index.tokens[frame], ()))]
        return np.array(frames, np.int64)

    def _files(self) -> list[Path]:
        files: list[Path] = []
        for path in [self.logs] if isinstance(self.logs, str | Path) else self.logs:
            here = sorted(Path(path).glob("*.db")) if Path(path).is_dir() else [Path(path)]
            if not here:
                raise SourceError(f"{path} has no .db file: expected nuPlan's logs, such as nuplan-v1.1/splits/mini")
            files += here
        return files


def read(logs: str | Path | Sequence[str | Path], maps_root: str | Path, **settings: Any) -> Iterator[Scene]:
    """Every scene of the logs; settings are those of `NuplanSource`."""
    source = NuplanSource(logs, maps_root, **settings)
    for reference in source.references():
        yield source.read(reference)
