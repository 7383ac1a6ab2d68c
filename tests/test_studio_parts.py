"""Parts of the studio that need no server: the cache, the sources of scenes, the limits, the score over time."""

import asyncio
import threading
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="the studio is not installed: pip install 'waycode[studio]'")

import waycode as wc
from waycode.dataset.dataset import save_scene
from waycode.demo import bundled_dataset
from waycode.studio import Studio, StudioError, StudioLimits
from waycode.studio.planning import ComputedOnce
from waycode.studio.studio import StudioBusyError


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
    from waycode.studio.messages import PlanRequest

    studio = Studio.open([], model="sumo-small")
    request = PlanRequest(dataset="sumo-crossings", scene=3, objective="comfort", with_search=False)
    views = {id(studio.plans.search(request)[0]) for _ in range(2)}
    assert len(views) == 1
    assert studio.status().num_cached_views == 1
    assert studio.status().num_plans == 2


def test_files_and_folders_get_names_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    for path in (tmp_path / "scene.parquet", tmp_path / "a" / "scene.parquet"):
        save_scene(bundled_dataset()[0], path)
    paths = [tmp_path / "scene.parquet", tmp_path / "a" / "scene.parquet", bundled_dataset().folder]
    studio = Studio.open(paths, model="sumo-small")
    assert {name: len(source) for name, source in studio.catalogue.sources.items()} == {
        "scene": 1,
        "scene-2": 1,
        "sumo": 24,
    }
    assert studio.catalogue.source("scene-2").read(0).id == bundled_dataset()[0].id


def test_limits_must_be_positive_and_a_full_queue_refuses() -> None:
    with pytest.raises(StudioError, match="threads is 0, expected at least 1"):
        StudioLimits(threads=0)
    studio = Studio.open([], model="sumo-small", limits=StudioLimits(threads=1, max_waiting=1))
    may_finish = threading.Event()

    async def fill() -> None:
        first = [asyncio.create_task(studio.run(may_finish.wait)) for _ in range(2)]
        await asyncio.sleep(0)  # both have begun to wait
        with pytest.raises(StudioBusyError, match="1 requests wait already"):
            await studio.run(lambda: None)
        may_finish.set()
        await asyncio.gather(*first)
        assert await studio.run(lambda: 7) == 7
        await studio.close()

    asyncio.run(fill())


def test_a_history_is_cut_in_all_its_parts() -> None:
    from waycode.baselines import ConstantVelocity
    from waycode.simulation.rollout import SimulationConfig

    scene = bundled_dataset("sumo-crossings")[3]
    history = wc.simulate(scene, ConstantVelocity(), config=SimulationConfig(horizon_s=1.0)).history
    first = history.until(4)
    assert len(first.ego) == len(first.expert) == first.tracks.num_steps == 4
    assert (first.ego.rear_axle_m == history.ego.rear_axle_m[:4]).all()
