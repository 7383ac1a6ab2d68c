"""The forecast table: errors and likelihoods as the planner has them, calibration by hand, the report, the command."""

import json
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest
import torch

from command_output import Output
from scenes import bare_scene
from waycode.cli import main
from waycode.cli.tables import forecast_tables
from waycode.demo import bundled_dataset
from waycode.evaluation.calibration import reliability
from waycode.evaluation.forecast import (
    COLLISION,
    CONSTANT_VELOCITY,
    LEAST_VARIANCE,
    MEAN_SPEED,
    MIN_ADE,
    MIN_FDE,
    MISS,
    MOST_LIKELY,
    AgentForecasts,
    agent_forecasts,
)
from waycode.evaluation.forecast_report import RELATIVE_SPEED, ForecastReport, forecast_report, token_reliability
from waycode.evaluation.guidance import DECODED, RECORDED
from waycode.evaluation.metrics import displacement_errors_m
from waycode.evaluation.pictures import save_forecast
from waycode.evaluation.report import EvaluationError, Provenance
from waycode.model import Model, ModelConfig
from waycode.model.saved import save_model
from waycode.objectives import Reconstruction
from waycode.planner import Planner, PlannerError, View, recorded_agents
from waycode.planner.starting import stands
from waycode.scene import Scene, TrackType
from waycode.training.config import tiny


@pytest.fixture(scope="module")
def model() -> Model:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    return Model(tiny().model).eval()


@pytest.fixture(scope="module")
def scene() -> Scene:
    return bundled_dataset()[4]


@pytest.fixture(scope="module")
def views(model: Model, scene: Scene) -> list[View]:
    return Planner(model).encode_agents(scene, recorded_agents(scene))


@pytest.fixture(scope="module")
def found(model: Model, scene: Scene) -> AgentForecasts:
    return agent_forecasts(model, [scene])


def errors_by_hand(view: View, paths_m: list[np.ndarray]) -> tuple[float, float]:
    """ADE and FDE of the nearest path."""
    tracks, after = view.scene.tracks, view.scene.current_step + 1
    future, valid = tracks.position_m[view.agent, after : after + 80], tracks.valid[view.agent, after : after + 80]
    ade = [
        displacement_errors_m(torch.tensor(path)[None], torch.tensor(future)[None], torch.tensor(valid)[None]).item()
        for path in paths_m
    ]
    fde = [float(np.linalg.norm(path[-1] - future[-1])) if valid[-1] else np.nan for path in paths_m]
    return min(ade), min(fde)


def moving(views: list[View]) -> list[tuple[int, View]]:
    """Those whose plans are as decoded: vehicles that stand are made to start along their heading."""
    chosen = [(row, view) for row, view in enumerate(views) if not stands(view.setting)]
    assert len(chosen) > 3
    return chosen


def test_the_most_likely_forecasts_are_those_of_the_planner(found: AgentForecasts, views: list[View]) -> None:
    measures = found.measures[MOST_LIKELY]
    assert len(views) == len(found.types) > 3
    for row, view in moving(views):
        plans = view.most_likely(6)
        ade, fde = errors_by_hand(view, [plan.position_in(view.scene) for plan in plans])
        assert measures[MIN_ADE][row] == pytest.approx(ade, abs=1e-3)
        assert measures[MIN_FDE][row] == pytest.approx(fde, abs=1e-3, nan_ok=True)
        if np.isfinite(measures[MEAN_SPEED][row]):
            assert measures[MEAN_SPEED][row] == pytest.approx(plans[0].speed_mps.mean(), abs=1e-2)


def test_the_other_forecasts(found: AgentForecasts, views: list[View]) -> None:
    for row, view in moving(views):
        tracks, now = view.scene.tracks, view.scene.current_step
        velocity = np.array([tracks.vx_mps[view.agent, now], tracks.vy_mps[view.agent, now]])
        straight = tracks.position_m[view.agent, now] + 0.1 * np.arange(1, 81)[:, None] * velocity
        ade, _ = errors_by_hand(view, [straight.astype(np.float32)])
        assert found.measures[CONSTANT_VELOCITY][MIN_ADE][row] == pytest.approx(ade, abs=1e-2)
        best = view.plan(Reconstruction(), gate=False)
        ade, _ = errors_by_hand(view, [best.position_in(view.scene)])
        assert found.measures[DECODED][MIN_ADE][row] == pytest.approx(ade, abs=1e-2)
        assert tuple(found.tokens[row]) == best.tokens
        certain = view.beam("terminal-variance", beam_width=6, gate=False)
        ade, _ = errors_by_hand(view, [plan.position_in(view.scene) for plan in certain])
        assert found.measures[LEAST_VARIANCE][MIN_ADE][row] == pytest.approx(ade, abs=1e-2)


def test_probabilities_are_those_of_the_recorded_code(found: AgentForecasts, views: list[View]) -> None:
    np.testing.assert_allclose(found.probability.sum(axis=2), 1.0, atol=1e-6)
    for row, view in enumerate(views):
        chosen = found.probability[row, np.arange(3), found.tokens[row]]
        assert np.log(chosen).sum() == pytest.approx(view.log_probability(found.tokens[row]), abs=1e-4)


