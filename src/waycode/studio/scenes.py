"""The scenes that the studio may read: a list that can be filtered, whole scenes to draw, and thumbnails."""

import math
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from waycode.dataset.dataset import Dataset, DatasetError, load_scene
from waycode.dataset.samples import sample_folder
from waycode.planner.planner import recorded_agents
from waycode.scene import LaneType, LineType, Polylines, Scene, SignalState, Tracks, TrackType, WaycodeError
from waycode.scene.geometry import box_corners, directions
from waycode.scene.manoeuvre import classify
from waycode.studio.messages import (
    DatasetReply,
    LaneReply,
    LineReply,
    MapReply,
    PaintStyle,
    PolylineReply,
    SceneFacts,
    SceneList,
    SceneReply,
    SignalReply,
    SignalWord,
    Theme,
    TrackKind,
    TrackReply,
    rounded,
)
from waycode.studio.palette import PALETTES

_ASSUMED_WIDTH_M, _ASSUMED_BIKE_WIDTH_M = 3.6, 1.6  # of lanes of unknown width
_THUMBNAIL_RADIUS_M = 42.0
_THUMBNAIL_SIZE = (144, 96)  # in user units of the SVG
_KINDS: dict[int, TrackKind] = {
    TrackType.VEHICLE: "vehicle",
    TrackType.PEDESTRIAN: "pedestrian",
    TrackType.CYCLIST: "cyclist",
    TrackType.OTHER: "other",
}


class SceneNotFoundError(WaycodeError):
    """A dataset or a scene that the studio was not given."""


@dataclass(frozen=True, kw_only=True)
class SceneSource:
    """A dataset's folder or a Parquet file of scenes, with what its columns say of every scene."""

    name: str  # in the API; unique in the studio
    path: Path
    bundled: str | None  # name of the bundled dataset, if it is one
    ids: tuple[str, ...]
    sources: tuple[str, ...]
    tags: tuple[tuple[str, ...], ...]
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)  # open Parquet files are not thread-safe
    dataset: Dataset | None = None  # None: a file

    @staticmethod
    def open(path: str | Path, *, name: str, bundled: str | None = None) -> "SceneSource":
        """Reads three small columns; raises `DatasetError` if there are no scenes."""
        path = sample_folder(path) or Path(path)
        dataset = Dataset(path) if path.is_dir() else None
        if dataset is not None:
            columns = {column: dataset.column(column) for column in ("id", "source", "tags")}
        else:
            load_scene(path)  # raises with a reason if the file holds no scenes
            columns = pq.read_table(path, columns=["id", "source", "tags"]).to_pydict()
        if not columns["id"]:
            raise DatasetError(f"{path} has no scenes, expected one or more")
        return SceneSource(
            name=name,
            path=path,
            bundled=bundled,
            ids=tuple(map(str, columns["id"])),
            sources=tuple(map(str, columns["source"])),
            tags=tuple(tuple(tags or ()) for tags in columns["tags"]),
            dataset=dataset,
        )

    def __len__(self) -> int:
        return len(self.ids)

    def read(self, index: int) -> Scene:
        """A scene; raises `SceneNotFoundError` for a wrong index."""
        if not 0 <= index < len(self):
            raise SceneNotFoundError(f"{self.name} has no scene {index}: expected 0 to {len(self) - 1}")
        with self.lock:
            return self.dataset[index] if self.dataset is not None else load_scene(self.path, index)


class SceneCatalogue:
    """All scene sources, and what is known of their scenes. Manoeuvres are found by `read_next`, scene by scene."""

    def __init__(self, sources: Sequence[SceneSource]):
        self.sources = {source.name: source for source in sources}
        self._manoeuvres: dict[tuple[str, int], tuple[str, int]] = {}  # -> manoeuvre, number of tracks
        self._unread = iter([(source.name, index) for source in sources for index in range(len(source))])

    def source(self, name: str) -> SceneSource:
        """The source of that name; no other file can be read."""
        if name not in self.sources:
            raise SceneNotFoundError(f"there is no dataset {name!r}; available: {', '.join(self.sources)}")
        return self.sources[name]

    def read_next(self) -> bool:
        """Finds the manoeuvre of one more scene; false if all are known."""
        key = next(self._unread, None)
        if key is None:
            return False
        try:
            scene = self.sources[key[0]].read(key[1])
        except WaycodeError:
            return True  # a damaged scene has no manoeuvre; who opens it gets the reason
        self._manoeuvres[key] = (_main_manoeuvre(scene), len(scene.tracks))
        return True

    def about(self) -> list[DatasetReply]:
        return [
            DatasetReply(name=source.name, num_scenes=len(source), source=", ".join(sorted(set(source.sources))))
            for source in self.sources.values()
        ]

    def list(
        self,
        *,
        dataset: str | None,
        family: str | None,
        manoeuvre: str | None,
        source: str | None,
        text: str | None,
        offset: int,
        limit: int,
    ) -> SceneList:
        """The scenes that fit all given filters.

        Args:
            dataset, family, manoeuvre, source: only scenes with this value; None: all.
            text: part of the scene's id.
            offset: number of matching scenes to skip.
            limit: number of scenes to return.
        """
        if dataset is not None:
            self.source(dataset)
        matching = [
            facts
            for facts in self._facts()
            if (dataset is None or facts.dataset == dataset)
            and (family is None or facts.family == family)
            and (manoeuvre is None or facts.manoeuvre == manoeuvre)
            and (source is None or facts.source == source)
            and (text is None or text.lower() in facts.id.lower())
        ]
        everything = list(self._facts())
        return SceneList(
            scenes=matching[offset : offset + limit],
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
                )


