"""Cuts scenes from an episode and rejects unrealistic ones."""

import json
import math
from dataclasses import asdict

import numpy as np

from waycode.scene import Route, Scene, Signals, SignalState, Tracks, TrackType
from waycode.scene.conflicts import overlapping_pairs, red_light_crossings
from waycode.scene.frames import to_scene_frame
from waycode.scene.kinematics import comfortable
from waycode.scene.manoeuvre import Manoeuvre, classify
from waycode.sources.sumo.episode import Episode, EpisodeWindow
from waycode.sources.sumo.netconvert import RoadNetwork
from waycode.sources.sumo.plain import VehicleClass
from waycode.sources.sumo.recording import SUMO_STEP_S
from waycode.sources.sumo.road_map import crop_road_map
from waycode.sources.world import WorldTracks

_MIN_RADIUS_M, _MAX_RADIUS_M, _RADIUS_MARGIN_M = 80.0, 200.0, 50.0  # of the map around the ego
_SHORT_WINDOW_S, _LONGER_RADIUS_MPS = 8.0, 72.0  # the largest radius grows with futures beyond 8 s
_MAX_SPEED_JUMP_MPS = 2.0  # in one step
_MAX_BRAKING_MPS2 = 6.0
_MAX_PREDICTED = 8  # tracks to predict, including the ego
_CANDIDATE_STRIDE_STEPS = 20  # between the current steps of candidate windows
_WHOLE_MAP_M = 1e5  # a radius that contains every network

_STATES = {
    "G": SignalState.GO,
    "g": SignalState.GO,
    "y": SignalState.CAUTION,
    "Y": SignalState.CAUTION,
    "r": SignalState.STOP,
    "u": SignalState.STOP,
    "s": SignalState.FLASHING_STOP,
    "o": SignalState.FLASHING_CAUTION,
}


def cut_scene(episode: Episode, window: EpisodeWindow, *, scene_id: str) -> Scene:
    """The scene of a window: the map around the ego's path, and all road users that come near it."""
    ego = episode.ids.index(window.ego)
    steps = window.steps
    centre = episode.position_m[ego, window.current_step]
    path = episode.position_m[ego, steps][episode.valid[ego, steps]]
    reach = np.linalg.norm(path - centre, axis=-1).max() + _RADIUS_MARGIN_M
    longer_s = max(0.0, window.future_steps * SUMO_STEP_S - _SHORT_WINDOW_S)
    radius = float(np.clip(reach, _MIN_RADIUS_M, _MAX_RADIUS_M + longer_s * _LONGER_RADIUS_MPS))
    near = np.linalg.norm(episode.position_m[:, steps] - centre, axis=-1) < radius
    rows = np.flatnonzero((near & episode.valid[:, steps]).any(axis=1))
    origin = (float(np.round(centre[0])), float(np.round(centre[1])))
    features, lane_index = crop_road_map(
        episode.roads, origin, centre_m=(float(centre[0]), float(centre[1])), radius_m=radius
    )
    return Scene(
        id=scene_id,
        source="sumo",
        dt_s=SUMO_STEP_S,
        current_step=window.history_steps,
        origin_m=origin,
        tracks=_tracks(episode, rows, window, origin),
        map=features,
        signals=_signals(episode, lane_index, window.steps, origin_m=origin, radius_m=radius),
        route=_route(episode.roads.network, episode.recording.tracks[ego].route, lane_index),
        tags=(str(episode.seed.family),),
        rebuild=json.dumps({"episode": asdict(episode.seed), "window": asdict(window)}, sort_keys=True),
    )


def rejection_reason(scene: Scene) -> str | None:
    """The first reason to reject a scene, or None."""
    tracks = scene.tracks
    both = tracks.valid[:, 1:] & tracks.valid[:, :-1]
    change = np.where(both, np.diff(tracks.speed_mps, axis=1), 0)
    if np.any(np.abs(change) > _MAX_SPEED_JUMP_MPS):
        return "speed jump"
    if np.any(change / scene.dt_s < -_MAX_BRAKING_MPS2):
        return "hard braking"
    pairs = overlapping_pairs(tracks, which=np.ones(len(tracks), np.bool_))
    among_people = (tracks.types[pairs[:, :2]] == TrackType.PEDESTRIAN).all(axis=1)  # pedestrians may touch each other
    if not among_people.all():
        return "overlapping boxes"
    if red_light_crossings(scene):
        return "red light"
    comfort, judged = comfortable(tracks, dt_s=scene.dt_s)
    if judged[tracks.ego_index] and not comfort[tracks.ego_index]:
        return "uncomfortable ego"
    return None


def _tracks(episode: Episode, rows: np.ndarray, window: EpisodeWindow, origin_m: tuple[float, float]) -> Tracks:
    steps = window.steps
    tracks = [episode.recording.tracks[row] for row in rows]
    ids = [track.id for track in tracks]
    return WorldTracks(
        ids=ids,
        types=[track.type.track_type for track in tracks],
        length_m=np.array([track.type.length_m for track in tracks]),
        width_m=np.array([track.type.width_m for track in tracks]),
        position_m=episode.position_m[rows, steps],
        heading_rad=episode.heading_rad[rows, steps],
        velocity_mps=episode.velocity_mps[rows, steps],
        valid=episode.valid[rows, steps],
        to_predict=_to_predict(episode, rows, window),
        ego_index=ids.index(window.ego),
    ).in_scene_frame(origin_m)


