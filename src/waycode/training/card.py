"""The model card: data, training, results and licence of a model."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from waycode.dataset.dataset import DatasetInfo
from waycode.model.saved import SavedModel
from waycode.training.config import TrainingConfig, additions

_FREE_SOURCES = ("sumo",)  # generated scenes carry no third-party rights
FREE_LICENCE = "Apache-2.0. The model was trained on generated scenes only."
BOUND_LICENCE = (
    "The terms of the training data apply to these weights: they must not be redistributed. "
    "The code that trains them is under Apache-2.0."
)


@dataclass
class Effort:
    """Cost of a run so far, over all sessions; part of every checkpoint."""

    steps: int = 0
    samples: int = 0
    seconds: float = 0.0
    waited_s: float = 0.0  # for data

    @property
    def samples_per_s(self) -> float:
        return self.samples / self.seconds if self.seconds else 0.0

    @property
    def waiting_share(self) -> float:
        return self.waited_s / self.seconds if self.seconds else 0.0


@dataclass(frozen=True, kw_only=True)
class TrainingData:
    """Origin of a model: its datasets, and the weights that training started from."""

    training: DatasetInfo
    validation: DatasetInfo
    num_agents: int  # agents of the training scenes that can be modelled
    init: str | None = None  # name or folder of the initial weights
    init_is_free: bool = True  # whether these may be redistributed

    @property
    def is_free(self) -> bool:
        """Whether the weights may be redistributed."""
        return self.training.source in _FREE_SOURCES and self.init_is_free


def is_free(saved: SavedModel) -> bool:
    """Whether the weights of a model may be redistributed, by its card."""
    return FREE_LICENCE in saved.card


def model_card(
    config: TrainingConfig,
    data: TrainingData,
    *,
    step: int,
    sigma: float,
    num_parameters: int,
    effort: Effort,
    figures: Mapping[str, float],
) -> str:
    """Writes the card, as Markdown.

    Args:
        config: of the run.
        data: origin of the model.
        step: steps done so far.
        sigma: noise of the tokens at this step.
        num_parameters: of the model.
        effort: time and samples so far.
        figures: validation ADE in metres, by `column/tokens`.
    """
    model, features = config.model, config.model.features
    layers = f"{model.scene_layers} scene, {model.encoder_layers} encoder, {model.decoder_layers} decoder layers"
    about_model = [
        "A conditional trajectory autoencoder: a trajectory, given its scene, becomes a few ordered tokens, and back.",
        "",
        f"- {num_parameters:,} parameters; width {model.width}, {model.heads} heads, {layers}",
        f"- {model.num_tokens} tokens of {model.token_dim} numbers each",
        f"- {features.history_steps} steps of history, {features.future_steps} of future, {features.dt_s:g} s apart",
    ]
    about_data = [
        f"- training: {_dataset(data.training)}, {data.num_agents:,} road users that can be modelled",
        f"- validation: {_dataset(data.validation)}",
        f"- settings of the training data: `{json.dumps(dict(data.training.settings), sort_keys=True)}`",
    ]
    if data.training.settings_sha256 == data.validation.settings_sha256:
        about_data.append("- the validation scenes ARE the training scenes: the figures say nothing about unseen ones")
    measured = "" if effort.steps == step else f" (measured over {effort.steps:,} of the steps)"
    about_training = [
        f"- {step:,} of {config.steps:,} steps, {config.scenes_per_batch} scenes with up to "
        f"{config.agents_per_scene} road users each",
        f"- {effort.seconds / 3600:.2f} hours, {effort.samples_per_s:.0f} samples/s, "
        f"{effort.waiting_share:.1%} of the time waiting for data{measured}",
        f"- noise of the tokens at the end: sigma {sigma:.3f}",
        f"- learning rate {config.learning_rate:g}, seed {config.seed}",
    ]
    if data.init:
        about_training.append(f"- began with the weights of {data.init}")
    sections = {
        "Model": about_model,
        "Method": _method_lines(config),
        "Data": about_data,
        "Training": about_training,
        "Reconstruction": _result_lines(figures),
        "Licence": [FREE_LICENCE if data.is_free else BOUND_LICENCE],
    }
    body = "\n\n".join(f"## {title}\n\n" + "\n".join(lines) for title, lines in sections.items())
    return f"# A Waycode model\n\n{body}\n"


def table_of(figures: Mapping[str, float]) -> dict[str, list[float]]:
    """Columns of a table, from figures named `column/tokens`."""
    table: dict[str, list[float]] = {}
    for name, value in figures.items():
        table.setdefault(name.rpartition("/")[0], []).append(value)
    return table


def _method_lines(config: TrainingConfig) -> list[str]:
    switches = additions(config)
    return [
        f"- {title}: {', '.join(name for name, is_on in switches.items() if is_on == wanted) or 'none'}"
        for title, wanted in (("beyond the paper", True), ("available, switched off", False))
    ]


def _dataset(info: DatasetInfo) -> str:
    return f"{info.num_scenes:,} scenes of source `{info.source}` (settings {info.settings_sha256[:12]})"


def _result_lines(figures: Mapping[str, float]) -> list[str]:
    table = table_of(figures)
    if not table:
        return ["Not validated."]
    depth = max(len(column) for column in table.values())
    rows = [[str(count + 1), *(f"{column[count]:.3f}" for column in table.values())] for count in range(depth)]
    lines = ["ADE in metres on a fixed part of the validation scenes (means over 3, 5 and 8 s, then over types):", ""]
    lines += ["| tokens | " + " | ".join(table) + " |", "|" + "---|" * (len(table) + 1)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return lines
