"""The reconstruction report: its columns, orderings, calibration, picture and the figures of validation."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest
import torch

from scenes import bare_scene, small_scene
from tiny_model import batch_of, futures_of, seen_by
from waycode.dataset.dataset import Dataset, ShardContents, write_dataset
from waycode.demo import bundled_dataset
from waycode.evaluation.pictures import save_reconstruction
from waycode.evaluation.reconstruction import (
    TABLE_METHODS,
    AgentErrors,
    CodeMethod,
    ReconstructionFigures,
    reconstruction_errors,
    searched_reconstruction,
    sigma_max_m,
)
from waycode.evaluation.reconstruction_report import (
    COVERAGES,
    PAPER_ADE_M,
    Ordering,
    ReconstructionReport,
    check_orderings,
    reconstruction_report,
    reconstruction_table,
    risk_coverage,
)
from waycode.evaluation.report import EvaluationError, chosen_indices, evenly_chosen
from waycode.model import Model, PrefixDecoder
from waycode.model.bottleneck import quantise
from waycode.planner import recorded_agents
from waycode.scene import Scene
from waycode.training.config import tiny
from waycode.training.losses import average_displacement_m


@pytest.fixture(scope="module")
def model() -> Model:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    return Model(tiny().model).eval()


@pytest.fixture(scope="module")
def report(model: Model) -> ReconstructionReport:
    return reconstruction_report(model, scenes(3), name="untrained", data="the sample")


def scenes(count: int) -> Iterator[Scene]:
    return evenly_chosen(bundled_dataset(), count)


def make_shard(task: list[Scene]) -> ShardContents:
    return ShardContents(task)


def test_every_way_to_a_code_is_judged(model: Model) -> None:
    counted: list[int] = []
    errors = reconstruction_errors(model, scenes(3), on_scenes=counted.append)
    agents = [len(recorded_agents(scene)) for scene in scenes(3)]
    assert sum(counted) == 3
    assert errors.types.shape == errors.scenes.shape == (sum(agents),)
    assert np.bincount(errors.scenes).tolist() == agents
    for column in TABLE_METHODS:
        assert errors.ade_m[column.name].shape == (sum(agents), 3)
        assert np.isfinite(errors.ade_m[column.name]).all()
        assert (errors.final_std_m[column.name] > 0).all()


def test_agents_do_not_depend_on_who_is_in_the_batch(model: Model) -> None:
    column = CodeMethod(by_search=True, num_levels=2)
    together = reconstruction_errors(model, scenes(3), methods=(column,)).ade_m[column.name]
    alone = [reconstruction_errors(model, iter([scene]), methods=(column,)).ade_m[column.name] for scene in scenes(3)]
    assert together == pytest.approx(np.concatenate(alone), rel=1e-3)


def test_search_beats_any_code_of_the_encoder_by_its_own_measure(model: Model) -> None:
    """With one token greedy search tries every code, so nothing that is quantised can be nearer."""
    config = replace(model.config, num_tokens=1)
    torch.manual_seed(1)
    one_token = Model(config).eval()
    batch = batch_of(*scenes(6), agents=3, config=config.features)
    future, valid = futures_of(batch)
    with torch.no_grad():
        seen, memory = seen_by(one_token, batch)
        decode = PrefixDecoder(one_token, memory)
        codes = {
            f"greedy {levels}": searched_reconstruction(one_token, decode, future, valid, levels=levels)
            for levels in (2, 3)
        }
        latents = one_token.encode(future, valid, seen)
        codes |= {f"encoder {levels}": quantise(latents, levels) for levels in (2, 3)}
        error = {
            name: average_displacement_m(one_token.decode(code[:, None], memory)[0], future, valid)[:, 0]
            for name, code in codes.items()
        }
    for levels in (2, 3):
        assert (error[f"greedy {levels}"] <= error[f"encoder {levels}"] + 1e-4).all()
        assert error[f"greedy {levels}"].mean() < error[f"encoder {levels}"].mean()
    assert (error["greedy 3"] <= error["greedy 2"] + 1e-4).all()  # two of the three levels are the same


def test_columns_have_names() -> None:
    assert [column.name for column in TABLE_METHODS] == list(PAPER_ADE_M)
    assert CodeMethod(by_search=True, num_levels=2, beam_width=4).name == "beam 4 N_l = 2"
    with pytest.raises(ValueError, match="search needs a number of levels"):
        CodeMethod(by_search=True, num_levels=None)


def test_scenes_without_anything_to_predict_are_refused(model: Model) -> None:
    with pytest.raises(EvaluationError, match="no scene has a track to predict"):
        reconstruction_errors(model, iter([bare_scene()]))
    gone = small_scene(num_steps=2)  # nothing after the current step
    assert recorded_agents(gone) == []


def test_table_has_a_cell_per_column_and_number_of_tokens() -> None:
    errors = AgentErrors(
        types=np.array([1, 1, 2]),
        scenes=np.array([0, 1, 1]),
        ade_m={"a": np.array([[1.0, 0.5], [3.0, 1.5], [8.0, 2.0]])},
        fde_m={},
        final_std_m={},
    )
    cells = reconstruction_table(errors)["a"]
    assert [cell.mean for cell in cells] == [pytest.approx(5.0), pytest.approx(1.5)]
    assert all(cell.low <= cell.mean <= cell.high for cell in cells)


def test_the_papers_table_has_all_orderings() -> None:
    found = check_orderings(PAPER_ADE_M)
    assert len(found) == 4
    assert all(ordering.holds for ordering in found)


@pytest.mark.parametrize(
    ("column", "values", "broken"),
    [
        pytest.param("encoder N_l = 3", (0.617, 0.38, 0.38), "more tokens are better", id="a token that adds nothing"),
        pytest.param("greedy N_l = 2", (0.9, 0.485, 0.386), "greedy search beats", id="the encoder is better"),
        pytest.param("encoder N_l = 3", (0.617, 0.55, 0.334), "three levels beat two", id="two levels are better"),
        pytest.param("encoder continuous", (0.7, 0.365, 0.298), "continuous beats", id="rounding helps"),
    ],
)
def test_broken_orderings_are_named(column: str, values: tuple[float, ...], broken: str) -> None:
    found = {ordering.claim: ordering for ordering in check_orderings({**PAPER_ADE_M, column: values})}
    failed = [ordering for ordering in found.values() if not ordering.holds]
    assert len(failed) == 1
    assert failed[0].claim.startswith(broken)
    assert column in failed[0].breaks[0]


def test_orderings_of_fewer_columns() -> None:
    assert check_orderings({"encoder N_l = 2": [2.0, 1.0]}) == [Ordering("more tokens are better in every column", ())]


def test_risk_coverage_by_hand() -> None:
    error, std = np.arange(100, dtype=float), np.arange(100, dtype=float)
    pairs = risk_coverage(error, std)
    assert [share for share, _ in pairs] == list(COVERAGES)
    assert pairs[0][1] == pytest.approx(2.0)  # the mean of 0 to 4
    assert pairs[-1][1] == pytest.approx(49.5)
    backwards = risk_coverage(error, -std)
    assert backwards[0][1] == pytest.approx(97.0)
    error[:50] = np.nan  # not observed at the end: left out
    assert risk_coverage(error, std)[-1][1] == pytest.approx(74.5)


def test_thresholds_are_quantiles_of_the_spread() -> None:
    spread = np.stack([np.linspace(0, 1, 101), np.linspace(0, 2, 101)], axis=1)
    nothing = np.zeros(101, np.int64)
    errors = AgentErrors(types=nothing, scenes=nothing, ade_m={}, fde_m={}, final_std_m={"greedy N_l = 2": spread})
    assert sigma_max_m(errors) == {1: pytest.approx(0.95), 2: pytest.approx(1.9)}


def test_report_is_complete(report: ReconstructionReport) -> None:
    assert list(report.table) == list(PAPER_ADE_M)
    assert report.num_scenes == 3
    assert sum(report.agents_by_type.values()) == report.num_agents
    assert set(report.by_type) == set(report.agents_by_type) <= {"vehicle", "pedestrian", "cyclist"}
    assert list(report.beam_ade_m) == [1, 2, 4, 8]
    assert report.beam_ade_m[1] == report.table["greedy N_l = 2"][-1]
    assert list(report.risk_coverage) == ["encoder continuous", "encoder N_l = 2", "greedy N_l = 2"]
    mean = np.mean([table["greedy N_l = 3"][2].mean for table in report.by_type.values()])
    assert report.table["greedy N_l = 3"][2].mean == pytest.approx(mean)


def test_report_is_written_and_drawn(report: ReconstructionReport, tmp_path: Path) -> None:
    assert report.write(tmp_path / "new") == tmp_path / "new" / "reconstruction.json"
    content = json.loads((tmp_path / "new" / "reconstruction.json").read_text())
    assert content["table"]["greedy N_l = 2"][0].keys() == {"ade_m", "low_m", "high_m"}
    assert {"claim", "breaks", "holds"} == content["orderings"][0].keys()
    save_reconstruction(report, tmp_path / "picture.png")
    picture = matplotlib.image.imread(tmp_path / "picture.png")
    assert picture.shape[0] > 600
    assert picture.std() > 0.02  # not an empty sheet


def test_scenes_are_chosen_evenly() -> None:
    assert chosen_indices(10, 3) == [0, 3, 6]
    assert chosen_indices(3, 10) == chosen_indices(3, None) == [0, 1, 2]


def test_validation_gives_figures_and_thresholds(model: Model) -> None:
    validate = ReconstructionFigures(num_scenes=2)
    dataset = bundled_dataset()
    validate.check(dataset)
    figures, thresholds = validate(model, dataset)
    names = ("encoder N_l = 2", "encoder continuous", "greedy N_l = 2")
    assert list(figures) == [f"{name}/{tokens}" for name in names for tokens in (1, 2, 3)]
    assert list(thresholds) == [1, 2, 3]
    assert validate(model, dataset) == (figures, thresholds)


def test_validation_refuses_scenes_without_tracks_to_predict(tmp_path: Path) -> None:
    write_dataset(tmp_path / "bare", [[bare_scene()]], make=make_shard, source="made-up", settings={})
    with pytest.raises(EvaluationError, match="expected validation scenes with some"):
        ReconstructionFigures().check(Dataset(tmp_path / "bare"))
