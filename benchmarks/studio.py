"""The studio under load: 20 clients that drag goals for a minute, on loopback. No error, flat memory, no stalls.

    .venv/bin/python benchmarks/studio.py [--clients 20] [--seconds 60]

Each client has a live connection and asks for its next plan when the last has arrived. The benchmark starts its own
server and stops it. Beside the server's event loop it watches one that does nothing: what that one stalls, the machine
is to blame for.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import websockets

MAX_STALL_MS, MAX_GROWTH_MB = 50.0, 60.0
IDLE_LOOP = """
import asyncio, sys, time
async def watch(seconds):
    longest, end = 0.0, time.perf_counter() + seconds
    while time.perf_counter() < end:
        began = time.perf_counter()
        await asyncio.sleep(0.02)
        longest = max(longest, time.perf_counter() - began - 0.02)
    print(1e3 * longest)
asyncio.run(watch(float(sys.argv[1])))
"""


async def drag(address: str, number: int, *, until: float) -> tuple[list[float], list[str]]:
    """Latencies of one client in milliseconds, and its errors.

    Args:
        address: of the server.
        number: of the client; it decides on the scene and the way of the goal.
        until: when to stop, by `time.perf_counter`.
    """
    latencies_ms: list[float] = []
    errors: list[str] = []
    uri = address.replace("http", "ws") + "api/v1/live"
    async with websockets.connect(uri, origin=address.rstrip("/")) as socket:  # type: ignore[arg-type]
        sequence = 0
        while sequence == 0 or time.perf_counter() < until:
            sequence += 1
            along_m = 15 + 10 * np.sin(sequence / 7 + number)
            plan = {"dataset": "sumo", "scene": number % 24, "objective": f"goal-point({along_m:.2f}, 0, frame=agent)"}
            began = time.perf_counter()
            await socket.send(json.dumps({"sequence": sequence, "plan": plan}))
            text = await socket.recv()
            latencies_ms.append(1e3 * (time.perf_counter() - began))
            reply = json.loads(text)
            if reply["plan"] is None or reply["sequence"] != sequence:
                errors.append(str(reply["problem"]))
    return latencies_ms, errors


def status(address: str) -> dict[str, Any]:
    with urllib.request.urlopen(f"{address}api/v1/status") as reply:  # noqa: S310  # our own server
        return dict(json.load(reply))


async def load(address: str, clients: int, seconds: float) -> bool:
    """Runs clients, prints what was measured, and says whether the targets were reached."""
    await drag(address, 0, until=time.perf_counter())  # waits until the processes have loaded the model
    alone, _ = await drag(address, 0, until=time.perf_counter() + min(10.0, seconds / 4))
    print(
        f"one client: p50 {np.quantile(alone, 0.5):.0f} ms, p95 {np.quantile(alone, 0.95):.0f} ms, {len(alone)} plans"
    )
    warm = time.perf_counter() + seconds / 4  # every scene is encoded, every thread has its buffers
    await asyncio.gather(*(drag(address, number, until=warm) for number in range(clients)))
    before = status(address)
    until = time.perf_counter() + seconds
    idle = subprocess.Popen([sys.executable, "-c", IDLE_LOOP, str(seconds)], stdout=subprocess.PIPE, text=True)
    results = await asyncio.gather(*(drag(address, number, until=until) for number in range(clients)))
    after = status(address)
    latencies_ms = np.concatenate([found for found, _ in results])
    errors = [error for _, found in results for error in found]
    growth_mb = after["memory_mb"] - before["memory_mb"]
    print(
        f"{clients} clients, {seconds:.0f} s: {len(latencies_ms)} plans ({len(latencies_ms) / seconds:.0f} / s), "
        f"p50 {np.quantile(latencies_ms, 0.5):.0f} ms, p95 {np.quantile(latencies_ms, 0.95):.0f} ms, "
        f"{len(errors)} errors {errors[:1]}"
    )
    print(
        f"memory {before['memory_mb']:.0f} -> {after['memory_mb']:.0f} MB; stall {after['largest_stall_ms']} ms, "
        f"of an idle loop beside it {float(idle.communicate()[0]):.0f} ms; load of the machine {os.getloadavg()[0]:.1f}"
    )
    reached = not errors and growth_mb < MAX_GROWTH_MB and after["largest_stall_ms"] < MAX_STALL_MS
    print(
        "reached" if reached else f"NOT reached: no error, less than {MAX_GROWTH_MB:.0f} MB more, {MAX_STALL_MS:.0f} ms"
    )
    return reached


@contextmanager
def running_studio() -> Iterator[tuple[str, int]]:
    """The address and the process of a studio with the bundled scenes."""
    command = [sys.executable, "-m", "waycode.cli", "studio", "--no-browser", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            words = server.stdout.readline().split()
            yield next(word for word in words if word.startswith("http://")), server.pid
        finally:
            server.terminate()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=60)
    options = parser.parse_args()
    with running_studio() as (address, _):
        return 0 if asyncio.run(load(address, options.clients, options.seconds)) else 1


if __name__ == "__main__":
    sys.exit(main())
