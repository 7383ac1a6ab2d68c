"""Parts of the studio that need no server: the cache, the sources of scenes, the limits, the score over time."""

import asyncio
import os
import threading
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="the studio is not installed: pip install 'waycode[studio]'")

import waycode as wc
from colour_vision import VISIONS, difference
from waycode.baselines import ConstantVelocity
from waycode.dataset.dataset import save_scene
from waycode.demo import bundled_dataset
from waycode.simulation.drive_file import DRIVES_FOLDER, Drive, drive_path, save_drive
from waycode.simulation.rollout import SimulationConfig
from waycode.studio import Studio, StudioError, StudioLimits
from waycode.studio.caching import ComputedOnce
from waycode.studio.catalogue import SceneFilter, SceneSource
from waycode.studio.errors import BusyError, NotFoundError, RequestError
from waycode.studio.library import Library
from waycode.studio.messages import PlanRequest, Theme
from waycode.studio.palette import PALETTES
from waycode.studio.planning import PlanDesk
from waycode.studio.workers import WorkerProcess


def test_a_value_is_computed_once_for_all_threads() -> None:
    calls, may_finish = [], threading.Event()

    def compute(key: int) -> int:
        calls.append(key)
        may_finish.wait()
        return 10 * key

    cache: ComputedOnce[int, int] = ComputedOnce(compute, size=2)
    results: list[int] = []
    threads = [threading.Thread(target=lambda: results.append(cache(1))) for _ in range(4)]
    for thread in threads:
        thread.start()
    may_finish.set()
    for thread in threads:
        thread.join()
    assert results == [10] * 4
    assert calls == [1]


def test_the_cache_keeps_the_last_used_values_and_no_failures() -> None:
    calls: list[int] = []

    def compute(key: int) -> int:
        calls.append(key)
        if key < 0:
            raise ValueError(key)
        return key

    cache: ComputedOnce[int, int] = ComputedOnce(compute, size=2)
    for key in (1, 2, 1, 3, 1, 2):
        assert cache(key) == key
    assert calls == [1, 2, 3, 2]  # 2 was used least recently when 3 came
    assert len(cache) == 2
    for _ in range(2):
        with pytest.raises(ValueError):
            cache(-1)
    assert calls[-2:] == [-1, -1]


def test_a_scene_is_encoded_once_per_agent() -> None:
    desk = PlanDesk(Studio.open([], model="sumo-small").sources, model="sumo-small", joint_model="none")
    request = PlanRequest(dataset="sumo-crossings", scene=3, objective="comfort", with_search=False)
    views = {id(desk.search(request)[0]) for _ in range(2)}
    assert len(views) == 1
    assert len(desk.views) == 1


def test_files_and_folders_get_names_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    for path in (tmp_path / "scene.parquet", tmp_path / "a" / "scene.parquet"):
        save_scene(bundled_dataset()[0], path)
    paths = [tmp_path / "scene.parquet", tmp_path / "a" / "scene.parquet", bundled_dataset().folder]
    studio = Studio.open(paths, model="sumo-small")
    assert {source.name: len(source) for source in studio.sources} == {
        "scene": 1,
        "scene-2": 1,
        "sumo": 24,
    }
    assert studio.sources[1].read(0).id == bundled_dataset()[0].id


def test_a_folder_of_simulate_has_its_drives_the_worst_first(tmp_path: Path) -> None:
    scene = bundled_dataset("sumo-crossings")[3]
    rollout = wc.simulate(scene, ConstantVelocity(), config=SimulationConfig(horizon_s=1.0, keep_plans=True))
    drive = Drive.of(scene, rollout, planner="constant-velocity", traffic="replay")
    for index, score in enumerate((0.9, 0.1, 0.5)):
        save_drive(replace(drive, score=score), drive_path(tmp_path / "run" / DRIVES_FOLDER, index))
    library = Library([SceneSource.open(tmp_path / "run", name="run")], reads_ahead=False)
    listed = library.scenes(SceneFilter()).scenes
    assert [one.score for one in listed] == [0.1, 0.5, 0.9]
    assert {one.driver for one in listed} == {"constant-velocity, replay traffic"}
    assert library.scene("run", 0).has_drive
    played = library.drive("run", 0)
    assert played.score == 0.1
    assert len(played.plans) == len(played.speed_mps) - 1 == 10
    assert played.expert.x_m == [x_m for x_m, _ in drive.expert_m]
    with pytest.raises(NotFoundError, match="expected 0 to 2"):
        library.drive("run", 3)
    recorded = Library([SceneSource.open(bundled_dataset().folder, name="sumo")], reads_ahead=False)
    with pytest.raises(NotFoundError, match="expected drives of `waycode simulate --out`"):
        recorded.drive("sumo", 0)


def test_limits_must_be_positive_and_a_full_queue_refuses() -> None:
    with pytest.raises(StudioError, match="workers is 0, expected at least 1"):
        StudioLimits(workers=0)
    studio = Studio.open([], model="sumo-small", limits=StudioLimits(workers=1, max_waiting=1))

    async def fill() -> None:
        first = [asyncio.create_task(studio.ask_library("parse", "comfort")) for _ in range(2)]
        await asyncio.sleep(0)  # both have begun to wait
        with pytest.raises(BusyError, match="1 requests wait already"):
            await studio.ask_library("parse", "comfort")
        await asyncio.gather(*first)
        assert b"comfort" in await studio.ask_library("parse", "comfort")
        await studio.close()

    asyncio.run(fill())


class Desk:
    """What a process of the studio may own."""

    def __init__(self) -> None:
        self.calls = 0

    def count(self) -> str:
        self.calls += 1
        return str(self.calls)

    def refuse(self) -> str:
        raise BusyError("not now")

    def fail(self) -> str:
        raise ZeroDivisionError("a fault of ours")

    def end(self) -> str:
        os._exit(1)


def test_a_process_answers_in_order_tells_failures_and_starts_anew_if_it_was_killed() -> None:
    async def talk() -> None:
        worker = WorkerProcess(Desk, name="test")
        try:
            assert await asyncio.gather(*(worker.call("count") for _ in range(3))) == [b"1", b"2", b"3"]
            for method, kind, message in (
                ("refuse", "busy", "not now"),
                ("fail", "failed", "ZeroDivisionError: a fault of ours"),
                ("end", "failed", "it starts anew"),
            ):
                with pytest.raises(RequestError, match=message) as refusal:
                    await worker.call(method)
                assert refusal.value.kind == kind
            assert await worker.call("count") == b"1"
        finally:
            worker.close()
        with pytest.raises(RequestError):
            await worker.call("count")

    asyncio.run(talk())


def test_a_history_is_cut_in_all_its_parts() -> None:
    scene = bundled_dataset("sumo-crossings")[3]
    history = wc.simulate(scene, ConstantVelocity(), config=SimulationConfig(horizon_s=1.0)).history
    first = history.until(4)
    assert len(first.ego) == len(first.expert) == first.tracks.num_steps == 4
    assert (first.ego.rear_axle_m == history.ego.rear_axle_m[:4]).all()


@pytest.mark.parametrize("vision", VISIONS)
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_colours_are_told_apart_with_any_colour_vision(theme: Theme, vision: str) -> None:
    palette = PALETTES[theme]
    alike = {
        (one, other): difference(palette[one], palette[other], vision=vision)
        # What differs in colour alone: lights, solid lines, and lines on the road.
        for group in (("signal_stop", "signal_caution", "signal_go"), ("plan", "pinned", "sample", "asphalt"))
        for one, other in combinations(group, 2)
    }
    assert min(alike.values()) > 20, alike
