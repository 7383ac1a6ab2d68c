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
from waycode.dataset.seeds import episode_of
from waycode.demo import bundled_dataset
from waycode.evaluation.pictures import save_reconstruction
from waycode.evaluation.reconstruction import (
    REFINED_METHODS,
    TABLE_METHODS,
    AgentErrors,
    CodeMethod,
    ReconstructionFigures,
    calibrated_gate,
    reconstruction_errors,
    refined_reconstruction,
)
from waycode.evaluation.reconstruction_report import (
    COVERAGES,
    PAPER_ADE_M,
    Ordering,
    ReconstructionReport,
    check_orderings,
    compare_errors,
    reconstruction_report,
    reconstruction_table,
    risk_coverage,
)
from waycode.evaluation.report import EvaluationError, Provenance, chosen_indices, evenly_chosen
from waycode.model import Model, PrefixDecoder, Spread, search_codes
from waycode.model.autoencoder import average_displacement_m
from waycode.planner import recorded_agents
from waycode.scene import Scene
from waycode.training.config import tiny


@pytest.fixture(scope="module")
def model() -> Model:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    return Model(tiny().model).eval()


@pytest.fixture(scope="module")
def report(model: Model) -> ReconstructionReport:
    provenance = Provenance.of(bundled_dataset(), model="untrained")
    return reconstruction_report(model, scenes(3), provenance=provenance, refine=True)


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
    assert errors.episodes.tolist() == [
        episode_of(scene) for scene, count in zip(scenes(3), agents, strict=True) for _ in range(count)
    ]
    for column in TABLE_METHODS:
        for ade_m in (errors.ade_m[column.name], errors.ade_2hz_m[column.name]):
            assert ade_m.shape == (sum(agents), 3)
            assert np.isfinite(ade_m).all()
        assert not np.array_equal(errors.ade_m[column.name], errors.ade_2hz_m[column.name])
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
        _, memory = seen_by(one_token, batch)
        codes = {
            f"greedy {levels}": one_token.codebook(levels).codes(
                search_codes(one_token, memory, future, valid, levels=levels)
            )
            for levels in (2, 3)
        }
        codes |= {f"encoder {levels}": one_token.encode(future, valid, memory, levels=levels) for levels in (2, 3)}
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
    assert [column.name for column in REFINED_METHODS] == ["encoder refined 5", "encoder refined 40"]
    with pytest.raises(ValueError, match="search needs a number of levels"):
        CodeMethod(by_search=True, num_levels=None)
    with pytest.raises(ValueError, match="refine_steps is 5, expected 0 but for the encoder's continuous code"):
        CodeMethod(by_search=False, num_levels=2, refine_steps=5)


def test_scenes_without_anything_to_predict_are_refused(model: Model) -> None:
    with pytest.raises(EvaluationError, match="no scene has a track to predict"):
        reconstruction_errors(model, iter([bare_scene()]))
    gone = small_scene(num_steps=2)  # nothing after the current step
    assert recorded_agents(gone) == []


def made_up(ade_m: dict[str, np.ndarray], *, ade_2hz_m: dict[str, np.ndarray] | None = None) -> AgentErrors:
    """Errors of three agents, the first in a scene of its own episode, the others in two scenes of another one."""
    return AgentErrors(
        types=np.array([1, 1, 2]),
        scenes=np.array([0, 1, 2]),
        episodes=np.array(["a", "b", "b"]),
        ade_m=ade_m,
        ade_2hz_m=ade_2hz_m or {},
        fde_m={},
        final_std_m={},
    )


def test_table_has_a_cell_per_column_and_number_of_tokens() -> None:
    values = np.array([[1.0, 0.5], [3.0, 1.5], [8.0, 2.0]])
    errors = made_up({"a": values}, ade_2hz_m={"a": 2 * values})
    cells = reconstruction_table(errors)["a"]
    assert [cell.mean for cell in cells] == [pytest.approx(5.0), pytest.approx(1.5)]
    assert all(cell.low <= cell.mean <= cell.high for cell in cells)
    assert (cells[0].low, cells[0].high) == (1.0, 5.5)  # all of the first episode, or all of the second
    official = reconstruction_table(errors, at_2hz=True)["a"]
    assert [cell.mean for cell in official] == [pytest.approx(10.0), pytest.approx(3.0)]


def test_refining_lowers_the_distance_and_each_prefix_is_refined_on_its_own(model: Model) -> None:
    batch = batch_of(*scenes(3), agents=2, config=model.config.features)
    future, valid = futures_of(batch)
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    with torch.no_grad():
        _, memory = seen_by(model, batch)
        latents, decode = model.encode(future, valid, memory), PrefixDecoder(model, memory)
    for tokens in (1, 3):
        codes = [latents[:, :tokens]]
        codes += [refined_reconstruction(decode, latents[:, :tokens], future, valid, steps=steps) for steps in (5, 40)]
        with torch.no_grad():
            encoded, five, forty = (
                average_displacement_m(model.decode(code[:, None], memory)[0], future, valid)[:, 0] for code in codes
            )
        assert (five <= encoded + 1e-4).all()
        assert (forty <= five + 1e-4).all()
        assert forty.mean() < encoded.mean()
        alone = refined_reconstruction(
            PrefixDecoder(model, seen_by(model, batch_of(next(scenes(3)), agents=2, config=model.config.features))[1]),
            latents[:2, :tokens], future[:2], valid[:2], steps=5,
        )  # fmt: skip
        torch.testing.assert_close(alone, codes[1][:2], atol=1e-3, rtol=1e-3)  # rows do not depend on each other
    assert all(torch.equal(value, weights[name]) for name, value in model.state_dict().items())


