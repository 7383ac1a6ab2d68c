"""Drag to plan, measured in the page: from the pointer that moves the goal to the drawn plan, in Chromium.

    .venv/bin/python benchmarks/studio_page.py [--seconds 10] [--joint]

Beside the latency it prints where the time goes: the search in the planner's process, the way through the socket and
the page's own work; and the processor time of a plan, which other work on the machine changes little. The target is a
95 % quantile below 100 ms on two idle cores, for one agent.
"""

import argparse
import math
import os
import shutil
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from playwright.sync_api import CDPSession, Page, sync_playwright

from studio import running_studio

MAX_P95_MS = 100.0
MOVES_PER_S = 60
# Times of every message to and from the server, noted by the page's socket.
NOTE_MESSAGES = """
window.noted = {sent: new Map(), trips: []};
const send = WebSocket.prototype.send;
WebSocket.prototype.send = function (text) {
  if (!this.isNoted) this.addEventListener("message", (event) => {
    const reply = JSON.parse(event.data), began = window.noted.sent.get(reply.sequence);
    if (reply.plan && began) window.noted.trips.push([performance.now() - began, reply.plan.timings_ms.search]);
  });
  this.isNoted = true;
  window.noted.sent.set(JSON.parse(text).sequence, performance.now());
  return send.call(this, text);
};
"""


def server_cpu_s(server: int) -> float:
    """Processor time of the server and its processes so far."""
    parents: dict[int, int] = {}
    times: dict[int, float] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            parents[int(stat.parent.name)] = int(fields[1])
            times[int(stat.parent.name)] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def is_server(process: int) -> bool:
        return process == server or (parents.get(process, 0) > 1 and is_server(parents[process]))

    return sum(time_s for process, time_s in times.items() if is_server(process))


def page_cpu_s(metrics: CDPSession) -> float:
    """Processor time of the page so far."""
    return float(
        next(one["value"] for one in metrics.send("Performance.getMetrics")["metrics"] if one["name"] == "ProcessTime")
    )


def value(page: Page, expression: str) -> Any:
    return page.evaluate(f"() => {{ const app = window.waycodeStudio; return {expression}; }}")


def wait(page: Page, condition: str) -> None:
    while not value(page, f"app !== undefined && Boolean({condition})"):
        page.wait_for_timeout(100)


def drag(page: Page, seconds: float) -> None:
    """Drags the goal along a circle, one move per picture of the screen."""
    goal, box = value(page, "app.viewport.toScreen(app.goal.x, app.goal.y)"), page.locator("canvas").last.bounding_box()
    canvas = page.locator(".scene-pane:not([hidden]) canvas").last.bounding_box() or box
    assert canvas is not None
    x, y = canvas["x"] + goal["x"], canvas["y"] + goal["y"]
    page.mouse.move(x, y)
    page.mouse.down()
    began, moves = time.perf_counter(), 0
    while (now := time.perf_counter() - began) < seconds:
        page.mouse.move(x + 50 * math.sin(2 * now), y + 30 * (math.cos(2 * now) - 1))
        moves += 1
        time.sleep(max(0.0, moves / MOVES_PER_S - (time.perf_counter() - began)))
    page.mouse.up()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--joint", action="store_true", help="three agents, one code")
    options = parser.parse_args()
    with running_studio() as (address, server), sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = chromium.new_page(viewport={"width": 1280, "height": 720})
        page.set_default_timeout(120_000)
        page.add_init_script(NOTE_MESSAGES)
        page.goto(f"{address}#scene=sumo/17")
        wait(page, "app.plan !== null")
        if options.joint:
            page.get_by_role("button", name="Several agents").click()
            wait(page, "app.isJoint && app.plan !== null")
            others = value(page, "app.scene.tracks.filter((one) => one.is_to_predict && one.id !== app.agent)")
            for other in others[:2]:
                value(page, f"app.chooseAgent({other['id']!r})")
                wait(page, f"app.plan?.others.some((one) => one.agent === {other['id']!r})")
        point = value(page, "app.viewport.toWorld(app.viewport.width / 2 + 60, app.viewport.height / 2 + 60)")
        value(page, f"app.moveGoal({{x: {point['x']}, y: {point['y']}}}, 'click', performance.now())")
        wait(page, "app.plan?.objective")
        metrics = page.context.new_cdp_session(page)
        metrics.send("Performance.enable")
        for length in (2.0, options.seconds):  # the first drag warms everything up
            value(page, "(app.flow.latencies_ms.length = 0, noted.trips.length = 0, null)")
            before = server_cpu_s(server), page_cpu_s(metrics)
            drag(page, length)
            spent = server_cpu_s(server) - before[0], page_cpu_s(metrics) - before[1]
        latencies, trips = np.array(value(page, "app.flow.latencies_ms")), np.array(value(page, "noted.trips"))
        chromium.close()
    p95 = float(np.quantile(latencies, 0.95))
    rows = {"drag to plan": latencies, "  socket and server": trips[:, 0], "    of that the search": trips[:, 1]}
    for name, found in rows.items():
        print(f"{name:24} p50 {np.quantile(found, 0.5):6.1f} ms, p95 {np.quantile(found, 0.95):6.1f} ms")
    server_ms, page_ms = (1e3 * one / len(trips) for one in spent)
    print(
        f"processor time per plan: server {server_ms:.0f} ms, page {page_ms:.0f} ms (of all moves since the last plan)"
    )
    print(f"{len(trips)} plans in {options.seconds:.0f} s; load of the machine {os.getloadavg()[0]:.1f}")
    print("reached" if p95 < MAX_P95_MS else f"NOT reached: p95 below {MAX_P95_MS:.0f} ms")
    return 0 if p95 < MAX_P95_MS else 1


if __name__ == "__main__":
    sys.exit(main())
