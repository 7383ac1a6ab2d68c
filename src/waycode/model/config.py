"""The configuration of the autoencoder, with the paper's ablations as settings; configs from JSON with type checks."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from enum import EnumType, StrEnum
from types import NoneType
from typing import Any, TypeVar, get_args

from waycode.features import FeatureConfig

AnyConfig = TypeVar("AnyConfig")


class Bottleneck(StrEnum):
    """What happens to the tokens in training (paper, section 3.1 and table 6)."""

    NOISE = "noise"  # tanh, then Gaussian noise: the paper's soft quantisation
    FSQ = "fsq"  # tanh, then rounding with a straight-through gradient: hard quantisation in training


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Sizes of the three transformers and of the code between them."""

    features: FeatureConfig = field(default_factory=FeatureConfig)
    width: int = 64
    heads: int = 4
    feed_forward: int = 256  # hidden width of the feed-forward layers
    scene_layers: int = 2
    encoder_layers: int = 2  # of the trajectory encoder
    feedback: bool = True  # each latent knows what those before it decode to (ours), see `TrajectoryEncoder`
    preview: bool = False  # each latent knows what every token in its place would decode to (ours), needs `feedback`
    polish: bool = False  # a Gauss-Newton step on each latent that is not rounded to 2 levels (ours), needs `feedback`
    decoder_layers: int = 3
    relation_width: int = 32  # of embedded relative poses
    max_scene_tokens: int = 192  # map segments and road users per scene, those nearest to the modelled agents
    neighbours: int | None = 16  # local attention in the scene encoder; None: all tokens attend to all
    # Whether the model sees which lanes an agent can reach from its lane (ours).
    reachability: bool = True
    registers: int = 1  # learned tokens beside the latents; the trajectory is read from the first of the decoder's
    joint: bool = False  # one code for all modelled agents of a scene, instead of one for each (paper, section 3.3)
    # Whether the tokens of a joint code are addressed to its agents in turn, the fastest first (ours). All agents still
    # see all tokens; without an address, as in the paper, they have to learn which of them a token is about.
    addressed: bool = False
    num_tokens: int = 3  # N
    token_dim: int = 3  # D
    causal: bool = True  # False: latents attend to later latents too (ablation)
    bottleneck: Bottleneck = Bottleneck.NOISE
    fsq_levels: int = 2
    # Control points of the mean: a knot every 1.3 s of 8. Sixteen reconstruct no better and oscillate. The spline, its
    # fixed start and its smooth end are ours; None regresses one position per step, as in the paper.
    spline_points: int | None = 9
    spread_points: int = 6  # control points of the logarithmic standard deviation; not used without a spline
    # Width of the correction of control points by the map (ours); 0 switches it off, as in the paper. It halves the
    # speed of training; a step with it teaches as much as 1.3 without.
    correction_width: int = 0
    nearby_polylines: int = 128  # map segments that the correction chooses from, the nearest to each agent
    prior: bool = True  # whether the decoder predicts the next token too (ours), see `Decoder.next_token_logits`

    def __post_init__(self) -> None:
        sizes = (
            "width", "heads", "feed_forward", "relation_width", "max_scene_tokens", "nearby_polylines", "registers",
            "num_tokens", "token_dim",
        )  # fmt: skip
        least = dict.fromkeys((*sizes, "encoder_layers", "decoder_layers"), 1) | {
            "scene_layers": 0, "fsq_levels": 2, "correction_width": 0,
        }  # fmt: skip
        for name, bound in least.items():
            if getattr(self, name) < bound:
                raise ValueError(f"{name} is {getattr(self, name)}, expected at least {bound}")
        if self.neighbours is not None and self.neighbours < 1:
            raise ValueError(f"neighbours is {self.neighbours}, expected at least 1, or None for all")
        if self.width % self.heads:
            raise ValueError(f"width is {self.width}, expected a multiple of heads ({self.heads})")
        if self.correction_width % 4:
            raise ValueError(f"correction_width is {self.correction_width}, expected a multiple of 4")
        if (self.spline_points is not None and self.spline_points < 4) or self.spread_points < 4:
            points = f"spline_points is {self.spline_points} and spread_points is {self.spread_points}"
            raise ValueError(f"{points}, expected at least 4: a cubic spline needs at least 4 control points")
        if self.spline_points is None and self.correction_width:
            raise ValueError(
                f"correction_width is {self.correction_width}, expected 0 without spline_points: "
                "the correction by the map moves control points"
            )
        if self.addressed and not self.joint:
            raise ValueError("addressed is true, expected false if joint is false: a code of one agent has no others")
        if self.preview and not self.feedback:
            raise ValueError("preview is true, expected false if feedback is false: it follows what is decoded")
        if self.polish and not self.feedback:
            raise ValueError("polish is true, expected false if feedback is false: it moves one latent after the other")
        for name in ("prior", "feedback"):
            if getattr(self, name) and not self.causal:
                raise ValueError(f"{name} is true, expected false if causal is false: it reads the states of prefixes")


def config_from_json(kind: type[AnyConfig], content: Any, *, name: str = "") -> AnyConfig:
    """Builds a config dataclass, with the configs inside it, from parsed JSON.

    Raises `ValueError` for fields that are missing, unknown or of another type. A switch that is off by default may be
    missing: it came after the JSON was written.

    Args:
        kind: the dataclass.
        content: the parsed JSON object.
        name: dotted path of the config inside its parent, for messages.
    """
    if not isinstance(content, Mapping):
        raise ValueError(f"{name or 'the config'} is {content!r:.60}, expected the fields of a {kind.__name__}")
    types = {one.name: one.type for one in fields(kind)}  # type: ignore[arg-type]
    optional = {one.name for one in fields(kind) if one.default is False}  # type: ignore[arg-type]
    missing, unknown = sorted(set(types) - optional - set(content)), sorted(set(content) - set(types))
    if missing or unknown:
        raise ValueError(f"{name or 'the config'} is no {kind.__name__}: missing {missing}, unknown {unknown}")
    prefix = f"{name}." if name else ""
    return kind(**{key: _typed(types[key], value, name=prefix + key) for key, value in content.items()})


def _typed(kind: Any, value: Any, *, name: str) -> Any:
    """The value converted to its type: JSON has no enums, and writes whole floats as integers."""
    if is_dataclass(kind):
        return config_from_json(kind, value, name=name)  # type: ignore[arg-type]
    if isinstance(kind, EnumType) and value in list(kind):
        return kind(value)
    choices = get_args(kind) or (kind,)  # of a union
    if type(value) is int and float in choices:
        value = float(value)
    if type(value) in choices and not (isinstance(value, float) and not math.isfinite(value)):
        return value
    words = {bool: "true or false", int: "a whole number", float: "a finite number", NoneType: "none"}
    expected = f"one of {', '.join(kind)}" if isinstance(kind, EnumType) else " or ".join(words[one] for one in choices)
    raise ValueError(f"{name} is {value!r:.60}, expected {expected}")
