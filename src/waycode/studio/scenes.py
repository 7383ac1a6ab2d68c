"""Scenes as the page draws them: whole, and as thumbnails."""

import math
from collections.abc import Sequence

import numpy as np

from waycode.planner.planner import recorded_agents
from waycode.scene import LaneType, LineType, Polylines, Scene, SignalState, Tracks, TrackType
from waycode.scene.geometry import box_corners, directions
from waycode.scene.manoeuvre import classify
from waycode.studio.messages import PolylineReply, Theme, rounded
from waycode.studio.palette import PALETTES
from waycode.studio.scene_messages import (
    LaneReply,
    LineReply,
    MapReply,
    PaintStyle,
    SceneReply,
    SignalReply,
    SignalWord,
    TrackKind,
    TrackReply,
)

_ASSUMED_WIDTH_M, _ASSUMED_BIKE_WIDTH_M = 3.6, 1.6  # of lanes of unknown width
_THUMBNAIL_RADIUS_M = 42.0
_THUMBNAIL_SIZE = (144, 96)  # in user units of the SVG
_KINDS: dict[int, TrackKind] = {
    TrackType.VEHICLE: "vehicle",
    TrackType.PEDESTRIAN: "pedestrian",
    TrackType.CYCLIST: "cyclist",
    TrackType.OTHER: "other",
}


def default_agent(scene: Scene) -> int | None:
    """The ego if it is observed now, else the first track to predict that is."""
    ego = scene.tracks.ego_index
    if ego is not None and scene.tracks.valid[ego, scene.current_step]:
        return int(ego)
    return next(iter(recorded_agents(scene)), None)


def scene_reply(scene: Scene, *, dataset: str, index: int, has_drive: bool) -> SceneReply:
    """The scene as the page draws it.

    Args:
        scene: the scene.
        dataset: name of its source.
        index: in its source.
        has_drive: whether the scene is a drive with a score.
    """
    agent = default_agent(scene)
    return SceneReply(
        dataset=dataset,
        index=index,
        id=scene.id,
        source=scene.source,
        tags=list(scene.tags),
        dt_s=scene.dt_s,
        current_step=scene.current_step,
        num_steps=scene.num_steps,
        has_drive=has_drive,
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
    tracks, now, agent = scene.tracks, scene.current_step, default_agent(scene)
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