def test_comparisons_by_hand() -> None:
    """Three tokens halve the error of one in every episode; the encoder is a tenth above its refined code."""
    one = np.array([[4.0], [2.0], [6.0]])
    columns = {name: one * [1.0, 0.8, 0.5] for name in PAPER_ADE_M}
    columns["greedy N_l = 3"] = one * [1.0, 0.8, 0.5] + [[0.1], [-0.5], [0.0]]  # better for the second agent alone
    columns["encoder refined 40"] = columns["encoder continuous"] / 1.1
    found = {comparison.name: comparison for comparison in compare_errors(made_up(columns))}
    assert list(found) == [
        *(f"3 / 1 tokens, {name}" for name in PAPER_ADE_M),
        "encoder continuous / greedy N_l = 3",
        "encoder continuous / refined 40",
    ]
    halved = found["3 / 1 tokens, encoder N_l = 2"]
    assert (halved.estimate, halved.low, halved.high) == pytest.approx((0.5, 0.5, 0.5))
    assert (halved.target, halved.met) == (0.65, True)
    searched = found["encoder continuous / greedy N_l = 3"]
    # Means over types: ((2 + 1) / 2 + 3) / 2 = 2.25 and ((2.1 + 0.5) / 2 + 3) / 2 = 2.15; by episode 2 / 2.1, 2 / 1.75.
    assert searched.estimate == pytest.approx(2.25 / 2.15)
    assert (searched.low, searched.high) == pytest.approx((2 / 2.1, 2 / 1.75))
    assert not searched.met
    gap = found["encoder continuous / refined 40"]
    assert gap.estimate == pytest.approx(1.1)
    assert gap.met


def test_a_target_is_met_by_the_whole_interval() -> None:
    uneven = {"greedy N_l = 2": np.array([[1.0, 0.5], [1.0, 0.7], [1.0, 0.5]])}
    (found,) = compare_errors(made_up(uneven))
    assert found.estimate == pytest.approx(0.55)
    assert found.high == pytest.approx(0.6)
    assert found.met
    (found,) = compare_errors(made_up({"greedy N_l = 2": np.array([[1.0, 0.5], [1.0, 0.5], [1.0, 0.72]])}))
    assert found.high > 0.6
    assert not found.met


def test_one_token_is_not_compared_with_itself() -> None:
    assert compare_errors(made_up({"greedy N_l = 2": np.ones((3, 1))})) == []


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
    errors = AgentErrors(
        types=nothing, scenes=nothing, episodes=nothing, ade_m={}, ade_2hz_m={}, fde_m={},
        final_std_m={"greedy N_l = 2": np.stack([spread, 3 * spread], axis=2)},
    )  # fmt: skip
    least = calibrated_gate(errors, Spread.LEAST)
    assert least.spread == Spread.LEAST
    assert least.sigma_max_m == {1: pytest.approx(0.98), 2: pytest.approx(1.96)}
    both = calibrated_gate(errors, Spread.BOTH)
    assert both.sigma_max_m == {1: pytest.approx(0.99 * 10**0.5), 2: pytest.approx(1.98 * 10**0.5)}


def test_report_is_complete(report: ReconstructionReport) -> None:
    assert list(report.table) == list(report.table_2hz) == [*PAPER_ADE_M, "encoder refined 5", "encoder refined 40"]
    assert (report.num_scenes, report.num_episodes) == (3, 3)
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
    assert content["table_2hz"]["greedy N_l = 2"][0].keys() == {"ade_2hz_m", "low_m", "high_m"}
    assert content["definitions"].keys() == {"ade_m", "ade_2hz_m"}
    assert content["comparisons"][0].keys() == {"name", "estimate", "low", "high", "target", "met"}
    assert (content["model"], content["seed_role"], content["data_seed"]) == ("untrained", "development", 7)
    assert (content["published"], content["seed"], content["num_episodes"]) == (False, 0, 3)
    assert content["settings_sha256"] == bundled_dataset().info.settings_sha256
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
    figures, gate = validate(model, dataset)
    names = ("encoder N_l = 2", "encoder continuous", "greedy N_l = 2")
    assert list(figures) == [f"{name}/{tokens}" for name in names for tokens in (1, 2, 3)]
    assert list(gate.sigma_max_m) == [1, 2, 3]
    assert validate(model, dataset) == (figures, gate)


def test_validation_refuses_scenes_without_tracks_to_predict(tmp_path: Path) -> None:
    write_dataset(tmp_path / "bare", [[bare_scene()]], make=make_shard, source="made-up", settings={})
    with pytest.raises(EvaluationError, match="expected validation scenes with some"):
        ReconstructionFigures().check(Dataset(tmp_path / "bare"))
