"""What is fuzzed: objectives and plans as text, requests to the studio, and scenes that are odd but valid."""

import json
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from fuzz_base import Finding, Target
from fuzz_inputs import Random, choose, damaged_json, damaged_words, json_text
from scenes import traffic_scene
from waycode.model import VarianceGate
from waycode.scene import Scene, WaycodeError

_STUDIO = "127.0.0.1:8765"


class ObjectiveText(Target):
    """Objectives as text."""

    def prepare(self) -> None:
        pass

    def run(self, random: Random) -> bool:
        from waycode.objectives import OBJECTIVES, ObjectiveError, parse_objective

        vocabulary = [
            *OBJECTIVES, "(", ")", ",", "=", "[", "]", "+", "*", "then", "where", "1", "-1", "+1", "2.5", "1e999", ".",
            "#", "\n", "frame", "agent", "x_m", "\0", "é", "lane-", "--", "1e", "true", "none", "'", "a" * 500,
        ]  # fmt: skip
        text = damaged_words(
            "2 * goal-point( 10 , 3 ) + comfort then lane-change( +1 ) where road-edge", vocabulary, random
        )
        try:
            objective = parse_objective(text)
        except ObjectiveError as error:
            if len(str(error)) > 2000:
                raise Finding(f"the message has {len(str(error))} characters") from error
            return False
        if str(parse_objective(str(objective))) != str(objective):
            raise Finding(f"{objective} is not what its text says")
        return True


class PlanJson(Target):
    """Plans in JSON."""

    @cached_property
    def content(self) -> Any:
        return json.loads(example_plan().to_json())

    def prepare(self) -> None:
        pass

    def run(self, random: Random) -> bool:
        from waycode.planner import Plan, PlannerError

        try:
            plan = Plan.from_json(json_text(damaged_json(self.content, random), random).decode(errors="replace"))
        except PlannerError as error:
            if len(str(error)) > 2000:
                raise Finding(f"the message has {len(str(error))} characters") from error
            return False
        if not all(np.isfinite(getattr(plan, name)).all() for name in ("x_m", "y_m", "heading_rad", "speed_mps")):
            raise Finding("the plan is not finite")
        if len({len(getattr(plan, name)) for name in ("time_s", "x_m", "y_m", "std_m")}) != 1:
            raise Finding("the plan has arrays of unequal length")
        plan.to_json()
        return True


def example_plan() -> Any:
    """A plan as `View.plan` gives it."""
    from waycode.planner import Plan, PlanStatus

    steps = np.arange(1.0, 9.0)
    return Plan(
        scene_id="a", agent_id="b", time_s=0.1 * steps, x_m=steps, y_m=-steps, heading_rad=0 * steps,
        speed_mps=steps, std_m=np.ones((8, 2)), tokens=(1, 2), latents=np.ones((2, 3)), log_probability=-1.5,
        costs={"comfort": 1.0}, levels=(1.0, 2.0), status=PlanStatus.FOUND, satisfied=True, rejected=False,
        message="the best plan", depth=2,
        num_decodes=16, timings_s={"encode": 0.1},
    )  # fmt: skip


class StudioRequests(Target):
    """Requests to the studio: any JSON, for one agent and for several, over HTTP and over the live connection."""

    @cached_property
    def client(self) -> Any:
        from fastapi.testclient import TestClient

        from tiny_model import tiny_model
        from waycode.model.saved import save_model
        from waycode.studio import Studio, create_app

        limits = dict.fromkeys(range(1, 4), 1e9)
        for joint in (False, True):
            save_model(self.folder / str(joint), tiny_model(joint=joint), gate=VarianceGate(sigma_max_m=limits))
        studio = Studio.open([], model=str(self.folder / "False"), joint_model=str(self.folder / "True"))
        client = TestClient(create_app(studio), base_url=f"http://{_STUDIO}", raise_server_exceptions=False)
        return client.__enter__()  # its event loop runs as long as the process does

    @cached_property
    def requests(self) -> list[tuple[str, dict[str, Any]]]:
        from waycode.demo import bundled_dataset

        tracks = bundled_dataset("sumo-crossings")[3].tracks
        agents = [tracks.ids[row] for row in np.flatnonzero(tracks.valid[:, 10])[:3]]
        place = {"dataset": "sumo-crossings", "scene": 3}
        joint = f"agent({agents[0]}): goal-point(10, 3) + all: no-collision"
        return [
            ("plans", {**place, "objective": "goal-point(10, 3) + comfort", "beam_width": 2, "agent": agents[0]}),
            ("plans", {**place, "objective": joint, "agents": agents, "beam_width": 2}),
            ("plans/export", {**place, "objective": joint, "agents": agents}),
            ("plans/python", {**place, "objective": "left-turn", "agent": agents[1]}),
            ("decode", {**place, "tokens": [1, 2], "agents": agents}),
            ("encode", {**place, "agent": agents[0]}),
            ("draws", {**place, "count": 2, "seed": 1, "agents": agents}),
            ("objectives/parse", {"text": joint}),
            ("live", {"sequence": 7, "plan": {**place, "objective": joint, "agents": agents}}),
        ]

    def prepare(self) -> None:
        _ = self.client

    def run(self, random: Random) -> bool:
        path, body = choose(random, self.requests)
        content = json_text(damaged_json(body, random), random)
        if path == "live":
            return self._live(content.decode(errors="replace"))
        reply = self.client.post(f"/api/v1/{path}", content=content, headers={"content-type": "application/json"})
        if reply.status_code >= 500:
            raise Finding(f"{path} answers {reply.status_code} {reply.text[:300]} to {content[:500]!r}")
        if reply.status_code != 200 and not 0 < len(reply.json()["message"]) < 2000:
            raise Finding(f"{path} answers {reply.text[:300]}")
        return bool(reply.status_code == 200)

    def _live(self, text: str) -> bool:
        with self.client.websocket_connect(
            f"ws://{_STUDIO}/api/v1/live", headers={"origin": f"http://{_STUDIO}"}
        ) as socket:
            socket.send_text(text)
            socket.send_text(text)
            reply = json.loads(socket.receive_text())
        return reply["problem"] is None


