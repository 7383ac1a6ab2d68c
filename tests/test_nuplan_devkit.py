"""Exported scenarios in nuplan-devkit's own loop: its metrics and ours give the same scores of the same runs.

Runs where the devkit can be imported (docs/nuplan.md); elsewhere it is skipped.
"""

import json
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nuplan_files as files
from waycode.baselines import ConstantVelocity, IdmDriver
from waycode.demo import bundled_dataset
from waycode.driving import Driver
from waycode.simulation.metrics import score_run
from waycode.simulation.scenarios import reason_unfit
from waycode.sources.nuplan import NuplanSource
from waycode.sources.nuplan.log_export import LOGS_FOLDER, MAPS_FOLDER, export_nuplan
from waycode.sources.nuplan.map_export import CITIES
from waycode.sources.nuplan.maps import VERSIONS_FILE

pytestmark = [
    pytest.mark.skipif(
        find_spec("nuplan") is None, reason="needs nuplan-devkit: docs/nuplan.md says how to install it"
    ),
    pytest.mark.filterwarnings("ignore"),  # the devkit's own, of newer packages than it was written for
]

NUM_SCENARIOS = 5
# A driver that turns, follows and brakes, and one that leaves its lane and collides.
DRIVERS: dict[str, Driver[Any]] = {"idm": IdmDriver(), "constant-velocity": ConstantVelocity()}


@pytest.fixture(scope="module")
def devkit(tmp_path_factory: pytest.TempPathFactory) -> Any:
    from waycode.simulation.nuplan.devkit import Devkit

    root: Path = tmp_path_factory.mktemp("nuplan")
    scenes = [scene for scene in bundled_dataset() if reason_unfit(scene) is None]
    export_nuplan(scenes[:: max(1, len(scenes) // NUM_SCENARIOS)][:NUM_SCENARIOS], root)
    return Devkit(root)


def test_the_devkit_finds_every_exported_scenario_and_our_reader_the_same(devkit: Any) -> None:
    assert len(devkit.scenarios) == NUM_SCENARIOS
    for scenario in devkit.scenarios:
        scene, state = devkit.read(scenario), scenario.initial_ego_state
        here = scene.tracks.position_m[0, scene.current_step] + np.array(scene.origin_m)
        np.testing.assert_allclose(here, (state.center.x, state.center.y), atol=2e-3)


def test_of_the_tests_own_log_the_devkit_finds_the_scenarios_that_our_reader_finds(tmp_path: Path) -> None:
    from waycode.simulation.nuplan.devkit import Devkit

    (tmp_path / LOGS_FOLDER).mkdir(parents=True)
    files.write_log(tmp_path / LOGS_FOLDER / "log.db")
    written = files.write_map(tmp_path / MAPS_FOLDER)
    for city, version in CITIES.items():  # the devkit opens all four
        other = tmp_path / MAPS_FOLDER / city / version / written.name
        if other != written:
            other.parent.mkdir(parents=True)
            shutil.copyfile(written, other)
    versions = {city: {"version": version, "layers": {}} for city, version in CITIES.items()}
    (tmp_path / MAPS_FOLDER / VERSIONS_FILE).write_text(json.dumps(versions))
    theirs = Devkit(tmp_path, one_per_log=False).scenarios
    source = NuplanSource(tmp_path / LOGS_FOLDER, tmp_path / MAPS_FOLDER, history_s=0.1, future_s=0.1)
    types = {scenario.scenario_type for scenario in theirs}
    ours = [reference for reference in source.references() if types.intersection(source.read(reference).tags)]
    assert {scenario.token for scenario in theirs} == {reference.tagged for reference in ours}
    assert {scenario.get_scenario_tokens()[0] for scenario in theirs} == {reference.token for reference in ours}
    theirs[0].map_api.initialize_all_layers()


@pytest.mark.parametrize("driver", list(DRIVERS))
def test_the_devkits_scores_are_ours(devkit: Any, driver: str) -> None:
    from waycode.simulation.nuplan import WaycodePlanner
    from waycode.simulation.nuplan.devkit import history_of

    for scenario in devkit.scenarios:
        run = devkit.drive(scenario, WaycodePlanner(planner=DRIVERS[driver]))
        ours = score_run(history_of(run, devkit.read(scenario)))
        found = {name: result.score for name, result in ours.metrics.items()}
        assert found == pytest.approx(run.metrics, abs=1e-3), scenario.log_name
        assert ours.score == pytest.approx(run.score, abs=1e-3), scenario.log_name
