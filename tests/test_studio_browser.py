"""The studio in a real browser: pick an agent, set and drag a goal, toggle a bit, swap a code, reload a permalink.

It also makes the pictures of the documentation:

    WAYCODE_SCREENSHOTS=docs/images pytest tests/test_studio_browser.py
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from waycode.cli import main

pytest.importorskip("fastapi", reason="the studio is not installed: pip install 'waycode[studio]'")
playwright = pytest.importorskip("playwright.sync_api", reason="not installed: pip install 'waycode[dev]'")

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="Chromium is not installed (Debian: apt-get install chromium; .ci/run does it)"
)
SIZES = {"laptop": (1280, 720), "desktop": (1920, 1080), "phone": (390, 844)}
PATIENCE_MS = 180_000  # nothing here is about speed: a busy machine may take its time


class StudioPage:
    """A page of the studio, and what its script knows."""

    def __init__(self, page: Any, address: str):
        self.page, self.address = page, address
        self.problems: list[str] = []
        self.requested: list[str] = []
        page.set_default_timeout(PATIENCE_MS)
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on("console", self._on_console)
        page.on("request", lambda request: self.requested.append(request.url))

    def _on_console(self, message: Any) -> None:
        if message.type == "error":
            self.problems.append(f"{message.text} at {message.location}")

    def open(self, fragment: str = "") -> None:
        self.page.goto("about:blank")
        self.page.goto(f"{self.address}{fragment}")
        self.wait("app.plan !== null || app.planProblem !== null")

    def get(self, expression: str) -> Any:
        """The value of an expression of `app`, the state of the page."""
        return self.page.evaluate(f"() => {{ const app = window.waycodeStudio; return {expression}; }}")

    def wait(self, condition: str) -> None:
        """Waits until a condition on `app` holds. Polled from here: the page's policy forbids evaluated code in it."""
        for _ in range(PATIENCE_MS // 100):
            if self.get(f"app !== undefined && Boolean({condition})"):
                return
            self.page.wait_for_timeout(100)
        raise AssertionError(f"waited in vain for: {condition}")

    def on_screen(self, x_m: float, y_m: float) -> tuple[float, float]:
        """Where a point of the scene is on the screen."""
        box = self.page.locator(".scene-pane:not([hidden]) canvas").last.bounding_box()
        point = self.get(f"app.viewport.toScreen({x_m}, {y_m})")
        return box["x"] + point["x"], box["y"] + point["y"]

    def position_of(self, track: str) -> tuple[float, float]:
        """Where a road user is now."""
        found = f"app.scene.tracks.find((one) => one.id === {json.dumps(track)})"
        now = "app.scene.current_step"
        return tuple(self.get(f"{found}.{name}[{now}]") for name in ("x_m", "y_m"))

    def look_at(self, points_m: list[tuple[float, float]]) -> None:
        """Moves the view so that all of these points can be clicked."""
        middle = [sum(values) / len(points_m) for values in zip(*points_m, strict=True)]
        offsets_m = [abs(value - centre) for point in points_m for value, centre in zip(point, middle, strict=True)]
        radius_m = 25 + max(offsets_m)
        self.get(f"(app.viewport.fit({{x: {middle[0]}, y: {middle[1]}}}, {radius_m}), app.viewMoved())")
        self.settle()

    def settle(self) -> None:
        """Waits until what was asked for is drawn."""
        self.page.wait_for_timeout(700)

    def picture(self, name: str, folder: Path) -> None:
        self.settle()
        self.page.screenshot(path=folder / f"{name}.png")


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with running_studio() as started:
        yield started


@contextmanager
def running_studio(*options: str) -> Iterator[str]:
    """The address of a studio that runs in a process of its own."""
    command = [sys.executable, "-m", "waycode.cli", "studio", "--no-browser", "--port", "0", *options]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    try:
        yield next(word for word in server.stdout.readline().split() if word.startswith("http://"))
    finally:
        server.terminate()
        server.wait()
        server.stdout.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as running:
        # CI runs as root, for whom Chromium has no sandbox; the only page that is opened is our own.
        chromium = running.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture(params=["light"])
def studio(browser: Any, address: str, request: pytest.FixtureRequest) -> Iterator[StudioPage]:
    context = browser.new_context(
        viewport=dict(zip(("width", "height"), SIZES["laptop"], strict=True)), color_scheme=request.param
    )
    context.grant_permissions(["clipboard-read", "clipboard-write"], origin=address.rstrip("/"))
    page = StudioPage(context.new_page(), address)
    yield page
    context.close()
    assert page.problems == []
    assert [url for url in page.requested if not url.startswith((address, "about:", "data:", "blob:"))] == []


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where pictures go: the documentation's folder if asked for."""
    folder = os.environ.get("WAYCODE_SCREENSHOTS")
    return Path(folder) if folder else tmp_path_factory.mktemp("pictures")


def test_plan_by_clicking(studio: StudioPage, pictures: Path) -> None:
    studio.open("#scene=sumo/17")
    studio.wait("app.plan.objective === null")  # what the model expects, before anything is asked for

    # Pick another agent, one that drives on; a goal where its recorded path ends must not lie on a road user.
    others = studio.get(
        "app.scene.tracks.filter((one) => one.kind === 'vehicle' && one.is_to_predict && one.id !== app.agent "
        "&& one.speed_mps[app.scene.current_step] > 3 && one.x_m.at(-1) !== null).map((one) => one.id)"
    )
    x_m, y_m = studio.position_of(others[0])
    chosen = f"app.scene.tracks.find((one) => one.id === {json.dumps(others[0])})"
    goal = tuple(studio.get(f"{chosen}.{name}.at(-1)") for name in ("x_m", "y_m"))
    studio.look_at([(x_m, y_m), goal])
    studio.page.mouse.click(*studio.on_screen(x_m, y_m))
    studio.wait(f"app.agent === {json.dumps(others[0])} && app.plan?.agent === app.agent")

    # Click the goal; the plan ends near it.
    studio.page.mouse.click(*studio.on_screen(*goal))
    studio.wait("app.plan?.objective?.startsWith('goal-point')")
    assert studio.get("app.plan.costs['goal-point']") < 6.0
    assert studio.page.locator(".row[data-objective=goal-point]").count() == 1

    # Drag the goal back towards the agent: the plan follows while the pointer is down.
    start = studio.on_screen(*goal)
    studio.page.mouse.move(*start)
    studio.page.mouse.down()
    for share in (0.1, 0.2, 0.3, 0.4):
        studio.page.mouse.move(*(a + share * (b - a) for a, b in zip(start, studio.on_screen(x_m, y_m), strict=True)))
        studio.page.wait_for_timeout(150)
    studio.wait("app.flow.latencies_ms.length > 0")
    dragged = studio.get("app.plan.trajectory.x_m.at(-1)")
    studio.page.mouse.up()
    studio.settle()
    assert dragged != pytest.approx(goal[0], abs=0.5)

    # Toggle a bit by hand.
    before = studio.get("app.plan.tokens")
    path = studio.get("app.plan.trajectory.x_m")
    studio.page.locator("[data-token='1'] .bit").nth(1).click()
    studio.wait(f"app.state.spec.tokens !== null && app.plan.tokens[0] === {before[0] ^ 2}")
    assert studio.get("app.plan.tokens")[1:] == before[1:]
    assert studio.get("app.plan.trajectory.x_m") != path

    # Swap the code into another scene.
    code = studio.get("app.plan.tokens")
    studio.page.get_by_role("button", name="Copy code").click()
    studio.page.locator("[data-scene='sumo/9']").click()
    studio.wait("app.scene?.index === 9 && app.plan !== null")
    studio.page.get_by_role("button", name="Paste code").click()
    studio.wait(f"JSON.stringify(app.plan?.tokens) === {json.dumps(json.dumps(code, separators=(',', ':')))}")

    # A permalink shows the same.
    link, shown = studio.page.url, studio.get("app.plan.trajectory.x_m")
    studio.open(link.removeprefix(studio.address))
    studio.wait("app.state.spec.tokens !== null && app.plan?.tokens !== null")
    studio.settle()
    assert studio.get("app.plan.trajectory.x_m") == shown
    assert studio.get("app.plan.tokens") == code


def test_objectives_as_forms_and_text(studio: StudioPage) -> None:
    studio.open("#scene=sumo-crossings/3")
    text = studio.page.get_by_label("The objective as text")
    text.fill("left-trun")
    studio.page.get_by_text("did you mean left-turn").wait_for()
    studio.problems.clear()  # the browser logs the 422 itself
    text.fill("2 * left-turn + comfort where road-edge")
    studio.wait("app.plan?.objective === '2 * left-turn + comfort where road-edge'")
    assert studio.page.locator(".row").count() == 3
    studio.page.get_by_label("Weight of left-turn").fill("3")
    studio.page.get_by_label("Weight of left-turn").press("Tab")
    studio.wait("app.plan?.objective === '3 * left-turn + comfort where road-edge'")
    studio.page.get_by_label("Add an objective").select_option("slow-down")
    studio.wait("app.plan?.objective?.includes('slow-down')")
    studio.page.get_by_role("button", name="Clear").click()
    studio.wait("app.plan?.objective === null && app.rows.length === 0")
    studio.page.get_by_role("button", name="right-turn").click()
    studio.wait("app.plan?.objective === 'right-turn'")
    studio.page.get_by_text("Search", exact=True).click()
    studio.page.locator("[data-setting=beam_width]").fill("3")
    studio.page.locator("[data-setting=beam_width]").press("Tab")
    studio.wait("app.plan?.search[1]?.num_candidates === 24")
    assert "beam=3" in studio.page.url


def test_compare_export_and_code(studio: StudioPage, pictures: Path) -> None:
    studio.open("#scene=sumo-crossings/3&objective=left-turn")
    studio.page.get_by_role("button", name="Compare").click()
    studio.page.get_by_label("The objective as text").fill("right-turn")
    studio.wait("app.plan?.objective === 'right-turn' && app.pinnedPlan?.objective === 'left-turn'")
    studio.page.locator(".scene-pane").first.wait_for(state="visible")
    assert studio.page.locator(".scene-pane:not([hidden])").count() == 2
    studio.open(studio.page.url.removeprefix(studio.address))
    studio.wait("app.plan?.objective === 'right-turn' && app.pinnedPlan?.objective === 'left-turn'")
    studio.picture("studio_compare", pictures)
    studio.page.get_by_role("button", name="Python").click()
    assert "view.plan('right-turn')" in studio.page.locator("dialog pre").inner_text()
    studio.page.keyboard.press("Escape")
    for what, ending in (("Picture", ".png"), ("Plan", ".json"), ("Scene", ".parquet")):
        studio.page.locator(".menu summary").click()
        with studio.page.expect_download() as download:
            studio.page.locator(".menu-items button", has_text=what).click()
        assert download.value.suggested_filename.endswith(ending)
        assert Path(download.value.path()).stat().st_size > 1000


def test_the_keyboard_does_what_the_pointer_does(studio: StudioPage) -> None:
    studio.open("#scene=sumo-crossings/3")
    studio.page.locator(".scene-pane:not([hidden]) canvas").last.focus()
    agent, scale = studio.get("app.agent"), studio.get("app.viewport.scale")
    studio.page.keyboard.press("+")
    assert studio.get("app.viewport.scale") > scale
    studio.page.keyboard.press("Shift+ArrowUp")
    studio.wait("app.plan?.objective?.startsWith('goal-point')")
    studio.page.keyboard.press(".")
    assert studio.get("app.state.time_s") == pytest.approx(0.1)
    studio.page.keyboard.press("n")
    studio.wait(f"app.agent !== {json.dumps(agent)} && app.plan?.agent === app.agent")
    assert studio.get("app.goal") is None  # a goal of one agent is not that of another
    studio.page.go_back()
    studio.wait(f"app.agent === {json.dumps(agent)} && app.goal !== null")


def test_the_prior_and_a_drive(studio: StudioPage, pictures: Path) -> None:
    studio.open("#scene=sumo-crossings/9&tab=prior")
    studio.page.get_by_role("button", name="Draw samples").click()
    studio.wait("app.draws !== null")
    assert studio.page.locator(".draw").count() == studio.get("app.draws.plans.length")
    studio.picture("studio_prior", pictures)
    studio.page.get_by_role("tab", name="Drive").click()
    studio.page.get_by_label("Driver").select_option("pdm-closed")
    studio.page.get_by_role("button", name="Drive", exact=True).click()
    studio.wait("app.drive?.state === 'done' || app.drive?.state === 'failed'")
    assert studio.get("app.drive.problem") is None
    studio.wait("!app.isPlaying")
    assert studio.page.locator(".score strong").inner_text() == f"{100 * studio.get('app.drive.result.score'):.1f}"
    studio.get("app.setTime(4)")
    studio.picture("studio_drive", pictures)


def test_several_agents_have_goals_of_their_own(studio: StudioPage, pictures: Path) -> None:
    studio.open("#scene=sumo/17")
    num_tokens = studio.get("app.about.joint.num_tokens")
    first, second = "car-signal0north_to_signal0-17", "truck-signal0south_to_signal0-31"  # they part
    ends = {}
    for agent in (first, second):
        found = f"app.scene.tracks.find((one) => one.id === {json.dumps(agent)})"
        ends[agent] = tuple(studio.get(f"{found}.{name}.at(-1)") for name in ("x_m", "y_m"))
    studio.look_at([*ends.values(), studio.position_of(first), studio.position_of(second)])
    studio.get(f"app.chooseAgent({json.dumps(first)})")
    studio.page.get_by_role("button", name="Several agents").click()
    studio.wait(f"app.isJoint && app.plan?.agent === {json.dumps(first)} && app.plan.tokens.length === {num_tokens}")
    assert studio.page.locator(".token-column:not([hidden])").count() == num_tokens
    studio.page.mouse.click(*studio.on_screen(*studio.position_of(second)))  # adds it
    studio.wait(f"app.plan?.others[0]?.agent === {json.dumps(second)}")

    # A goal for each, by clicking; plans for both.
    for agent in (second, first):
        studio.page.locator(".agent-chip button", has_text=agent).first.click()
        studio.page.mouse.click(*studio.on_screen(*ends[agent]))
        studio.wait(f"app.plan?.objective?.includes('agent({agent}): goal-point')")
    assert studio.get("app.plan.objective").endswith(" + all: no-collision")
    assert studio.get("app.goals.length") == 2
    assert studio.get("app.plan.search.length") == num_tokens
    before = studio.get("app.plan.others[0].trajectory.x_m")
    studio.picture("studio_joint", pictures)

    # Drag the goal of the second; its plan follows.
    start, middle = studio.on_screen(*ends[second]), studio.on_screen(*studio.position_of(second))
    studio.page.mouse.move(*start)
    studio.page.mouse.down()
    for share in (0.2, 0.4, 0.6):
        studio.page.mouse.move(*(a + share * (b - a) for a, b in zip(start, middle, strict=True)))
        studio.page.wait_for_timeout(150)
    studio.page.mouse.up()
    assert studio.get("app.agent") == second
    studio.wait(f"JSON.stringify(app.plan?.others[0].trajectory.x_m) !== {json.dumps(compact(before))}")

    # Text, permalink, code, and back to one agent.
    studio.page.get_by_label("The objective as text").fill(f"agent({first}): slow-down(2) + all: no-collision")
    studio.wait("app.plan?.objective?.includes('slow-down')")
    assert studio.page.get_by_label("Agent of slow-down").input_value() == first
    link, shown = studio.page.url, studio.get("app.plan.others[0].trajectory.x_m")
    studio.open(link.removeprefix(studio.address))
    studio.wait("app.plan?.objective?.includes('slow-down')")
    assert studio.get("app.plan.others[0].trajectory.x_m") == shown
    studio.page.get_by_role("button", name="Python").click()
    assert f"planner.encode(scene, agents={[first, second]!r})" in studio.page.locator("dialog pre").inner_text()
    studio.page.keyboard.press("Escape")
    studio.page.get_by_role("button", name=f"Remove {second}").click()
    studio.wait("app.plan?.others.length === 0 && app.isJoint")
    studio.page.get_by_role("button", name="One agent").click()
    studio.wait("!app.isJoint && app.plan?.tokens.length === app.about.model.num_tokens")


def compact(value: Any) -> str:
    """As the page writes JSON."""
    return json.dumps([int(one) if one == int(one) else one for one in value], separators=(",", ":"))


def test_drives_of_simulate_are_played_and_a_missing_joint_model_is_told(
    browser: Any, tmp_path: Path, pictures: Path
) -> None:
    command = ["simulate", "sample-crossings", "--planner", "idm", "--scenes", "3", "--worst", "0"]
    assert main([*command, "--horizon-s", "6", "--out", str(tmp_path / "drive")]) == 0
    with running_studio(str(tmp_path / "drive"), "--joint-model", "not-there") as address:
        page = StudioPage(browser.new_page(viewport={"width": 1280, "height": 720}), address)
        page.open()  # the worst drive, at once
        page.wait("app.driven !== null && app.isDriveShown")
        entries = page.page.locator(".scene-entry .entry-score")
        scores = [float(text) for text in entries.all_inner_texts()]
        assert scores == sorted(scores)
        assert len(scores) == 3
        assert page.page.locator(".score strong").inner_text() == f"{100 * page.get('app.driven.score'):.1f}"
        assert page.get("app.driven.scores.at(-1)") == page.get("app.driven.score")
        page.page.locator("canvas.chart").click(position={"x": 150, "y": 40})
        assert page.get("app.state.time_s") > 0
        page.picture("studio_kept_drive", pictures)
        page.page.locator(".scene-entry").last.click()
        page.wait("app.scene?.index === 2 && app.driven !== null")
        page.page.get_by_role("tab", name="Plan").click()
        page.page.get_by_role("button", name="Several agents").click()
        page.page.get_by_text("Train one with the recipe small-joint").wait_for()
        assert not page.get("app.isJoint")
        assert page.problems == []
        page.page.close()


def test_a_scene_that_is_not_there_says_so(studio: StudioPage) -> None:
    studio.open("#scene=sumo/999")
    studio.page.get_by_text("expected 0 to 23").first.wait_for()
    studio.problems.clear()  # the browser logs the 404 itself


@pytest.mark.parametrize("studio", ["light", "dark"], indirect=True)
@pytest.mark.parametrize("size", SIZES)
def test_it_fits_the_screen(studio: StudioPage, size: str, pictures: Path) -> None:
    width, height = SIZES[size]
    studio.page.set_viewport_size({"width": width, "height": height})
    studio.open("#scene=sumo-crossings/9&objective=left-turn+then+likelihood")
    studio.settle()
    assert studio.page.evaluate("document.documentElement.scrollWidth") <= width
    theme = studio.page.evaluate("document.documentElement.dataset.theme")
    studio.picture(f"studio_{size}_{theme}", pictures)
    if size != "phone":  # everything that one plans with is visible without scrolling
        assert studio.page.evaluate("document.documentElement.scrollHeight") <= height
        for selector in (".scene-canvas", ".dock .bit", ".playback", ".result"):
            box = studio.page.locator(selector).last.bounding_box()
            assert box["y"] + min(box["height"], 24) <= height, selector