def _counts(values: Iterator[str | None]) -> dict[str, int]:
    return dict(sorted(Counter(value for value in values if value is not None).items()))


def _main_manoeuvre(scene: Scene) -> str:
    """That of the ego, else of the first track to predict."""
    agent = _default_agent(scene)
    return "unobserved" if agent is None else str(classify(scene)[agent])


def _default_agent(scene: Scene) -> int | None:
    """The ego if it is observed now, else the first track to predict that is."""
    ego = scene.tracks.ego_index
    if ego is not None and scene.tracks.valid[ego, scene.current_step]:
        return int(ego)
    return next(iter(recorded_agents(scene)), None)


def scene_reply(scene: Scene, *, dataset: str, index: int) -> SceneReply:
    """The scene as the page draws it.

    Args:
        scene: the scene.
        dataset: name of its source.
        index: in its source.
    """
    agent = _default_agent(scene)
    return SceneReply(
        dataset=dataset,
        index=index,
        id=scene.id,
        source=scene.source,
        tags=list(scene.tags),
        dt_s=scene.dt_s,
        current_step=scene.current_step,
        num_steps=scene.num_steps,
        origin_m=scene.origin_m,
        default_agent=None if agent is None else scene.tracks.ids[agent],
        map=_map_reply(scene),
        signals=_signal_replies(scene),
        tracks=track_replies(scene.tracks, manoeuvres=[str(found) for found in classify(scene)]),
    )


def track_replies(tracks: Tracks, *, manoeuvres: Sequence[str]) -> list[TrackReply]:
    """Road users, with nulls where they were not observed.

    Args:
        tracks: of a scene or of a drive.
        manoeuvres: one per track.
    """
    to_predict = set(tracks.to_predict.tolist())
    replies = []
    for track, name in enumerate(tracks.ids):
        valid = tracks.valid[track].tolist()
        series = {
            "x_m": rounded(tracks.x_m[track]),
            "y_m": rounded(tracks.y_m[track]),
            "heading_rad": rounded(tracks.heading_rad[track], 3),
            "speed_mps": rounded(tracks.speed_mps[track]),
        }
        replies.append(
            TrackReply(
                id=name,
                kind=_KINDS[int(tracks.types[track])],
                length_m=round(float(tracks.length_m[track]), 2),
                width_m=round(float(tracks.width_m[track]), 2),
                is_ego=track == tracks.ego_index,
                is_to_predict=track in to_predict,
                manoeuvre=manoeuvres[track],
                **{
                    key: [value if is_valid else None for value, is_valid in zip(values, valid, strict=True)]
                    for key, values in series.items()
                },
            )
        )
    return replies


def _map_reply(scene: Scene) -> MapReply:
    features, lanes = scene.map, scene.map.lanes
    route = set() if scene.route is None else set(scene.route.lanes.tolist())
    signs = features.stop_signs.position_m
    return MapReply(
        lanes=[
            LaneReply(
                x_m=rounded(points[:, 0]),
                y_m=rounded(points[:, 1]),
                width_m=lane_width_m(scene, lane),
                is_bike=bool(lanes.types[lane] == LaneType.BIKE and not lanes.in_junction[lane]),
                on_route=lane in route,
            )
            for lane, points in enumerate(lanes.centrelines.as_list())
        ],
        road_lines=[
            _line_reply(points, LineType(int(kind)))
            for points, kind in zip(features.road_lines.as_list(), features.road_line_types, strict=True)
        ],
        road_edges=_polylines(features.road_edges),
        crosswalks=_polylines(features.crosswalks),
        speed_bumps=_polylines(features.speed_bumps),
        driveways=_polylines(features.driveways),
        drivable_areas=_polylines(features.drivable_areas),
        stop_signs=PolylineReply(x_m=rounded(signs[:, 0]), y_m=rounded(signs[:, 1])),
    )


