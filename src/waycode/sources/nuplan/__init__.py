"""nuPlan: logs from sqlite files (`<name>.db`), maps from GeoPackages (`<maps>/<location>/<version>/map.gpkg`).

No real nuPlan file was available when this was written. The schema follows nuPlan's documentation and its devkit; the
tests use small files of that schema (tests/nuplan_files.py).

`ego_pose` is the rear axle in world coordinates, with velocities in the ego's frame. Boxes (`lidar_box`) and their
velocities are in world coordinates. Both belong to 20 Hz frames (`lidar_pc`); every second frame, by its timestamp,
becomes a step. A missing frame becomes a masked step; windows with longer gaps are not offered. `to_predict` holds
the ego only, because nuPlan is about planning.

Users of the real logs report that the ego's lateral velocity looks wrong (nuplan-devkit issue 337); it is used as
recorded. Scenarios are nuplan-devkit's: they start `TAG_AFTER_START_S` before a tagged frame, tags in the first two and
last two scenes of a log are dropped, and so are frames of other sensors. The maps do not say how lane boundaries are
painted: `crop._road_lines` makes an assumption.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int64

from waycode.scene import Scene
from waycode.sources.base import SourceError, find_files, list_files, read_all, reading
from waycode.sources.nuplan.crop import crop_map
from waycode.sources.nuplan.log import NUPLAN_STEP_S, LogIndex, open_log, read_index, read_window, window_frames
from waycode.sources.nuplan.maps import city_map, map_file
from waycode.sources.nuplan.tracks import signals_of, world_tracks

__all__ = ["NuplanReference", "NuplanSource", "read"]


_DAMAGED = ""  # token of the one reference of a log that cannot be read


class NuplanReference(NamedTuple):
    """A scene of a log."""

    log: str  # file of the log
    token: str  # of the frame that is the current step, in hexadecimal
    tagged: str = ""  # of the tagged frame, which the devkit names the scenario by; empty without one


@dataclass(frozen=True)
class NuplanSource:
    """nuplan-devkit's scenarios of tagged frames in nuPlan logs, or scenes around frames at a regular interval."""

    logs: str | Path | Sequence[str | Path]  # .db files, and folders that are searched recursively
    maps_root: str | Path  # folder with <location>/<version>/map.gpkg
    _: KW_ONLY
    history_s: float = 2.0  # seconds before the current step
    future_s: float = 8.0  # 15 s for closed-loop simulation
    every_s: float | None = None  # interval between scenes; the starts of tagged scenarios if None
    scenario_types: tuple[str, ...] | None = None  # only starts of scenarios with one of these tags
    map_radius_m: float = 120.0  # around the path of the ego

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
        """The steps of a scene relative to the current one."""
        return np.arange(-round(self.history_s / NUPLAN_STEP_S), round(self.future_s / NUPLAN_STEP_S) + 1)

    def references(self) -> list[NuplanReference]:
        """The frames with a complete history and future, by log and time."""
        available: set[str] = set()

        def list_one(file: Path) -> list[NuplanReference]:
            with open_log(file) as log:
                index = read_index(log)
            available.update(*index.tags.values())
            starts = index.scenario_starts()
            frames = self._candidates(index, starts)
            _, good = window_frames(index.times_us, frames, self.steps)
            return [
                NuplanReference(str(file), index.tokens[frame].hex(), starts.get(int(frame), b"").hex())
                for frame in frames[good]
            ]

        files = find_files(self.logs, lambda name: name.endswith(".db"), expected="*.db")
        found = list_files(files, list_one, damaged=lambda file: NuplanReference(str(file), _DAMAGED))
        wanted = self.scenario_types
        if not found and wanted is not None and available.isdisjoint(wanted):
            raise SourceError(f"no frame has a tag of {', '.join(wanted)}; there are {', '.join(sorted(available))}")
        return found

    def available_types(self) -> tuple[str, ...]:
        """The types of all scenarios in the logs, sorted."""
        found: set[str] = set()
        for file in find_files(self.logs, lambda name: name.endswith(".db"), expected="*.db"):
            with open_log(file) as log:
                found.update(*read_index(log).tags.values())
        return tuple(sorted(found))

    def read(self, reference: NuplanReference) -> Scene:
        with reading(reference.log):
            return self._read(reference)

    def _read(self, reference: NuplanReference) -> Scene:
        file = Path(reference.log)
        with open_log(file) as log:
            if reference.token == _DAMAGED:
                read_index(log)  # raises the reason
                raise SourceError("it could not be read when its scenes were listed: has it changed since?")
            tagged = bytes.fromhex(reference.tagged or reference.token)
            window = read_window(log, bytes.fromhex(reference.token), self.steps, tagged=tagged)
        city = city_map(str(map_file(Path(self.maps_root), window.map_names, file)))
        tracks = world_tracks(window)
        origin_m = tracks.origin_m()
        ego_path_m = tracks.position_m[0, tracks.valid[0]]
        cropped = crop_map(city, ego_path_m, radius_m=self.map_radius_m, origin_m=origin_m)
        return Scene(
            id=f"{file.stem}_{reference.tagged or reference.token}",
            source=self.name,
            dt_s=NUPLAN_STEP_S,
            current_step=-int(self.steps[0]),
            origin_m=origin_m,
            tracks=tracks.in_scene_frame(origin_m),
            map=cropped.features,
            signals=signals_of(window, cropped, origin_m),
            route=cropped.route(city, window.roadblocks),
            tags=window.tags,
        )

    def _candidates(self, index: LogIndex, starts: Mapping[int, bytes]) -> Int64[np.ndarray, " k"]:
        """Indices of the requested frames, whether or not the log has their whole history and future.

        Args:
            index: of the log.
            starts: tagged frame of each frame that a scenario starts at.
        """
        if self.every_s is None:
            frames = sorted(starts)
        else:
            first_us, last_us = index.times_us[0] + round(self.history_s * 1e6), index.times_us[-1]
            wanted_us = np.arange(first_us, last_us + 1, round(self.every_s * 1e6))
            frames = sorted({int(np.abs(index.times_us - time_us).argmin()) for time_us in wanted_us})
        if self.scenario_types is not None:
            wanted = set(self.scenario_types)
            frames = [i for i in frames if i in starts and not wanted.isdisjoint(index.tags[starts[i]])]
        return np.array(frames, np.int64)


def read(logs: str | Path | Sequence[str | Path], maps_root: str | Path, **settings: Any) -> Iterator[Scene]:
    """All scenes of the logs, one at a time. Arguments are those of `NuplanSource`."""
    return read_all(NuplanSource(logs, maps_root, **settings))
