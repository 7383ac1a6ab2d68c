"""The card that goes with a model: its data, its training, how good it is, and what may be done with it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from waycode.dataset.dataset import DatasetInfo
from waycode.model.saved import CARD_FILE
from waycode.training.config import TrainingConfig
from waycode.training.folders import model_folder
from waycode.training.journal import Effort

FREE_SOURCES = ("sumo",)  # generated scenes: nobody else's rights are in them
FREE_LICENCE = "Apache-2.0. The model was trained on generated scenes only."
BOUND_LICENCE = (
    "The terms of the training data apply to these weights: they must not be redistributed. "
    "The code that trains them is under Apache-2.0."
)


@dataclass(frozen=True, kw_only=True)
class TrainingData:
    """What the card says of the scenes."""

    training: DatasetInfo
    validation: DatasetInfo
    num_agents: int  # that can be modelled, in the training scenes
    init: str | None = None
    init_is_free: bool = True  # whether the weights that training began with may be given on

    @property
    def is_free(self) -> bool:
        return self.training.source in FREE_SOURCES and self.init_is_free


def is_free(name_or_folder: str | Path) -> bool:
    """Whether the weights of a model may be given on: a bundled one's, or those whose card says so."""
    folder = model_folder(name_or_folder)
    return folder is None or ((folder / CARD_FILE).is_file() and FREE_LICENCE in (folder / CARD_FILE).read_text())


def model_card(
    config: TrainingConfig,
    data: TrainingData,
    *,
    step: int,
    sigma: float,
    num_parameters: int,
    effort: Effort,
    figures: Mapping[str, float],
    thresholds: Mapping[int, float],
) -> str:
    """The card as Markdown."""
    sections = {
        "Model": _model_lines(config, num_parameters),
        "Data": _data_lines(data),
        "Training": _training_lines(config, step=step, sigma=sigma, effort=effort, init=data.init),
        "Reconstruction": _result_lines(figures, thresholds),
        "Licence": [FREE_LICENCE if data.is_free else BOUND_LICENCE],
    }
    body = "\n\n".join(f"## {title}\n\n" + "\n".join(lines) for title, lines in sections.items())
    return f"# A Waycode model\n\n{body}\n"


def table_of(figures: Mapping[str, float]) -> dict[str, list[float]]:
    """Figures named `column/number of tokens` as columns of a table."""
    table: dict[str, list[float]] = {}
    for name, value in figures.items():
        table.setdefault(name.rpartition("/")[0], []).append(value)
    return table


def _model_lines(config: TrainingConfig, num_parameters: int) -> list[str]:
    model = config.model
    layers = f"{model.scene_layers} scene, {model.encoder_layers} encoder, {model.decoder_layers} decoder layers"
    return [
        "A conditional trajectory autoencoder: a trajectory, given its scene, becomes a few ordered tokens, and back.",
        "",
        f"- {num_parameters:,} parameters; width {model.width}, {model.heads} heads, {layers}",
        f"- {model.num_tokens} tokens of {model.token_dim} numbers each",
        f"- {model.features.history_steps} steps of history, {model.features.future_steps} of future, "
        f"{model.features.dt_s:g} s apart",
    ]


def _data_lines(data: TrainingData) -> list[str]:
    lines = [
        f"- training: {_dataset(data.training)}, {data.num_agents:,} road users that can be modelled",
        f"- validation: {_dataset(data.validation)}",
        f"- settings of the training data: `{json.dumps(dict(data.training.settings), sort_keys=True)}`",
    ]
    if data.training.settings_sha256 == data.validation.settings_sha256:
        lines.append("- the validation scenes ARE the training scenes: the figures say nothing about unseen ones")
    return lines


def _dataset(info: DatasetInfo) -> str:
    return f"{info.num_scenes:,} scenes of source `{info.source}` (settings {info.settings_sha256[:12]})"


def _training_lines(config: TrainingConfig, *, step: int, sigma: float, effort: Effort, init: str | None) -> list[str]:
    measured = "" if effort.steps == step else f" (measured over {effort.steps:,} of the steps)"
    lines = [
        f"- {step:,} of {config.steps:,} steps, {config.scenes_per_batch} scenes with up to "
        f"{config.agents_per_scene} road users each",
        f"- {effort.seconds / 3600:.2f} hours, {effort.samples_per_s:.0f} samples/s, "
        f"{effort.waiting_share:.1%} of the time waiting for data{measured}",
        f"- noise of the tokens at the end: sigma {sigma:.3f}",
        f"- learning rate {config.learning_rate:g}, seed {config.seed}",
    ]
    return [*lines, f"- began with the weights of {init}"] if init else lines


def _result_lines(figures: Mapping[str, float], thresholds: Mapping[int, float]) -> list[str]:
    table = table_of(figures)
    if not table:
        return ["Not judged."]
    depth = max(len(column) for column in table.values())
    rows = [[str(count + 1), *(f"{column[count]:.3f}" for column in table.values())] for count in range(depth)]
    lines = ["ADE in metres on a fixed part of the validation scenes (means over 3, 5 and 8 s, then over types):", ""]
    lines += ["| tokens | " + " | ".join(table) + " |", "|" + "---|" * (len(table) + 1)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    limits = ", ".join(f"{value:.2f} m for {count}" for count, value in sorted(thresholds.items()))
    return [*lines, "", f"Greatest standard deviation of the last position that is trusted, by tokens: {limits}."]