def _to_predict(episode: Episode, rows: np.ndarray, window: EpisodeWindow) -> list[int]:
    """Rows of the ego and of the nearest road users that are present in the whole window and move."""
    whole = episode.valid[rows, window.steps].all(axis=1)
    position = episode.position_m[rows]
    travelled = np.linalg.norm(position[:, window.steps.stop - 1] - position[:, window.current_step], axis=-1)
    ego = episode.position_m[episode.ids.index(window.ego), window.current_step]
    distance = np.linalg.norm(position[:, window.current_step] - ego, axis=-1)
    eligible = np.flatnonzero(whole & ((travelled > 2) | (distance == 0)))  # only the ego has distance 0
    nearest = eligible[np.argsort(distance[eligible], kind="stable")][:_MAX_PREDICTED]
    return [int(row) for row in np.sort(nearest)]


def _signals(
    episode: Episode, lane_index: dict[str, int], steps: slice, *, origin_m: tuple[float, float], radius_m: float
) -> Signals:
    """Traffic lights whose stop points are on the map; junctions that the map cuts have none."""
    network, recorded = episode.roads.network, episode.recording.signal_states
    stops_m = {lane: network.lanes[link.from_lane].shape_m[-1] for lane, link in network.signal_links.items()}
    lanes = [lane for lane in stops_m if lane in lane_index and math.dist(stops_m[lane], origin_m) < radius_m - 1]
    lanes.sort(key=lambda lane: lane_index[lane])
    if not lanes:
        return Signals()
    links = [network.signal_links[lane] for lane in lanes]
    states = np.array(
        [[signal_state(letters[link.link_index]) for letters in recorded[link.signal_id][steps]] for link in links],
        np.int8,
    )
    return Signals(
        lanes=np.array([lane_index[lane] for lane in lanes], np.int32),
        stop_point_m=to_scene_frame(np.array([stops_m[lane] for lane in lanes]), origin_m),
        states=states,
        valid=np.ones(states.shape, np.bool_),
    )


def signal_state(letter: str) -> SignalState:
    """The meaning of a letter of SUMO's signal states."""
    return _STATES.get(letter, SignalState.UNKNOWN)


def _route(network: RoadNetwork, edges: tuple[str, ...], lane_index: dict[str, int]) -> Route | None:
    """The route on the map. Each edge and each junction between edges is a section."""
    sections: list[list[int]] = []
    for position, edge in enumerate(edges):
        lanes = [lane for lane in network.edges[edge].lanes if VehicleClass.PASSENGER in network.lanes[lane].allowed]
        sections.append([lane_index[lane] for lane in lanes if lane in lane_index])
        if position + 1 < len(edges):
            inner = _lanes_between(network, set(lanes), edges[position + 1])
            sections.append([lane_index[lane] for lane in inner if lane in lane_index])
    return Route.of(sections)


def _lanes_between(network: RoadNetwork, lanes: set[str], next_edge: str) -> list[str]:
    """Internal lanes between these lanes and the next edge, in driving order."""
    inner: list[str] = []
    frontier = [
        link for link in network.connections if link.from_lane in lanes and link.to_lane.startswith(f"{next_edge}_")
    ]
    while frontier:
        reached = sorted({link.via_lane for link in frontier if link.via_lane is not None} - set(inner))
        inner += reached
        frontier = [link for link in network.connections if link.from_lane in reached]
    return inner


def candidate_windows(
    episode: Episode, *, history_steps: int, future_steps: int
) -> dict[Manoeuvre, list[EpisodeWindow]]:
    """All possible windows by the manoeuvre of their ego, which is any motor vehicle present in the whole window.

    Args:
        episode: the episode.
        history_steps: steps of a window before its current step.
        future_steps: steps after it.
    """
    features, _ = crop_road_map(episode.roads, (0.0, 0.0), centre_m=(0.0, 0.0), radius_m=_WHOLE_MAP_M)
    found: dict[Manoeuvre, list[EpisodeWindow]] = {}
    first = episode.first_step + history_steps
    for current in range(first, episode.recording.num_steps - future_steps, _CANDIDATE_STRIDE_STEPS):
        steps = slice(current - history_steps, current + future_steps + 1)
        rows = [
            row
            for row in np.flatnonzero(episode.valid[:, steps].all(axis=1))
            if episode.recording.tracks[row].type.track_type == TrackType.VEHICLE
        ]
        windows = [
            EpisodeWindow(
                ego=episode.ids[row], current_step=current, history_steps=history_steps, future_steps=future_steps
            )
            for row in rows
        ]
        if not windows:
            continue
        scene = Scene(
            id="candidates",
            source="sumo",
            dt_s=SUMO_STEP_S,
            current_step=history_steps,
            origin_m=(0.0, 0.0),
            tracks=_tracks(episode, np.array(rows), windows[0], (0.0, 0.0)),
            map=features,
        )
        for window, manoeuvre in zip(windows, classify(scene), strict=True):
            found.setdefault(manoeuvre, []).append(window)
    return found