class OddScenes(Target):
    """Valid scenes that no sensor would record: they are stored, classified, drawn and planned for all the same."""

    @cached_property
    def planner(self) -> Any:
        from tiny_model import tiny_model
        from waycode.planner import Planner

        return Planner(tiny_model())

    def prepare(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)

    def run(self, random: Random) -> bool:
        from waycode.dataset.seeds import episode_of
        from waycode.scene.manoeuvre import classify
        from waycode.sources.sumo.episode import origin_of

        scene = odd_scene(random)
        scene.validate()
        classify(scene)
        for names_origin in (episode_of, origin_of):
            with suppress(WaycodeError):
                names_origin(scene)
        objective = choose(random, ["comfort", "lane-change(+1)", "terminal-variance", "left-turn", "collision"])
        try:
            plan = self.planner.encode(scene).plan(objective, gate=False)
        except WaycodeError as error:
            if not any(words in str(error) for words in ("observed", "no lanes", "lane")):
                raise Finding(f"a valid scene is refused: {error}") from error
            return False
        if not np.isfinite(plan.x_m).all():
            raise Finding("the plan is not finite")
        return True


_REBUILD = {
    "episode": {"family": "curved_road", "numbers": [7, 0, 0], "version": 1},
    "window": {"ego": "car", "current_step": 300, "history_steps": 10, "future_steps": 80},
}


def odd_scene(random: Random) -> Scene:
    """A scene with crowds, gaps, duplicates, points instead of lines, and coordinates at the limits."""
    from waycode.scene import MapFeatures, Polylines, Signals

    scene = traffic_scene(int(random.integers(1000)), num_tracks=int(choose(random, [8, 8, 8, 40])), num_lanes=16)
    if random.random() < 0.5:  # what says how a scene was generated is any JSON
        rebuild = damaged_json(_REBUILD, random)
        with suppress(ValueError):
            scene = replace(scene, source="sumo", rebuild=json.dumps(rebuild, allow_nan=False))
    tracks, lanes = scene.tracks, scene.map.lanes
    kind = int(random.integers(8))
    if random.random() < 0.01:  # a crowd
        scene = traffic_scene(0, num_tracks=2000, num_lanes=16)
    elif kind == 0:
        scene = replace(scene, map=MapFeatures(), signals=Signals(), route=None)
    elif kind == 1:
        scene = replace(scene, origin_m=(1e7, -1e7))
    elif kind == 2:  # gaps in time
        valid = tracks.valid & (random.random(tracks.valid.shape) < 0.7)
        names = ("x_m", "y_m", "heading_rad", "vx_mps", "vy_mps")
        masked = {name: getattr(tracks, name) * valid for name in names}
        scene = replace(scene, tracks=replace(tracks, valid=valid, **masked))
    elif kind == 3:  # all at one point
        scene = replace(scene, tracks=replace(tracks, x_m=0 * tracks.x_m, y_m=0 * tracks.y_m))
    elif kind == 4:  # lanes without extent, or one upon the other
        points = lanes.centrelines.points_m * 0
        scene = replace(
            scene, map=replace(scene.map, lanes=replace(lanes, centrelines=replace(lanes.centrelines, points_m=points)))
        )
    elif kind == 5:  # the same line many times
        many = Polylines.of([scene.map.road_edges[0]] * 300)
        scene = replace(scene, map=replace(scene.map, road_edges=many, road_edge_types=np.zeros(300, np.int8)))
    elif kind == 6:
        sizes = np.full(len(tracks), choose(random, [1e-6, 200.0]), np.float32)
        scene = replace(scene, tracks=replace(tracks, length_m=sizes, width_m=sizes))
    else:
        far = Polylines.of([np.array([[-16_000, -16_000], [16_000, 16_000]], np.float32)])
        scene = replace(scene, map=replace(scene.map, road_edges=far, road_edge_types=np.zeros(1, np.int8)))
    return scene
