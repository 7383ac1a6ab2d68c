"""Cuts scenes out of an episode and turns down those in which something is wrong."""

import json
import math
from dataclasses import asdict, dataclass

import numpy as np
from jaxtyping import Bool, Float

from waycode.scene import Route, Scene, Signals, SignalState, Tracks, TrackType
from waycode.scene.conflicts import overlapping_pairs, red_light_crossings
from waycode.scene.frames import to_scene_frame, tracks_from_world
from waycode.scene.kinematics import comfortable
from waycode.scene.manoeuvre import Manoeuvre, classify
from waycode.sources.sumo.episode import Episode
from waycode.sources.sumo.netconvert import RoadNetwork
from waycode.sources.sumo.plain import VehicleClass
from waycode.sources.sumo.recording import STEP_S
from waycode.sources.sumo.road_map import map_features

MIN_RADIUS_M, MAX_RADIUS_M, RADIUS_MARGIN_M = 80.0, 200.0, 50.0
SHORT_WINDOW_S, LONGER_RADIUS_MPS = 8.0, 72.0  # in a longer window the ego drives on, and its map must reach as far
MAX_SPEED_JUMP_MPS = 2.0  # within one step
MAX_BRAKING_MPS2 = 6.0
MAX_PREDICTED = 8
CANDIDATE_STRIDE_STEPS = 20
WHOLE_MAP_M = 1e5

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


@dataclass(frozen=True, kw_only=True)
class Window:
    """Where a scene is cut out of an episode."""

    ego: str
    current_step: int
    history_steps: int  # before the current one
    future_steps: int

    @property
    def steps(self) -> slice:
        return slice(self.current_step - self.history_steps, self.current_step + self.future_steps + 1)


@dataclass(frozen=True, kw_only=True)
class EpisodeArrays:
    """Everyone's motion on one time axis (U road users, S steps), in world coordinates."""

    ids: tuple[str, ...]
    position_m: Float[np.ndarray, "U S 2"]
    heading_rad: Float[np.ndarray, "U S"]
    velocity_mps: Float[np.ndarray, "U S 2"]
    valid: Bool[np.ndarray, "U S"]

    @staticmethod
    def of(episode: Episode) -> "EpisodeArrays":
        lives, steps = episode.recording.lives, episode.recording.num_steps
        position, velocity = np.zeros((2, len(lives), steps, 2))
        heading, valid = np.zeros((len(lives), steps)), np.zeros((len(lives), steps), np.bool_)
        for row, life in enumerate(lives):
            motion = episode.motions[life.id]
            span = slice(life.first_step, life.first_step + len(life.heading_rad))
            position[row, span], velocity[row, span] = motion.position_m, motion.velocity_mps
            heading[row, span], valid[row, span] = motion.heading_rad, True
        return EpisodeArrays(
            ids=tuple(life.id for life in lives),
            position_m=position,
            heading_rad=heading,
            velocity_mps=velocity,
            valid=valid,
        )


def cut_scene(episode: Episode, arrays: EpisodeArrays, window: Window, *, scene_id: str) -> Scene:
    """The scene around the ego, with everyone who comes near it and the map that it can reach."""
    ego = arrays.ids.index(window.ego)
    steps = window.steps
    centre = arrays.position_m[ego, window.current_step]
    path = arrays.position_m[ego, steps][arrays.valid[ego, steps]]
    reach = np.linalg.norm(path - centre, axis=-1).max() + RADIUS_MARGIN_M
    longer_s = max(0.0, window.future_steps * STEP_S - SHORT_WINDOW_S)
    radius = float(np.clip(reach, MIN_RADIUS_M, MAX_RADIUS_M + longer_s * LONGER_RADIUS_MPS))
    near = np.linalg.norm(arrays.position_m[:, steps] - centre, axis=-1) < radius
    rows = np.flatnonzero((near & arrays.valid[:, steps]).any(axis=1))
    origin = (float(np.round(centre[0])), float(np.round(centre[1])))
    features, lane_index = map_features(
        episode.roads, origin, centre_m=(float(centre[0]), float(centre[1])), radius_m=radius
    )
    tracks = _tracks(episode, arrays, rows, window, origin)
    return Scene(
        id=scene_id,
        source="sumo",
        dt_s=STEP_S,
        current_step=window.history_steps,
        origin_m=origin,
        tracks=tracks,
        map=features,
        signals=_signals(episode, lane_index, window.steps, origin_m=origin, radius_m=radius),
        route=_route(episode.roads.network, episode.recording.lives[ego].route, lane_index),
        tags=(str(episode.seed.family),),
        rebuild=json.dumps({"episode": asdict(episode.seed), "window": asdict(window)}, sort_keys=True),
    )


def faults_of_window(scene: Scene) -> str | None:
    """The first reason to turn a scene down, or None."""
    tracks = scene.tracks
    both = tracks.valid[:, 1:] & tracks.valid[:, :-1]
    change = np.where(both, np.diff(tracks.speed_mps, axis=1), 0)
    if np.any(np.abs(change) > MAX_SPEED_JUMP_MPS):
        return "speed jump"
    if np.any(change / scene.dt_s < -MAX_BRAKING_MPS2):
        return "hard braking"
    pairs = overlapping_pairs(tracks, which=np.ones(len(tracks), np.bool_))
    among_people = (tracks.types[pairs[:, :2]] == TrackType.PEDESTRIAN).all(axis=1)  # these may brush past each other
    if not among_people.all():
        return "overlapping boxes"
    if red_light_crossings(scene):
        return "red light"
    comfort, judged = comfortable(tracks, dt_s=scene.dt_s)
    if judged[tracks.ego_index] and not comfort[tracks.ego_index]:
        return "uncomfortable ego"
    return None


