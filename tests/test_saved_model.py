"""Models on disk: a loaded model is the saved one, and files that do not fit are refused in one sentence."""

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from tiny_model import assert_same_outputs, batch_of, crowd, outputs, reconstruct, tiny_config, tiny_model
from waycode import WaycodeError
from waycode.model import Bottleneck, ModelConfig, Spread, VarianceGate, saved
from waycode.model.config import config_from_json
from waycode.model.saved import (
    CONFIG_VERSION,
    ModelError,
    bundled_models,
    load_model,
    read_config,
    save_model,
    save_thresholds,
)

SIGMA_MAX_M = {1: 4.5, 2: 3.25, 3: 2.0}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_model(
        tmp_path / "model", tiny_model(), gate=VarianceGate(sigma_max_m=SIGMA_MAX_M), card="# A model of straße\n"
    )
    return tmp_path / "model"


def change_json(path: Path, change: Callable[[Any], None]) -> None:
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def refusal(folder: Path) -> str:
    """The one sentence that says why the folder is refused."""
    with pytest.raises(ModelError) as caught:
        load_model(folder)
    assert isinstance(caught.value, WaycodeError)
    text = str(caught.value)
    assert "\n" not in text.strip()
    return text


@pytest.mark.parametrize(
    "variant",
    [
        {},
        {"causal": False, "neighbours": None},
        {"bottleneck": Bottleneck.FSQ, "fsq_levels": 3, "token_dim": 4, "num_tokens": 2, "registers": 2},
        {"spline_points": None, "prior": False, "reachability": False, "scene_layers": 0},
    ],
    ids=["default", "no masks", "FSQ", "no additions"],
)
@torch.no_grad()
def test_round_trip(tmp_path: Path, variant: dict[str, Any]) -> None:
    model, batch = tiny_model(3, **variant), batch_of(crowd())
    save_model(tmp_path, model.train(), gate=VarianceGate(sigma_max_m=SIGMA_MAX_M))
    loaded = load_model(tmp_path)
    assert loaded.model.config == model.config
    assert isinstance(loaded.model.config.bottleneck, Bottleneck)
    assert loaded.gate.sigma_max_m == SIGMA_MAX_M
    assert not loaded.model.training
    for one, other in zip(reconstruct(model, batch), reconstruct(loaded.model, batch), strict=True):
        assert torch.equal(one, other)
    if model.config.prior:
        assert_same_outputs(outputs(model, batch), outputs(loaded.model, batch), tolerance=0)


def test_files_of_a_folder(folder: Path) -> None:
    assert sorted(path.name for path in folder.iterdir()) == [
        "MODEL_CARD.md", "config.json", "model.safetensors", "thresholds.json",
    ]  # fmt: skip
    assert (folder / "MODEL_CARD.md").read_text() == "# A model of straße\n"


def test_nothing_is_unpickled(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object, **settings: object) -> None:
        raise AssertionError("something was unpickled")

    for module, name in ((pickle, "load"), (pickle, "loads"), (pickle, "Unpickler"), (torch, "load")):
        monkeypatch.setattr(module, name, refuse)
    assert load_model(folder).model.num_parameters == tiny_model().num_parameters
    (folder / "model.safetensors").write_bytes(pickle.dumps({"a": 1}))
    assert "cannot be read" in refusal(folder)


def test_an_older_model_is_replaced(folder: Path) -> None:
    save_model(folder, tiny_model(1, num_tokens=2))
    loaded = load_model(folder)
    assert loaded.model.config.num_tokens == 2
    assert loaded.gate.sigma_max_m == {}
    assert len(list(folder.iterdir())) == 4


