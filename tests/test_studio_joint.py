"""Joint plans of the studio: goals for several agents, by a tiny joint model; without one, the reason."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from waycode.model import VarianceGate

pytest.importorskip("fastapi", reason="the studio is not installed: pip install 'waycode[studio]'")

from fastapi.testclient import TestClient

from studio_client import ADDRESS, CROSSING, studio_client
from tiny_model import tiny_model
from waycode.demo import bundled_dataset
from waycode.model.saved import save_model
from waycode.planner import Plan, Planner
from waycode.studio import Studio, create_app

API = f"{ADDRESS}/api/v1"
TOKENS = 4
SCENE = bundled_dataset(CROSSING["dataset"])[CROSSING["scene"]]
NAMES = [SCENE.tracks.ids[track] for track in np.flatnonzero(SCENE.tracks.valid[:, SCENE.current_step])[:3]]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("joint")
    limits = dict.fromkeys(range(1, TOKENS + 1), 1e9)
    save_model(folder, tiny_model(joint=True, num_tokens=TOKENS), gate=VarianceGate(sigma_max_m=limits))
    return folder


@pytest.fixture(scope="module")
def client(model: Path) -> Iterator[TestClient]:
    studio = Studio.open([], model="sumo-small", joint_model=str(model))
    with TestClient(create_app(studio), base_url=ADDRESS) as opened:
        yield opened


def posted(client: TestClient, path: str, status: int = 200, **body: Any) -> Any:
    reply = client.post(f"{API}{path}", json={**CROSSING, "agents": NAMES, **body})
    assert reply.status_code == status, reply.text
    return reply.json()


def goals() -> str:
    """A goal 10 m ahead of each of two agents."""
    now, tracks, parts = SCENE.current_step, SCENE.tracks, []
    for name in NAMES[:2]:
        track = tracks.ids.index(name)
        ahead = tracks.position_m[track, now] + 10 * np.array(
            [np.cos(tracks.heading_rad[track, now]), np.sin(tracks.heading_rad[track, now])]
        )
        parts.append(f"agent({name}): goal-point({ahead[0]:.2f}, {ahead[1]:.2f})")
    return " + ".join([*parts, "all: no-collision"])


def test_a_joint_plan_is_the_one_of_the_library(client: TestClient, model: Path) -> None:
    view = Planner.from_pretrained(model).encode(SCENE, agents=NAMES)
    plan = view.plan(goals(), beam_width=2)
    reply = posted(client, "/plans", objective=goals(), beam_width=2)
    assert tuple(reply["tokens"]) == plan.tokens
    assert [reply["agent"], *(one["agent"] for one in reply["others"])] == NAMES
    assert reply["costs"] == pytest.approx(dict(plan.costs), abs=1e-4)
    assert reply["satisfied"] is plan.satisfied
    assert reply["message"] == plan.message
    last = plan.of(NAMES[2]).position_in(SCENE)
    np.testing.assert_allclose(reply["others"][1]["trajectory"]["y_m"], last[:, 1], atol=0.006)
    assert [step["num_candidates"] for step in reply["search"]] == [8, 16, 16, 16]
    best = reply["search"][-1]["candidates"][0]
    assert best["x_m"] == reply["trajectory"]["x_m"][1::2]
    assert [one["x_m"] for one in best["others"]] == [one["trajectory"]["x_m"][1::2] for one in reply["others"]]


def test_codes_draws_exports_and_python_are_joint_too(client: TestClient) -> None:
    code = posted(client, "/encode")
    assert len(code["tokens"]) == TOKENS
    assert len(posted(client, "/decode", tokens=code["tokens"])["others"]) == 2
    draws = posted(client, "/draws", count=3, seed=1)
    assert all(len(plan["others"]) == 2 for plan in draws["plans"])
    exported = client.post(f"{API}/plans/export", json={**CROSSING, "agents": NAMES, "objective": "no-collision"})
    plans = [Plan.from_json(json.dumps(one)) for one in exported.json()]
    assert [plan.agent_id for plan in plans] == NAMES
    made = posted(client, "/plans/python", objective=goals())["code"]
    assert f"planner.encode(scene, agents={NAMES!r})" in made
    names: dict[str, Any] = {}
    exec(made, names)  # noqa: S102  # our own code, shown to the user to run
    assert names["plan"].tokens == tuple(posted(client, "/plans", objective=goals())["tokens"])


def test_a_live_joint_plan_arrives(client: TestClient) -> None:
    with client.websocket_connect(f"{API.replace('http', 'ws')}/live", headers={"origin": ADDRESS}) as socket:
        socket.send_json({"sequence": 7, "plan": {**CROSSING, "agents": NAMES, "objective": goals()}})
        reply = socket.receive_json()
    assert reply["sequence"] == 7
    assert len(reply["plan"]["others"]) == 2


def test_the_form_has_the_owner_of_every_line(client: TestClient) -> None:
    text = "2 * agent(a.1): goal-point(1, 2) + all: comfort then no-collision"
    rows = client.post(f"{API}/objectives/parse", json={"text": text}).json()["rows"]
    assert [(row["agent"], row["is_for_all"], row["weight"]) for row in rows] == [
        ("a.1", False, 2.0),
        (None, True, 1.0),
        (None, False, 1.0),
    ]
    bracketed = client.post(f"{API}/objectives/parse", json={"text": "agent(a): (comfort then left-turn)"})
    assert bracketed.json()["rows"] is None


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({"agents": [NAMES[0], NAMES[0]], "objective": "no-collision"}, "twice"),
        ({"agents": ["nobody"], "objective": "no-collision"}, "has no agent 'nobody'"),
        ({"agents": [str(number) for number in range(9)], "objective": "no-collision"}, "agents"),
        ({"objective": "agent(nobody): comfort"}, "no agent 'nobody' is planned for"),
        ({"objective": "comfort"}, "all:"),
    ],
)
def test_what_cannot_be_planned_jointly_is_told(client: TestClient, body: dict[str, Any], told: str) -> None:
    assert told in posted(client, "/plans", 422, **body)["message"]


def test_without_a_joint_model_the_reason_is_told() -> None:
    studio = Studio.open([], model="sumo-small", joint_model="sumo-paper")  # a model, but not a joint one
    with TestClient(create_app(studio), base_url=ADDRESS) as client:
        about = client.get(f"{API}/about").json()
        assert about["joint"] is None
        assert "sumo-paper encodes every agent on its own" in about["joint_problem"]
        assert posted(client, "/plans", 422, objective="no-collision")["message"] == about["joint_problem"]
    missing = Studio.open([], model="sumo-small", joint_model="not-there").about
    assert "not-there is neither" in str(missing.joint_problem)


def test_a_plan_for_one_agent_tells_whether_it_is_satisfied() -> None:
    with studio_client() as (_, client):
        reply = client.post(f"{API}/plans", json={**CROSSING, "objective": "left-turn"}).json()
    plan = Planner.from_pretrained("sumo-small").encode(SCENE).plan("left-turn")
    assert reply["satisfied"] is plan.satisfied is not None
    assert reply["message"] == plan.message
