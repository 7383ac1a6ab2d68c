"""The studio's API: scenes, plans, codes, draws and drives are those of the library; what is not allowed is refused."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("fastapi", reason="the studio is not installed: pip install 'waycode[studio]'")

from fastapi.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

import waycode as wc
from studio_client import ADDRESS, CROSSING, studio_client
from waycode.cli import main
from waycode.demo import bundled_dataset
from waycode.objectives import describe_objectives
from waycode.planner import Plan
from waycode.planner.ranking import too_uncertain
from waycode.studio import Studio

API = "/api/v1"
LIVE = f"{ADDRESS.replace('http', 'ws')}{API}/live"  # whole: else the test client makes up a host
ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def opened() -> Iterator[tuple[Studio, TestClient]]:
    with studio_client() as both:
        yield both


@pytest.fixture
def client(opened: tuple[Studio, TestClient]) -> TestClient:
    return opened[1]


@pytest.fixture(scope="module")
def view() -> wc.View:
    return wc.Planner.from_pretrained("sumo-small").encode(bundled_dataset("sumo-crossings")[3])


def posted(client: TestClient, path: str, status: int = 200, **body: Any) -> Any:
    reply = client.post(f"{API}{path}", json=body)
    assert reply.status_code == status, reply.text
    return reply.json()


def test_the_page_gets_the_registry_the_model_and_the_datasets(client: TestClient) -> None:
    about = client.get(f"{API}/about").json()
    assert [one["name"] for one in about["objectives"]] == [one.name for one in describe_objectives()]
    assert about["model"]["num_tokens"] == 3
    assert about["model"]["has_prior"]
    assert {one["name"]: one["num_scenes"] for one in about["datasets"]} == {"sumo": 24, "sumo-crossings": 17}
    assert about["palettes"]["light"].keys() == about["palettes"]["dark"].keys()


def test_scenes_can_be_filtered_by_family_manoeuvre_and_text(client: TestClient) -> None:
    deadline_s = time.monotonic() + 120  # they are read in the background
    everything = client.get(f"{API}/scenes", params={"limit": 200}).json()
    while everything["num_read"] < everything["num_scenes"] and time.monotonic() < deadline_s:
        time.sleep(0.05)
        everything = client.get(f"{API}/scenes", params={"limit": 200}).json()
    assert everything["num_matching"] == everything["num_scenes"] == everything["num_read"] == 41
    assert sum(everything["manoeuvres"].values()) == 41
    turns = client.get(f"{API}/scenes", params={"manoeuvre": "left turn", "dataset": "sumo"}).json()["scenes"]
    assert {one["manoeuvre"] for one in turns} == {"left turn"}
    assert {one["index"] for one in turns} == {0, 17, 20}
    found = client.get(f"{API}/scenes", params={"text": "ROUNDABOUT", "limit": 1, "offset": 1}).json()
    assert found["num_matching"] == 2
    assert [one["family"] for one in found["scenes"]] == ["roundabout"]


def test_a_scene_is_the_one_of_the_dataset(client: TestClient) -> None:
    scene = bundled_dataset("sumo")[6]
    reply = client.get(f"{API}/scenes/sumo/6").json()
    assert reply["id"] == scene.id
    assert len(reply["map"]["lanes"]) == len(scene.map.lanes)
    assert len(reply["signals"]) == len(scene.signals)
    assert reply["default_agent"] == scene.tracks.ids[scene.tracks.ego_index or 0]
    for track, told in enumerate(reply["tracks"]):
        there = [value is not None for value in told["x_m"]]
        assert there == scene.tracks.valid[track].tolist()
        known = scene.tracks.valid[track]
        np.testing.assert_allclose(
            np.array(told["x_m"])[known].astype(float), scene.tracks.x_m[track][known], atol=0.006
        )


def test_a_thumbnail_is_a_picture_in_either_theme(client: TestClient) -> None:
    light, dark = (client.get(f"{API}/scenes/sumo/6/thumbnail", params={"theme": theme}) for theme in ("light", "dark"))
    assert light.headers["content-type"] == "image/svg+xml"
    assert light.text.startswith("<svg")
    assert light.text != dark.text
    assert client.get(f"{API}/scenes/sumo/6/thumbnail", params={"theme": "pink"}).status_code == 422


def test_a_plan_is_the_one_of_the_library_with_all_its_candidates(client: TestClient, view: wc.View) -> None:
    plan = view.plan("left-turn", beam_width=2)
    reply = posted(client, "/plans", **CROSSING, objective="left-turn", beam_width=2)
    assert tuple(reply["tokens"]) == plan.tokens
    assert reply["status"] == plan.status
    assert reply["costs"] == pytest.approx(dict(plan.costs), abs=1e-5)
    position_m = plan.position_in(view.scene)
    np.testing.assert_allclose(reply["trajectory"]["x_m"], position_m[:, 0], atol=0.006)
    assert [step["num_candidates"] for step in reply["search"]] == [8, 16, 16]
    for step in reply["search"]:
        candidates = step["candidates"]
        assert [one["rank"] for one in candidates] == list(range(step["num_candidates"]))
        assert [one["is_kept"] for one in candidates] == [one["rank"] < 2 for one in candidates]
        codes = view.model.codebook().codes(torch.tensor([one["tokens"] for one in candidates]))
        rejected = too_uncertain(view.decode_many(codes), view.gate)
        assert [one["is_rejected"] for one in candidates] == rejected.tolist()
    best = reply["search"][-1]["candidates"][0]
    assert best["tokens"] == reply["tokens"]
    assert best["x_m"] == reply["trajectory"]["x_m"][1::2]


def test_a_refined_plan_has_no_tokens_and_fewer_tokens_can_be_asked_for(client: TestClient) -> None:
    x_m, y_m = 5.0, 2.0
    goal = f"goal-point({x_m}, {y_m}, frame=agent)"
    coarse = posted(client, "/plans", **CROSSING, objective=goal, depth=1, with_search=False)
    assert len(coarse["tokens"]) == 1
    assert coarse["search"] == []
    refined = posted(client, "/plans", **CROSSING, objective=goal, refine_steps=3)
    found = posted(client, "/plans", **CROSSING, objective=goal)
    assert refined["costs"]["goal-point"] <= found["costs"]["goal-point"]
    assert (refined["tokens"] is None) == (refined["costs"]["goal-point"] < found["costs"]["goal-point"])


def test_tokens_can_be_toggled_and_swapped_between_scenes(client: TestClient, view: wc.View) -> None:
    code = posted(client, "/encode", **CROSSING)
    assert tuple(code["tokens"]) == view.encode_trajectory().ids
    own, toggled = (
        posted(client, "/decode", **CROSSING, tokens=tokens)
        for tokens in (code["tokens"], [code["tokens"][0] ^ 4, *code["tokens"][1:]])
    )
    assert own["trajectory"]["x_m"] != toggled["trajectory"]["x_m"]
    elsewhere = posted(client, "/decode", dataset="sumo", scene=9, tokens=code["tokens"])
    assert elsewhere["tokens"] == code["tokens"]
    assert elsewhere["agent"] != own["agent"]


def test_draws_are_those_of_the_prior(client: TestClient, view: wc.View) -> None:
    draws = posted(client, "/draws", **CROSSING, count=20, seed=5)
    expected = [plan.tokens for plan in view.sample(20, seed=5)]
    drawn = {tuple(plan["tokens"]): count for plan, count in zip(draws["plans"], draws["counts"], strict=True)}
    assert drawn == {tokens: expected.count(tokens) for tokens in expected}
    likely = posted(client, "/draws", **CROSSING, how="most-likely", count=4)
    assert [tuple(plan["tokens"]) for plan in likely["plans"]] == [plan.tokens for plan in view.most_likely(4)]


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("left-turn", [("first", 1.0, None, False, "left-turn", {})]),
        (
            "2 * goal-point(10, 3) + comfort then likelihood where road-edge",
            [
                ("first", 2.0, None, False, "goal-point", {"x_m": 10.0, "y_m": 3.0}),
                ("+", 1.0, None, False, "comfort", {}),
                ("then", 1.0, None, False, "likelihood", {}),
                ("where", 1.0, None, False, "road-edge", {}),
            ],
        ),
        (
            "speed-profile([0, 8], [5, 0])",
            [("first", 1.0, None, False, "speed-profile", {"times_s": [0, 8], "speeds_mps": [5, 0]})],
        ),
        ("2 * (comfort + road-edge)", None),
        ("left-turn then (comfort where road-edge)", None),
    ],
)
def test_an_objective_without_brackets_is_lines_of_a_form(client: TestClient, text: str, rows: Any) -> None:
    parsed = posted(client, "/objectives/parse", text=text)
    told = parsed["rows"] and [tuple(row.values()) for row in parsed["rows"]]
    assert told == rows
    assert posted(client, "/objectives/parse", text=parsed["text"])["text"] == parsed["text"]


@pytest.mark.parametrize(
    ("path", "body", "status", "part"),
    [
        ("/plans", {**CROSSING, "objective": "left-trun"}, 422, "did you mean left-turn"),
        ("/plans", {**CROSSING, "objective": "__import__('os')"}, 422, "character"),
        ("/plans", {**CROSSING, "objective": "("}, 422, "expected the name of an objective"),
        ("/plans", {**CROSSING, "objective": ""}, 422, "objective"),
        ("/plans", {**CROSSING, "objective": "comfort", "beam_width": 1000}, 422, "beam_width"),
        ("/plans", {**CROSSING, "objective": "comfort", "beam_width": 64, "levels": 9}, 422, "at most 4096"),
        ("/plans", {**CROSSING, "objective": "comfort", "agent": "nobody"}, 422, "no agent 'nobody'"),
        ("/plans", {**CROSSING, "objective": "comfort", "beam": 2}, 422, "beam"),
        ("/plans", {"dataset": "sumo", "scene": 24, "objective": "comfort"}, 404, "expected 0 to 23"),
        ("/plans", {"dataset": "../sumo", "scene": 0, "objective": "comfort"}, 404, "available: sumo-crossings, sumo"),
        ("/decode", {**CROSSING, "tokens": [8]}, 422, "have the ids 0 to 7"),
        ("/decode", {**CROSSING, "tokens": [1, 1, 1, 1]}, 422, "the model has no more"),
        ("/drives", {"dataset": "sumo", "scene": 99}, 404, "expected 0 to 23"),
    ],
)
def test_a_mistake_gets_one_sentence(
    client: TestClient, path: str, body: dict[str, Any], status: int, part: str
) -> None:
    problem = posted(client, path, status, **body)
    assert part in problem["message"]
    assert "\n" not in problem["message"]


def test_only_pages_of_this_server_may_ask(client: TestClient) -> None:
    assert client.get(f"{API}/status").status_code == 200
    assert client.get(f"{API}/status", headers={"origin": ADDRESS}).status_code == 200
    for headers in ({"host": "evil.example"}, {"origin": "http://evil.example"}, {"origin": "http://127.0.0.1:1"}):
        refused = client.get(f"{API}/status", headers=headers)
        assert refused.status_code == 403
        assert refused.json()["kind"] == "forbidden"
    for headers in ({"origin": "http://evil.example"}, {"host": "evil.example"}):
        with pytest.raises(WebSocketDisconnect) as refusal, client.websocket_connect(LIVE, headers=headers):
            pass
        assert "evil.example" in refusal.value.reason


def test_everything_comes_from_this_server(client: TestClient) -> None:
    page = client.get("/")
    assert "default-src 'self'" in page.headers["content-security-policy"]
    for name in ("index.html", "studio.js", "studio.css"):
        text = client.get(f"/{name}").text
        outside = [
            part for part in text.split("http")[1:] if part.startswith(("://", "s://")) and "w3.org" not in part[:20]
        ]
        assert outside == [], name


def test_a_request_that_is_too_large_is_refused(client: TestClient) -> None:
    declared = client.post(f"{API}/plans", content=b" " * 70_000)
    assert declared.status_code == 413

    def endless() -> Iterator[bytes]:
        for _ in range(100):
            yield b" " * 1000

    assert client.post(f"{API}/plans", content=endless()).status_code == 413


def test_the_latest_request_of_a_drag_wins(client: TestClient) -> None:
    with client.websocket_connect(LIVE, headers={"origin": ADDRESS}) as socket:
        for sequence in range(1, 8):
            plan = {**CROSSING, "objective": f"goal-point({sequence}, 0, frame=agent)", "with_search": False}
            socket.send_json({"sequence": sequence, "plan": plan})
        replies = [socket.receive_json()]
        while replies[-1]["sequence"] < 7:
            replies.append(socket.receive_json())
        assert [reply["sequence"] for reply in replies] == sorted({reply["sequence"] for reply in replies})
        assert len(replies) + sum(reply["skipped"] for reply in replies) == 7
        assert replies[-1]["plan"]["objective"] == "goal-point(x_m=7, y_m=0, frame=agent)"
        socket.send_json({"sequence": 8, "plan": {**CROSSING, "objective": "nonsense"}})
        assert "no objective is called 'nonsense'" in socket.receive_json()["problem"]["message"]
        socket.send_text("not json")
        assert socket.receive_json()["problem"]["kind"] == "bad-request"


def test_the_python_code_makes_the_same_plan(client: TestClient) -> None:
    asked = {**CROSSING, "objective": "slow-down(2) then comfort", "beam_width": 2, "gate": False}
    code = posted(client, "/plans/python", **asked)["code"]
    names: dict[str, Any] = {"print": lambda *values: None}
    exec(code, names)  # noqa: S102
    assert list(names["plan"].tokens) == posted(client, "/plans", **asked)["tokens"]


def test_exports_are_read_by_the_library(client: TestClient, view: wc.View, tmp_path: Path) -> None:
    exported = client.post(f"{API}/plans/export", json={**CROSSING, "objective": "left-turn"})
    assert Plan.from_json(exported.text).tokens == view.plan("left-turn").tokens
    path = tmp_path / "scene.parquet"
    path.write_bytes(client.get(f"{API}/scenes/sumo-crossings/3/parquet").content)
    assert wc.load_scene(path).id == view.scene.id
    np.testing.assert_array_equal(wc.load_scene(path).tracks.x_m, view.scene.tracks.x_m)


def test_a_drive_has_a_score_over_time_that_ends_with_its_score(client: TestClient) -> None:
    asked = {"dataset": "sumo-crossings", "scene": 3, "driver": "constant-velocity", "horizon_s": 2.0}
    drive = posted(client, "/drives", 202, **asked)
    assert posted(client, "/drives", 202, **asked)["id"] == drive["id"]  # the same drive, not a second one
    while drive["state"] in ("waiting", "running"):
        drive = client.get(f"{API}/drives/{drive['id']}").json()
    result = drive["result"]
    assert result["scores"][-1] == result["score"]
    assert result["score_time_s"][-1] == pytest.approx(2.0)
    assert len(result["plans"]) == len(result["planning_ms"]) == 20
    assert len(result["speed_mps"]) == len(result["expert_speed_mps"]) == 21
    ego = next(track for track in result["tracks"] if track["is_ego"])
    assert len(ego["x_m"]) == result["num_steps"] == 31
    assert client.get(f"{API}/drives/unknown").status_code == 404


def test_the_schema_is_the_one_that_the_page_was_built_for() -> None:
    # In a process of its own: under pytest, functions are wrapped to check their types.
    program = "import sys, studio_openapi; sys.stdout.write(studio_openapi.schema())"
    made = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT / "docs", capture_output=True, text=True, check=True
    )
    written = (ROOT / "studio" / "openapi.json").read_text()
    assert json.loads(made.stdout) == json.loads(written), "run: python docs/studio_openapi.py, then npm run types"


def test_the_command_refuses_what_it_cannot_open(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["studio", str(tmp_path), "--no-browser"]) == 2
    assert "is not a dataset" in capsys.readouterr().err
    assert main(["studio", "--port", "70000"]) == 2
    assert "expected 0 to 65535" in capsys.readouterr().err