def test_a_weight_that_is_missing(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    del weights["decoder.place"]
    save_file(weights, folder / "model.safetensors")
    assert refusal(folder).endswith("does not fit its config: missing ['decoder.place'], unexpected []")


def test_weights_of_a_prior_for_a_model_without_one(folder: Path) -> None:
    change_json(folder / "config.json", lambda content: content["model"].update(prior=False))
    assert refusal(folder).endswith("missing [], unexpected ['decoder.prior.bias', 'decoder.prior.weight']")


def test_a_weight_that_is_not_expected(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    save_file({**weights, "decoder.other": torch.zeros(1)}, folder / "model.safetensors")
    assert refusal(folder).endswith("missing [], unexpected ['decoder.other']")


def test_a_weight_of_another_shape(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    save_file({**weights, "decoder.place": torch.zeros(2, 16)}, folder / "model.safetensors")
    assert refusal(folder).endswith("decoder.place has shape [2, 16], expected [3, 16]")


@pytest.mark.parametrize("content", [b"", b"not weights", b"\xff" * 100])
def test_damaged_weights(folder: Path, content: bytes) -> None:
    (folder / "model.safetensors").write_bytes(content)
    assert "model.safetensors cannot be read" in refusal(folder)


def test_weights_that_were_cut_short(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    assert "model.safetensors cannot be read" in refusal(folder)


@pytest.mark.parametrize("name", ["model.safetensors", "thresholds.json"])
def test_a_file_that_is_missing(folder: Path, name: str) -> None:
    (folder / name).unlink()
    assert f"{name} cannot be read" in refusal(folder)


@pytest.mark.parametrize("content", ["", "{", "\x00"])
@pytest.mark.parametrize("name", ["config.json", "thresholds.json"])
def test_damaged_text(folder: Path, name: str, content: str) -> None:
    (folder / name).write_text(content)
    assert f"{name} cannot be read" in refusal(folder)


@pytest.mark.parametrize("content", ["[]", "3", "null"])
@pytest.mark.parametrize("name", ["config.json", "thresholds.json"])
def test_json_that_is_no_object(folder: Path, name: str, content: str) -> None:
    (folder / name).write_text(content)
    assert f"{name} holds" in refusal(folder)


@pytest.mark.parametrize(
    "content", ["{}", '{"sigma_max_m": 3}', '{"sigma_max_m": {"one": 3}}', '{"sigma_max_m": {"1": null}}']
)
def test_thresholds_that_are_none(folder: Path, content: str) -> None:
    (folder / "thresholds.json").write_text(content)
    assert "expected sigma_max_m by number of tokens" in refusal(folder)


def test_the_gate_of_earlier_versions_compares_the_magnitude(folder: Path) -> None:
    (folder / "thresholds.json").write_text('{"sigma_max_m": {"1": 3}}')
    assert load_model(folder).gate == VarianceGate(sigma_max_m={1: 3.0}, spread=Spread.BOTH)
    save_thresholds(folder, VarianceGate(sigma_max_m={2: 0.5}, spread=Spread.LEAST))
    assert load_model(folder).gate == VarianceGate(sigma_max_m={2: 0.5}, spread=Spread.LEAST)
    (folder / "thresholds.json").write_text('{"sigma_max_m": {"1": 3}, "spread": "most"}')
    assert "'most' is not a valid Spread" in refusal(folder)


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-1", "1e999"])
def test_thresholds_are_finite(folder: Path, value: str) -> None:
    (folder / "thresholds.json").write_text(f'{{"sigma_max_m": {{"1": {value}}}}}')
    assert "expected sigma_max_m by number of tokens" in refusal(folder)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_are_finite(folder: Path, value: float) -> None:
    weights = load_file(folder / "model.safetensors")
    weights["decoder.place"][0, 0] = value
    save_file(weights, folder / "model.safetensors")
    assert refusal(folder).endswith("decoder.place has values that are not finite")


def test_weights_of_another_precision(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    save_file({**weights, "decoder.place": weights["decoder.place"].double()}, folder / "model.safetensors")
    assert refusal(folder).endswith("decoder.place has values of torch.float64, expected torch.float32")


def test_layers_are_compared_before_anything_is_built(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saved, "Model", None)
    change_json(folder / "config.json", lambda content: content["model"].update(decoder_layers=4000))
    assert "layers of width 16 and feed_forward" in refusal(folder)


@pytest.mark.parametrize("name", ["decoder_layers", "scene_layers", "width", "feed_forward", "registers", "num_tokens",
                                  "max_scene_tokens", "nearby_polylines", "spline_points", "fsq_levels"])  # fmt: skip
def test_sizes_are_compared_before_anything_is_built(folder: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(config: ModelConfig) -> None:
        raise AssertionError(f"a model with {name} = 1,000,000 is being built")

    change_json(folder / "config.json", lambda content: content["model"].update({name: 1_000_000}))
    monkeypatch.setattr(saved, "Model", refuse)
    assert f"{name} is 1000000, expected at most" in refusal(folder)


@pytest.mark.parametrize("version", [0, CONFIG_VERSION - 1, CONFIG_VERSION + 1, None, str(CONFIG_VERSION)])
def test_another_version(folder: Path, version: Any) -> None:
    change_json(folder / "config.json", lambda content: content.update(version=version))
    assert refusal(folder).endswith(f"has version {version}, this waycode reads {CONFIG_VERSION}")


CHANGES: list[tuple[str, Callable[[Any], Any], str]] = [
    ("unknown field", lambda model: model.update(wings=2), "missing [], unknown ['wings']"),
    ("unknown feature", lambda model: model["features"].update(wings=2), "missing [], unknown ['wings']"),
    ("missing field", lambda model: model.pop("causal"), "missing ['causal'], unknown []"),
    ("missing features", lambda model: model.pop("features"), "missing ['features'], unknown []"),
    ("text for a number", lambda model: model.update(width="96"), "width is '96', expected a whole number"),
    ("a fraction", lambda model: model.update(width=96.5), "width is 96.5, expected a whole number"),
    (
        "no neighbours",
        lambda model: model.update(neighbours="all"),
        "neighbours is 'all', expected a whole number or none",
    ),
    (
        "features of another kind",
        lambda model: model.update(features=3),
        "features is 3, expected the fields of",
    ),
    (
        "unknown bottleneck",
        lambda model: model.update(bottleneck="neck"),
        "bottleneck is 'neck', expected one of noise, fsq",
    ),
    ("no heads", lambda model: model.update(heads=0), "heads is 0, expected at least 1"),
    ("odd width", lambda model: model.update(heads=5), "width is 16, expected a multiple of heads (5)"),
    (
        "a spline of text",
        lambda model: model.update(spline_points="nine"),
        "spline_points is 'nine', expected a whole number or none",
    ),
    (
        "no spline to correct",
        lambda model: model.update(spline_points=None),
        "correction_width is 64, expected 0 without spline_points",
    ),
    ("a number for a switch", lambda model: model.update(prior=1), "prior is 1, expected true or false"),
    (
        "a prior without causal masks",
        lambda model: model.update(causal=False),
        "prior is true, expected false if causal is false",
    ),
    ("missing relations", lambda model: model.pop("relation_width"), "missing ['relation_width'], unknown []"),
    ("a huge number", lambda model: model["features"].update(dt_s=10**400), "int too large to convert to float"),
    ("no time", lambda model: model["features"].update(dt_s=0), "expected a segment length, a time step"),
]


@pytest.mark.parametrize(("change", "words"), [case[1:] for case in CHANGES], ids=[case[0] for case in CHANGES])
def test_a_config_that_does_not_fit(folder: Path, change: Callable[[Any], Any], words: str) -> None:
    change_json(folder / "config.json", lambda content: change(content["model"]))
    assert words in refusal(folder)


def test_a_config_without_a_model(folder: Path) -> None:
    change_json(folder / "config.json", lambda content: content.pop("model"))
    assert "the config is None, expected the fields of a ModelConfig" in refusal(folder)


def test_a_config_reads_as_it_was_written(folder: Path) -> None:
    assert read_config(folder / "config.json") == tiny_config()
    content = json.loads((folder / "config.json").read_text())["model"]
    content["features"]["max_distance_m"] = 150  # a whole number is a number
    assert config_from_json(ModelConfig, content).features.max_distance_m == 150


def test_an_unknown_name(tmp_path: Path) -> None:
    available = ", ".join(bundled_models()) or "none"
    for name in ("no-such-model", tmp_path, tmp_path / "nothing"):
        with pytest.raises(
            ModelError, match="neither a model's folder nor a run's folder nor a bundled model"
        ) as caught:
            load_model(name)
        assert str(caught.value).endswith(f"(available: {available})")


def test_all_forms_of_a_model(folder: Path) -> None:
    """A run's folder holds its model in `model/`; the bundled models have names."""
    (folder.parent / "training.json").write_text("{}")
    for name_or_folder in (folder, str(folder), folder.parent):
        loaded = load_model(name_or_folder)
        assert loaded.gate.sigma_max_m == SIGMA_MAX_M
        assert loaded.card == "# A model of straße\n"


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ModelError, match="cannot be made"):
        save_model(tmp_path / "file", tiny_model())


def test_bundled_models_load() -> None:
    for name in bundled_models():
        assert load_model(name).model.num_parameters > 0