def test_misses_and_driving(found: AgentForecasts, scene: Scene) -> None:
    for method, measures in found.measures.items():
        vehicles = found.types == TrackType.VEHICLE
        assert not np.isfinite(measures[COLLISION][~vehicles]).any()
        assert set(np.unique(measures[COLLISION][np.isfinite(measures[COLLISION])])) <= {0.0, 1.0}
        if method != RECORDED:
            known = np.isfinite(measures[MIN_FDE])
            np.testing.assert_array_equal(measures[MISS][known], measures[MIN_FDE][known] > 2.0)
            assert np.isnan(measures[MISS][~known]).all()
    recorded = found.measures[RECORDED]
    assert np.nanmax(recorded[COLLISION]) == 0.0
    for row, agent in enumerate(recorded_agents(scene)):
        if np.isfinite(recorded[MEAN_SPEED][row]):
            path = scene.tracks.position_m[agent, scene.current_step : scene.current_step + 81]
            length = np.linalg.norm(np.diff(path, axis=0), axis=1).sum()
            assert recorded[MEAN_SPEED][row] == pytest.approx(length / 8.0, rel=1e-3)


def test_agents_do_not_depend_on_the_batch(model: Model, scene: Scene, found: AgentForecasts) -> None:
    other = bundled_dataset()[7]
    together = agent_forecasts(model, [other, scene])
    count = len(found.types)
    for method in found.measures:
        for name, values in found.measures[method].items():
            np.testing.assert_allclose(together.measures[method][name][-count:], values, atol=1e-2)


def test_reliability_by_hand() -> None:
    curve = reliability(np.array([0.05, 0.12, 0.18, 0.95, 1.0, 0.0]), np.array([False, True, False, True, True, False]))
    assert [(one.low, one.count) for one in curve.bins] == [(0.0, 2), (0.1, 2), (0.9, 2)]
    assert [one.observed for one in curve.bins] == [0.0, 0.5, 1.0]
    assert [one.predicted for one in curve.bins] == pytest.approx([0.025, 0.15, 0.975])
    assert curve.expected_calibration_error == pytest.approx((2 * 0.025 + 2 * 0.35 + 2 * 0.025) / 6)


def made_up(probability: np.ndarray, tokens: np.ndarray) -> AgentForecasts:
    return AgentForecasts(
        types=np.zeros(len(tokens), np.int64), scenes=np.arange(len(tokens)), episodes=np.arange(len(tokens)),
        measures={}, tokens=tokens,
        probability=probability,
    )  # fmt: skip


def test_a_prior_that_is_right_is_calibrated() -> None:
    """Two values of a token with 80 and 20 %, which come true in 80 and 20 % of the cases."""
    probability = np.tile([0.8, 0.2], (10, 1, 1))
    found = made_up(probability, np.array([[0]] * 8 + [[1]] * 2))
    curves = token_reliability(found)
    assert [one.count for one in curves["all tokens"].bins] == [10, 10]
    assert [one.count for one in curves["most likely token"].bins] == [10]
    assert all(curve.expected_calibration_error == pytest.approx(0.0) for curve in curves.values())
    wrong = token_reliability(made_up(probability, np.zeros((10, 1), np.int64)))
    assert wrong["most likely token"].expected_calibration_error == pytest.approx(0.2)


@pytest.fixture(scope="module")
def report(model: Model) -> ForecastReport:
    counted: list[int] = []
    scenes = [bundled_dataset()[index] for index in (1, 4, 7)]
    provenance = Provenance.of(bundled_dataset(), model="untrained")
    made = forecast_report(model, scenes, provenance=provenance, on_scenes=counted.append)
    assert sum(counted) == 3
    return made


def test_the_report(report: ForecastReport, tmp_path: Path) -> None:
    assert list(report.rows) == [RECORDED, CONSTANT_VELOCITY, DECODED, LEAST_VARIANCE, MOST_LIKELY, "sampled"]
    assert report.rows[RECORDED][RELATIVE_SPEED].mean == pytest.approx(1.0)
    assert MIN_ADE not in report.rows[RECORDED]
    assert report.uniform_nats_per_token == pytest.approx(np.log(8))
    assert report.nll_nats_per_token.mean == pytest.approx(np.mean([one.mean for one in report.nll_nats]))
    assert sum(report.agents_by_type.values()) == report.num_agents >= report.num_driving > 0
    content = json.loads(report.write(tmp_path).read_text())
    assert content["rows"][MOST_LIKELY][MISS]["mean"] == report.rows[MOST_LIKELY][MISS].mean
    assert sum(one["count"] for one in content["reliability"]["all tokens"]["bins"]) == report.num_agents * 3 * 8
    save_forecast(report, tmp_path / "forecast.png")
    assert matplotlib.image.imread(tmp_path / "forecast.png").shape[1] > 1000
    assert forecast_tables(report) is not None


def test_the_command_prints_and_writes_the_report(model: Model, tmp_path: Path, capsys: Output) -> None:
    save_model(tmp_path / "model", model)
    command = ["eval", "forecast", "--model", str(tmp_path / "model"), str(bundled_dataset().folder)]
    assert main([*command, "--scenes", "2", "--threads", "1", "--out", str(tmp_path / "report")]) == 0
    text = capsys.readouterr().out
    for words in (
        "minADE",
        "most likely",
        "least variance",
        "all equally likely",
        "2.079",
        "calibration",
        "forecast.png",
    ):
        assert words in text
    assert json.loads((tmp_path / "report" / "forecast.json").read_text())["num_scenes"] == 2
    assert (tmp_path / "report" / "forecast.png").stat().st_size > 10_000


def test_what_cannot_be_forecast_is_one_sentence(model: Model, scene: Scene) -> None:
    with pytest.raises(EvaluationError, match="no scene has a track to predict"):
        agent_forecasts(model, [bare_scene()])
    config: ModelConfig = model.config
    without = Model(ModelConfig(**{**vars(config), "prior": False})).eval()
    with pytest.raises(PlannerError, match="the model has no prior over codes"):
        agent_forecasts(without, [scene])
