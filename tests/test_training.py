"""Runs: settings, sampling, exact resume, what a run leaves behind, recipes."""

import json
import shutil
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from scenes import small_scene
from waycode.dataset.dataset import Dataset, ShardContents, write_dataset
from waycode.demo import bundled_dataset
from waycode.features import collate
from waycode.model import Model, VarianceGate
from waycode.model.saved import ModelError, load_model, save_model
from waycode.scene import Scene
from waycode.training.callbacks import RunStopped, StepReport, ValidationReport, append_row, keep_rows
from waycode.training.card import BOUND_LICENCE, FREE_LICENCE, is_free, table_of
from waycode.training.config import (
    RECIPES,
    TrainingConfig,
    TrainingError,
    config_as_json,
    config_changes,
    override,
    paper,
    tiny,
)
from waycode.training.data import Examples, SceneData, index_agents
from waycode.training.examples import prepare_examples
from waycode.training.module import AutoencoderModule
from waycode.training.run import Hooks, last_step, train

NUM_SCENES = 6
Run = Callable[..., Path]


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A few of the bundled scenes."""
    folder = tmp_path_factory.mktemp("data") / "sample"
    write_dataset(folder, [bundled_dataset()[:NUM_SCENES]], make=make_shard, source="sumo", settings={"made": "up"})
    return folder


@pytest.fixture(scope="module")
def run(sample: Path) -> Run:
    """Trains on the sample and judges by it."""

    def run_it(config: TrainingConfig, out: Path, *, workers: int = 0, **options: Any) -> Path:
        return train(config, data=sample, validation=sample, out=out, validate=judge, workers=workers, **options)

    return run_it


def judge(model: Model, dataset: Dataset) -> tuple[dict[str, float], VarianceGate]:
    """Stands in for the evaluation, which lies above training."""
    assert not model.training
    return {"greedy N_l = 2/1": 1.5, "greedy N_l = 2/2": 1.25}, VarianceGate(sigma_max_m={1: 4.0, 2: 3.0})


def short(steps: int, **changes: Any) -> TrainingConfig:
    fewer = {"scenes_per_batch": 3, "agents_per_scene": 2, "checkpoint_every": 2, "validate_every": 4}
    return replace(tiny(), steps=steps, **{**fewer, **changes})


def stop_after(count: int) -> tuple[Callable[[StepReport], None], Callable[[], bool]]:
    steps: list[int] = []
    return (lambda report: steps.append(report.step)), (lambda: len(steps) >= count)


def weights_of(out: Path) -> dict[str, torch.Tensor]:
    checkpoint = torch.load(out / "last.ckpt", weights_only=True)
    return {**checkpoint["state_dict"], "sigma": torch.tensor(checkpoint["sigma"])}


def assert_same(first: Path, second: Path) -> None:
    one, other = weights_of(first), weights_of(second)
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def make_shard(task: list[Scene]) -> ShardContents:
    return ShardContents(task)


# Settings


def test_settings_change_nested_fields() -> None:
    config = override(
        tiny(),
        [
            "model.width=48", "model.heads=6", "noise.target_ade_m=0.8", "model.neighbours=none", "model.causal=false",
            "model.prior=false", "model.feedback=false", "nested_dropout=off", "noise.fixed_sigma=0.3",
            "model.features.dt_s=0.5", "model.bottleneck=fsq",
        ],
    )  # fmt: skip
    assert (config.model.width, config.model.heads, config.model.neighbours) == (48, 6, None)
    assert (config.noise.target_ade_m, config.noise.fixed_sigma) == (0.8, 0.3)
    assert (config.model.causal, config.nested_dropout, config.model.bottleneck) == (False, "off", "fsq")
    switched_off = override(
        tiny(), ["model.spline_points=none", "model.correction_width=0", "model.reachability=false"]
    )
    assert (switched_off.model.spline_points, switched_off.model.reachability) == (None, False)
    assert config.model.features.dt_s == 0.5
    assert config.model.decoder_layers == tiny().model.decoder_layers
    assert override(tiny(), []) == tiny()


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("width=3", "there is no setting 'width' in the recipe; available: model, noise, nested_dropout"),
        ("model.widht=3", "there is no setting 'widht' in model; available: features, width"),
        ("model.width=wide", "model.width is 'wide', expected a whole number"),
        ("model.width=1.5", "expected a whole number"),
        ("model.neighbours=few", "expected a whole number or none"),
        ("mirror=yes", "mirror is 'yes', expected true or false"),
        ("beta=nan", "expected a finite number"),
        ("nested_dropout=some", "expected one of sampled, expected, off"),
        ("model=big", "there is no setting 'model' in the recipe"),
        ("steps.more=3", "there is no group of settings 'steps'; available: model, noise"),
        ("steps", "has no '='"),
        ("model.width=33", "width is 33, expected a multiple of heads"),
        ("model.causal=false", "prior is true, expected false if causal is false"),
        ("model.correction_width=10", "correction_width is 10, expected a multiple of 4"),
        ("steps=0", "expected at least 1"),
        ("history_dropout=1.5", "history_dropout is 1.5, expected 0 to 1"),
        ("checkpoint_every=0", "expected at least 1"),
    ],
)
def test_wrong_settings_are_explained(setting: str, sentence: str) -> None:
    with pytest.raises(TrainingError) as error:
        override(tiny(), [setting])
    assert sentence in str(error.value)


def test_differences_are_named() -> None:
    before, after = {"a": 1, "b": {"c": 2, "d": 3}}, {"a": 1, "b": {"c": 5, "d": 3}}
    assert config_changes(before, after) == ["b.c is 2, asked for 5"]


def test_waiting_for_data_is_measured(sample: Path) -> None:
    scenes = SceneData(sample, short(3), workers=0)
    batches = list(scenes.train_dataloader())
    assert len(batches) == 3
    assert scenes.take_waited_s() > 0
    assert scenes.take_waited_s() == 0


@pytest.mark.parametrize(
    ("scene", "sentence"),
    [
        pytest.param(replace(small_scene("slow"), dt_s=0.5), "steps of 0.5 s, the model expects 0.1 s", id="time step"),
        pytest.param(small_scene("short", num_steps=2), "no road user", id="no future"),
    ],
)
def test_scenes_that_do_not_fit_are_refused_before_anything_is_written(
    scene: Scene, sentence: str, tmp_path: Path, sample: Path
) -> None:
    write_dataset(tmp_path / "odd", [[scene]], make=make_shard, source="made-up", settings={})
    with pytest.raises(TrainingError, match=sentence):
        train(short(2), data=tmp_path / "odd", validation=sample, out=tmp_path / "run", validate=judge, workers=0)
    assert not (tmp_path / "run").exists()


# Runs


@pytest.mark.parametrize("workers", [0, 1])
def test_an_interrupted_run_ends_with_the_same_weights(workers: int, tmp_path: Path, run: Run) -> None:
    config = short(7, history_dropout=0.5, collision_weight=0.1)
    run(config, tmp_path / "whole")
    on_step, stop_requested = stop_after(3)  # between two checkpoints, and with a validation still to come
    with pytest.raises(RunStopped) as stop:
        run(config, tmp_path / "parts", workers=workers, hooks=Hooks(on_step=on_step, stop_requested=stop_requested))
    assert stop.value.step == 3
    assert last_step(tmp_path / "parts") == 3
    steps: list[StepReport] = []
    run(config, tmp_path / "parts", resume=True, workers=workers, hooks=Hooks(on_step=steps.append))
    assert [report.step for report in steps] == [4, 5, 6, 7]
    assert_same(tmp_path / "whole", tmp_path / "parts")
    tables = [rows_of(tmp_path / name / "validation.jsonl") for name in ("whole", "parts")]
    assert [row["step"] for row in tables[0]] == [row["step"] for row in tables[1]] == [4, 7]
    assert [row["sigma"] for row in tables[0]] == [row["sigma"] for row in tables[1]]


def test_a_killed_run_goes_on_from_its_last_checkpoint(tmp_path: Path, run: Run) -> None:
    config = short(6)
    run(config, tmp_path / "whole")

    def break_down(report: StepReport) -> None:
        if report.step == 5:
            raise RuntimeError("the power is gone")

    with pytest.raises(RuntimeError, match="power"):
        run(config, tmp_path / "parts", hooks=Hooks(on_step=break_down))
    assert last_step(tmp_path / "parts") == 4
    run(config, tmp_path / "parts", resume=True)
    assert_same(tmp_path / "whole", tmp_path / "parts")
    assert [row["step"] for row in rows_of(tmp_path / "parts" / "validation.jsonl")] == [4, 6]


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory, run: Run) -> tuple[Path, Path]:
    """A whole run of 6 steps, and the same one stopped after step 5, with checkpoints of steps 4 and 5."""
    folder = tmp_path_factory.mktemp("runs")
    run(short(6), folder / "whole")
    on_step, stop_requested = stop_after(5)
    with pytest.raises(RunStopped):
        run(short(6), folder / "stopped", hooks=Hooks(on_step=on_step, stop_requested=stop_requested))
    return folder / "whole", folder / "stopped"


def cut(name: str, share: float) -> Callable[[Path], object]:
    return lambda out: (out / name).write_bytes((out / name).read_bytes()[: int(share * (out / name).stat().st_size)])


def flip(name: str) -> Callable[[Path], object]:
    def damage(out: Path) -> None:
        content = bytearray((out / name).read_bytes())
        content[len(content) // 2] ^= 64
        (out / name).write_bytes(content)

    return damage


def together(*damages: Callable[[Path], object]) -> Callable[[Path], object]:
    return lambda out: [damage(out) for damage in damages]


@pytest.mark.parametrize(
    ("damage", "notices"),
    [
        pytest.param(cut("last.ckpt", 0.7), ["last.ckpt is no whole checkpoint", "previous.ckpt, step 4"], id="cut"),
        pytest.param(cut("last.ckpt", 0), ["last.ckpt is no whole checkpoint", "previous.ckpt, step 4"], id="empty"),
        pytest.param(flip("last.ckpt"), ["last.ckpt is no whole checkpoint", "previous.ckpt, step 4"], id="flipped"),
        pytest.param(cut("training.json", 0.5), ["the configuration in last.ckpt is compared"], id="config cut"),
        pytest.param(
            together(cut("training.json", 0), cut("metrics.csv", 0), cut("validation.jsonl", 0.9)),
            ["the configuration in last.ckpt is compared"],
            id="texts",
        ),
        pytest.param(lambda out: (out / ".last.ckpt.part-0a").write_text("half"), [], id="left over"),
    ],
)
def test_a_damaged_run_goes_on_from_what_is_whole(
    damage: Callable[[Path], object], notices: list[str], tmp_path: Path, run: Run, stopped: tuple[Path, Path]
) -> None:
    whole, broken = stopped
    out = Path(shutil.copytree(broken, tmp_path / "run"))
    (out / "metrics.csv").touch()
    damage(out)
    said: list[str] = []
    run(short(6), out, resume=True, hooks=Hooks(on_notice=said.append))
    assert_same(whole, out)
    said = [one for one in said if "trained on too" not in one]  # these runs validate on what they train on
    assert len(said) == bool(notices)
    assert all(words in said[0] for words in notices)
    assert [row["step"] for row in rows_of(out / "validation.jsonl")][-1] == 6
    assert not list(out.glob(".*part*"))


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (together(cut("last.ckpt", 0.5), cut("previous.ckpt", 0.5)), "the run cannot go on"),
        (together(cut("last.ckpt", 0.5), flip("previous.ckpt")), "the run cannot go on"),
        (lambda out: (out / "training.json").write_text('{"steps": 7}'), "steps is 7, asked for 6"),
    ],
)
def test_a_run_without_a_whole_checkpoint_is_one_sentence(
    damage: Callable[[Path], object], sentence: str, tmp_path: Path, run: Run, stopped: tuple[Path, Path]
) -> None:
    out = Path(shutil.copytree(stopped[1], tmp_path / "run"))
    damage(out)
    with pytest.raises(TrainingError, match=sentence):
        run(short(6), out, resume=True)


def test_a_finished_run_is_not_made_again(tmp_path: Path, run: Run) -> None:
    run(short(2), tmp_path / "run")
    before = weights_of(tmp_path / "run")
    steps: list[StepReport] = []
    run(short(2), tmp_path / "run", resume=True, hooks=Hooks(on_step=steps.append))
    assert not steps
    assert all(torch.equal(before[name], value) for name, value in weights_of(tmp_path / "run").items())


def test_what_a_run_leaves_behind(tmp_path: Path, capfd: pytest.CaptureFixture[str], run: Run) -> None:
    reports: list[ValidationReport] = []
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        folder = run(short(40, validate_every=20), tmp_path / "run", hooks=Hooks(on_validation=reports.append))
    assert capfd.readouterr() == ("", "")  # Lightning says nothing
    assert not said
    assert [report.step for report in reports] == [20, 40]
    assert {path.name for path in folder.iterdir()} == {
        "model.safetensors", "config.json", "thresholds.json", "MODEL_CARD.md"
    }  # fmt: skip
    assert load_model(folder).gate.sigma_max_m == {1: 4.0, 2: 3.0}
    state = load_model(tmp_path / "run").model.state_dict()
    kept = weights_of(tmp_path / "run")
    assert all(torch.equal(value, kept[f"model.{name}"]) for name, value in state.items())
    card = (folder / "MODEL_CARD.md").read_text()
    for words in ("6 scenes of source `sumo`", "40 of 40 steps", "samples/s", "| 2 | 1.250 |", FREE_LICENCE, "seed"):
        assert words in card
    assert "ARE the training scenes" in card
    lines = (tmp_path / "run" / "metrics.csv").read_text().splitlines()
    assert lines[0] == "step,loss,ade_m,sigma,learning_rate,samples_per_s,waiting_share"
    assert [line.split(",")[0] for line in lines[1:]] == ["20", "40"]
    assert list((tmp_path / "run" / "logs" / "tensorboard").glob("events.*"))


@pytest.mark.parametrize(
    ("changes", "resume", "sentence"),
    [
        ({}, False, "holds a run already: --resume goes on with it"),
        ({"steps": 1}, True, r"another configuration \(steps is 2, asked for 1\)"),
        ({"steps": 3, "seed": 5}, True, r"another configuration \(seed is 0, asked for 5; steps is 2, asked for 3\)"),
    ],
)
def test_a_folder_belongs_to_one_run(
    changes: dict[str, Any], resume: bool, sentence: str, tmp_path: Path, run: Run
) -> None:
    run(short(2), tmp_path / "run")
    with pytest.raises(TrainingError, match=sentence):
        run(replace(short(2), **changes), tmp_path / "run", resume=resume)


def test_a_folder_with_other_things_is_left_alone(tmp_path: Path, run: Run) -> None:
    (tmp_path / "letters.txt").write_text("dear")
    with pytest.raises(TrainingError, match="is not empty and holds no run"):
        run(short(2), tmp_path)
    with pytest.raises(TrainingError, match="is a file"):
        run(short(2), tmp_path / "letters.txt")


def test_a_run_from_before_a_setting_existed_can_be_resumed(tmp_path: Path, run: Run) -> None:
    run(short(2), tmp_path / "run")
    path = tmp_path / "run" / "training.json"
    content = json.loads(path.read_text())
    del content["history_dropout"], content["noise"]["max_sigma"]
    path.write_text(json.dumps(content))
    run(short(2), tmp_path / "run", resume=True)


def test_checkpoints_are_never_unpickled(tmp_path: Path, run: Run) -> None:
    run(short(2), tmp_path / "run")
    checkpoint = torch.load(tmp_path / "run" / "last.ckpt", weights_only=True)
    torch.save({**checkpoint, "extra": Path("anything that is not plain")}, tmp_path / "run" / "last.ckpt")
    (tmp_path / "run" / "previous.ckpt").unlink(missing_ok=True)
    with pytest.raises(Exception, match=r"[Ww]eights.only"):
        run(short(2), tmp_path / "run", resume=True)


@pytest.mark.parametrize("steps", ["many", {}, None], ids=str)
def test_a_number_of_steps_that_is_none_is_refused(steps: Any, tmp_path: Path, run: Run) -> None:
    (tmp_path / "run").mkdir()
    content = {**config_as_json(short(6)), "steps": steps}
    (tmp_path / "run" / "training.json").write_text(json.dumps(content))
    with pytest.raises(TrainingError, match=r"another configuration \(steps is .*, asked for 6\)"):
        run(short(6), tmp_path / "run", resume=True)


def test_training_begins_with_the_weights_of_another_model(tmp_path: Path, run: Run) -> None:
    first = run(short(2), tmp_path / "first")
    run(short(1, learning_rate=0.0, weight_decay=0.0), tmp_path / "second", init=tmp_path / "first")
    before, after = load_model(first).model.state_dict(), load_model(tmp_path / "second").model.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert f"began with the weights of {tmp_path / 'first'}" in (tmp_path / "second/model/MODEL_CARD.md").read_text()
    wider = override(short(1), ["model.width=64"])
    with pytest.raises(TrainingError, match=r"another form \(width is 32, asked for 64\)"):
        run(wider, tmp_path / "third", init=first)


def test_weights_that_saw_real_scenes_are_not_free(tmp_path: Path, run: Run, sample: Path) -> None:
    scenes = [[small_scene("real", source="womd", num_steps=91)]]
    write_dataset(tmp_path / "real", scenes, make=make_shard, source="womd", settings={})
    config = short(1)
    train(config, data=tmp_path / "real", validation=sample, out=tmp_path / "bound", validate=judge, workers=0)
    assert BOUND_LICENCE in (tmp_path / "bound/model/MODEL_CARD.md").read_text()
    assert not is_free(load_model(tmp_path / "bound"))
    run(config, tmp_path / "after", init=tmp_path / "bound")  # generated scenes do not wash the data's terms off
    assert BOUND_LICENCE in (tmp_path / "after/model/MODEL_CARD.md").read_text()
    save_model(tmp_path / "bare", Model(config.model))
    assert not is_free(load_model(tmp_path / "bare"))  # without a card nothing is known


def test_a_run_without_a_model_says_so(tmp_path: Path) -> None:
    (tmp_path / "training.json").write_text("{}")
    with pytest.raises(ModelError, match="has no model yet"):
        load_model(tmp_path)


def test_rows_of_steps_that_come_again_are_dropped(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    report = StepReport(
        step=20, loss=1.0, ade_m=2.0, sigma=0.1, learning_rate=1e-3, samples_per_s=99.0, waiting_share=0.0
    )
    for step in (20, 40, 60):
        append_row(path, replace(report, step=step))
    with path.open("a") as file:
        file.write("30,1.5,2")  # a row that was being written when the run was killed
    keep_rows(path, up_to_step=40)
    assert [line.split(",")[0] for line in path.read_text().splitlines()] == ["step", "20", "40"]
    for content in ("", "\n", "loss\n1", "\0\0\0"):
        path.write_text(content)
        keep_rows(path, up_to_step=40)
        append_row(path, report)
        assert [line.split(",")[0] for line in path.read_text().splitlines()] == ["step", "20"]


def test_figures_become_columns() -> None:
    assert table_of({"a/1": 3.0, "a/2": 2.0, "b c/1": 5.0}) == {"a": [3.0, 2.0], "b c": [5.0]}


# Recipes


@pytest.mark.parametrize("name", RECIPES)
def test_recipes_are_sound(name: str) -> None:
    config = RECIPES[name]()
    assert (config.model.num_tokens, config.model.token_dim) == (12 if config.model.joint else 3, 3)
    assert config.scenes_per_batch * config.agents_per_scene in (32, 64, 96)


def test_the_papers_recipe_is_the_papers() -> None:
    config = paper()
    model = config.model
    assert (model.scene_layers, model.encoder_layers, model.decoder_layers, model.heads) == (6, 6, 6, 8)
    assert (model.width, model.feed_forward, model.features.points_per_segment) == (256, 2048, 20)
    assert (config.learning_rate, config.weight_decay, config.noise.gamma, config.noise.delta) == (
        1e-5, 0.02, 0.9995, 0.01
    )  # fmt: skip
    assert config.steps * 64 == pytest.approx(70e6, rel=0.02)


def test_the_papers_recipe_does_a_step(tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    config = replace(paper(), scenes_per_batch=2, agents_per_scene=1)
    torch.manual_seed(0)
    module = AutoencoderModule(config)
    record_property("parameters", module.model.num_parameters)
    assert module.model.num_parameters == pytest.approx(28e6, rel=0.02)
    prepared = prepare_examples(bundled_dataset(), config.model.features, cache=tmp_path)
    examples = Examples(prepared, index_agents(prepared), config)
    loss = module.training_step(collate([examples[0, 0], examples[1, 1]]), 0)["loss"]
    optimizer = module.configure_optimizers()["optimizer"]
    before = module.model.decoder.registers.detach().clone()
    torch.autograd.backward(loss)
    optimizer.step()
    assert bool(loss.isfinite())
    assert not torch.equal(before, module.model.decoder.registers)


def test_tiny_learns(tmp_path: Path, run: Run) -> None:
    reports: list[StepReport] = []
    run(replace(tiny(), steps=60, validate_every=60), tmp_path / "run", hooks=Hooks(on_step=reports.append))
    assert reports[-1].loss < 0.5 * reports[0].loss
    assert reports[-1].ade_m < 0.7 * reports[0].ade_m
    assert reports[-1].samples_per_s > 0
    assert 0 < reports[-1].waiting_share < 1
