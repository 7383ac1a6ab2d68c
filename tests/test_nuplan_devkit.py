"""Exported scenarios in nuplan-devkit's own loop: its metrics and ours give the same scores of the same runs.

Runs where the devkit can be imported (docs/nuplan.md); elsewhere it is skipped.
"""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from waycode.baselines import ConstantVelocity, IdmDriver
from waycode.demo import bundled_dataset
from waycode.driving import Driver
from waycode.simulation.metrics import score_run
from waycode.simulation.scenarios import reason_unfit
from waycode.sources.nuplan.log_export import export_nuplan

pytestmark = [
    pytest.mark.skipif(find_spec("nuplan") is None, reason="needs nuplan-devkit: docs/nuplan.md says how to install it"),
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