def lane_width_m(scene: Scene, lane: int) -> float:
    """Width of a lane, assumed where it is not known."""
    lanes = scene.map.lanes
    if lanes.width_known[lane]:
        return round(float(lanes.width_m[lane]), 2)
    return _ASSUMED_BIKE_WIDTH_M if lanes.types[lane] == LaneType.BIKE else _ASSUMED_WIDTH_M


def _polylines(polylines: Polylines) -> list[PolylineReply]:
    return [
        PolylineReply(x_m=rounded(points[:, 0]), y_m=rounded(points[:, 1]))
        for points in polylines.as_list()
        if len(points) > 1
    ]


def _line_reply(points: np.ndarray, kind: LineType) -> LineReply:
    style: PaintStyle = "broken" if "BROKEN" in kind.name else "solid"
    if "DOUBLE" in kind.name:
        style = "double-broken" if style == "broken" else "double"
    return LineReply(
        x_m=rounded(points[:, 0]),
        y_m=rounded(points[:, 1]),
        colour="yellow" if "YELLOW" in kind.name else "white",
        style=style,
    )


def _signal_replies(scene: Scene) -> list[SignalReply]:
    signals, replies = scene.signals, []
    for signal, lane in enumerate(signals.lanes.tolist()):
        centreline = scene.map.lanes.centrelines[lane]
        x_m, y_m = signals.stop_point_m[signal].tolist()
        nearest = int(np.linalg.norm(centreline[:-1] - signals.stop_point_m[signal], axis=1).argmin())
        known = zip(signals.states[signal].tolist(), signals.valid[signal].tolist(), strict=True)
        replies.append(
            SignalReply(
                x_m=round(x_m, 2),
                y_m=round(y_m, 2),
                heading_rad=round(float(directions(centreline)[nearest]), 3),
                width_m=lane_width_m(scene, lane),
                states=[_signal_word(state) if valid else "unknown" for state, valid in known],
            )
        )
    return replies


def _signal_word(state: int) -> SignalWord:
    """The colour of a light; arrows and flashing lights count as their colour."""
    name = SignalState(state).name
    return "stop" if "STOP" in name else "caution" if "CAUTION" in name else "go" if "GO" in name else "unknown"


def thumbnail(scene: Scene, *, theme: Theme) -> str:
    """A small picture of the scene at its current step, around the ego, as SVG."""
    palette, (width, height) = PALETTES[theme], _THUMBNAIL_SIZE
    tracks, now, agent = scene.tracks, scene.current_step, _default_agent(scene)
    observed = np.flatnonzero(tracks.valid[:, now])
    positions = tracks.position_m[:, now]
    if agent is not None:
        centre = positions[agent]
    else:
        centre = positions[observed].mean(axis=0) if len(observed) else np.zeros(2, np.float32)
    scale = height / (2 * _THUMBNAIL_RADIUS_M)

    def path(points: np.ndarray) -> str:
        shown = (points - centre) * [scale, -scale] + [width / 2, height / 2]
        return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in shown.tolist())

    reach_m = math.hypot(width, height) / scale / 2
    near = [
        lane
        for lane, points in enumerate(scene.map.lanes.centrelines.as_list())
        if np.linalg.norm(points - centre, axis=1).min() < reach_m
    ]
    parts = [f'<rect width="{width}" height="{height}" fill="{palette["ground"]}"/>']
    parts += [
        f'<path d="{path(scene.map.lanes.centrelines[lane])}" fill="none" stroke="{palette["asphalt"]}" '
        f'stroke-width="{lane_width_m(scene, lane) * scale:.1f}" stroke-linejoin="round"/>'
        for lane in near
    ]
    if agent is not None:
        future = tracks.position_m[agent, now:][tracks.valid[agent, now:]]
        parts.append(f'<path d="{path(future)}" fill="none" stroke="{palette["recorded"]}" stroke-width="1.8"/>')
    corners = box_corners(
        positions[observed], tracks.heading_rad[observed, now], length_m=tracks.length_m[observed],
        width_m=tracks.width_m[observed],
    )  # fmt: skip
    for track, box in zip(observed.tolist(), corners, strict=True):
        if np.linalg.norm(positions[track] - centre) < reach_m:
            colour = palette["ego"] if track == agent else palette[_KINDS[int(tracks.types[track])]]
            parts.append(f'<path d="{path(box)}Z" fill="{colour}"/>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">'
        f"<title>{_escaped(scene.id)}</title>{''.join(parts)}</svg>"
    )


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