def _tracks(
    episode: Episode, arrays: EpisodeArrays, rows: np.ndarray, window: Window, origin_m: tuple[float, float]
) -> Tracks:
    steps = window.steps
    lives = [episode.recording.lives[row] for row in rows]
    ids = [life.id for life in lives]
    return tracks_from_world(
        ids,
        [life.type.track_type for life in lives],
        length_m=np.array([life.type.length_m for life in lives]),
        width_m=np.array([life.type.width_m for life in lives]),
        position_m=arrays.position_m[rows, steps],
        heading_rad=arrays.heading_rad[rows, steps],
        velocity_mps=arrays.velocity_mps[rows, steps],
        valid=arrays.valid[rows, steps],
        origin_m=origin_m,
        to_predict=_to_predict(arrays, rows, window),
        ego_index=ids.index(window.ego),
    )


def _to_predict(arrays: EpisodeArrays, rows: np.ndarray, window: Window) -> list[int]:
    """The ego and the road users nearest to it that are there all the time and move."""
    whole = arrays.valid[rows, window.steps].all(axis=1)
    position = arrays.position_m[rows]
    travelled = np.linalg.norm(position[:, window.steps.stop - 1] - position[:, window.current_step], axis=-1)
    ego = arrays.position_m[arrays.ids.index(window.ego), window.current_step]
    distance = np.linalg.norm(position[:, window.current_step] - ego, axis=-1)
    candidates = np.flatnonzero(whole & ((travelled > 2) | (distance == 0)))
    nearest = candidates[np.argsort(distance[candidates], kind="stable")][:MAX_PREDICTED]
    return [int(row) for row in np.sort(nearest)]


def _signals(
    episode: Episode, lane_index: dict[str, int], steps: slice, *, origin_m: tuple[float, float], radius_m: float
) -> Signals:
    """The lights whose stop line is on the map; where the map ends within a junction, its lights are left out."""
    links = [
        link
        for link in episode.roads.network.signal_links
        if link.internal_lane in lane_index and math.dist(link.stop_point_m, origin_m) < radius_m - 1
    ]
    links.sort(key=lambda link: lane_index[link.internal_lane])
    if not links:
        return Signals()
    recorded = episode.recording.signal_states
    states = np.array(
        [[signal_state(letters[link.link_index]) for letters in recorded[link.signal_id][steps]] for link in links],
        np.int8,
    )
    return Signals(
        lanes=np.array([lane_index[link.internal_lane] for link in links], np.int32),
        stop_point_m=to_scene_frame(np.array([link.stop_point_m for link in links]), origin_m),
        states=states,
        valid=np.ones(states.shape, np.bool_),
    )


def signal_state(letter: str) -> SignalState:
    """What a letter of SUMO's signal states means."""
    return _STATES.get(letter, SignalState.UNKNOWN)


def _route(network: RoadNetwork, edges: tuple[str, ...], lane_index: dict[str, int]) -> Route | None:
    """The edges of the route and the ways through the junctions between them, each a section."""
    sections: list[list[int]] = []
    for position, edge in enumerate(edges):
        lanes = [lane for lane in network.edges[edge].lanes if VehicleClass.PASSENGER in network.lanes[lane].allowed]
        sections.append([lane_index[lane] for lane in lanes if lane in lane_index])
        if position + 1 < len(edges):
            inner = _lanes_between(network, set(lanes), edges[position + 1])
            sections.append([lane_index[lane] for lane in inner if lane in lane_index])
    kept = [section for section in sections if section]
    if not kept:
        return None
    return Route(
        lanes=np.array([lane for section in kept for lane in section], np.int32),
        sections=np.repeat(np.arange(len(kept), dtype=np.int32), [len(section) for section in kept]),
    )


def _lanes_between(network: RoadNetwork, lanes: set[str], next_edge: str) -> list[str]:
    """Internal lanes on the way from these lanes to the next edge, in driving order."""
    inner: list[str] = []
    frontier = [
        way for way in network.connections if way.from_lane in lanes and way.to_lane.startswith(f"{next_edge}_")
    ]
    while frontier:
        reached = sorted({way.via_lane for way in frontier if way.via_lane is not None} - set(inner))
        inner += reached
        frontier = [way for way in network.connections if way.from_lane in reached]
    return inner


def candidates(
    episode: Episode, arrays: EpisodeArrays, *, history_steps: int, future_steps: int
) -> dict[Manoeuvre, list[Window]]:
    """All windows that could be cut, by what their ego does: every motor vehicle that is there all the time."""
    features, _ = map_features(episode.roads, (0.0, 0.0), centre_m=(0.0, 0.0), radius_m=WHOLE_MAP_M)
    found: dict[Manoeuvre, list[Window]] = {}
    first = episode.first_step + history_steps
    for current in range(first, episode.recording.num_steps - future_steps, CANDIDATE_STRIDE_STEPS):
        steps = slice(current - history_steps, current + future_steps + 1)
        rows = [
            row
            for row in np.flatnonzero(arrays.valid[:, steps].all(axis=1))
            if episode.recording.lives[row].type.track_type == TrackType.VEHICLE
        ]
        windows = [
            Window(ego=arrays.ids[row], current_step=current, history_steps=history_steps, future_steps=future_steps)
            for row in rows
        ]
        if not windows:
            continue
        scene = Scene(
            id="candidates",
            source="sumo",
            dt_s=STEP_S,
            current_step=history_steps,
            origin_m=(0.0, 0.0),
            tracks=_tracks(episode, arrays, np.array(rows), windows[0], (0.0, 0.0)),
            map=features,
        )
        for window, manoeuvre in zip(windows, classify(scene), strict=True):
            found.setdefault(manoeuvre, []).append(window)
    return found
