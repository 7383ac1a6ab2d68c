"""Whether a scene is of the kind that a model was trained on: its embedding is near theirs, and vehicles are on lanes.

A model that has never seen a kind of scene is not uncertain of it: predicted standard deviations do not tell
(`docs/planning.md` has the measurements). Axes: n scenes, d width of the model's tokens.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float, Float64
from safetensors.numpy import load_file, save

from waycode.dataset.files import describe, replace_file
from waycode.model import SceneEmbedding
from waycode.objectives import Setting
from waycode.planner.plan import PlannerError
from waycode.scene import TrackType

FAMILIARITY_FILE = "familiarity.safetensors"  # beside the weights of a model
FALSE_ALARMS = 0.05  # share of scenes of the known kind that may be taken for unknown ones; half of it for each measure
_MIN_TOKENS = 8  # a scene of fewer parts, map segments and road users, is no scene of training: there is nothing to see
_LEAST_VEHICLES = 4  # one car beside the road is not yet a broken map
_NEAR_M = 60.0  # vehicles within this distance of the agent are looked up on the map
_SHRINKAGE = 1e-3  # of the covariance towards a multiple of the identity: small, as unknown scenes leave its directions
_WEIGHTS_FILE = "model.safetensors"


@dataclass(frozen=True, kw_only=True)
class SceneMeasures:
    """What familiarity looks at in a scene."""

    embedding: Float64[np.ndarray, " d"]  # mean of the scene's tokens
    num_tokens: int  # number of map segments and road users that the model sees
    off_lane: float  # share of the vehicles near the agent, of at least 4, that are not on a lane in their direction


@dataclass(frozen=True, kw_only=True, eq=False)
class Familiarity:
    """The scenes that a model knows, and where unknown ones begin."""

    mean: Float64[np.ndarray, " d"]  # of their embeddings
    precision: Float64[np.ndarray, "d d"]  # inverse of the covariance of their embeddings
    max_distance: Float64[np.ndarray, ""]  # greatest distance of a known scene
    max_off_lane: Float64[np.ndarray, ""]  # greatest share of vehicles off the lanes in a known scene

    @staticmethod
    def fit(known: Iterable[SceneMeasures], held_out: Iterable[SceneMeasures]) -> "Familiarity":
        """The familiarity of a model.

        Args:
            known: scenes that the model was trained on; at least twice as many as the width of its tokens.
            held_out: scenes of the same kind that it was not trained on; 5 % of them are beyond a threshold.
        """
        embeddings = np.array([one.embedding for one in known if one.num_tokens >= _MIN_TOKENS])
        held_out = [one for one in held_out if one.num_tokens >= _MIN_TOKENS]
        if len(embeddings) < 2 or len(embeddings) < 2 * embeddings.shape[-1] or not held_out:
            width = embeddings.shape[-1] if len(embeddings) else "the width of the model"
            raise PlannerError(
                f"got {len(embeddings)} scenes of training and {len(held_out)} others to calibrate with, "
                f"expected at least two times {width} of the first and one of the others"
            )
        covariance = np.cov(embeddings, rowvar=False)
        covariance += _SHRINKAGE * np.trace(covariance) / len(covariance) * np.eye(len(covariance))
        mean, precision = embeddings.mean(axis=0), np.linalg.inv(covariance)
        distance = [_distance(one.embedding, mean, precision) for one in held_out]
        off_lane = [one.off_lane for one in held_out]
        limits = [np.array(np.quantile(values, 1 - FALSE_ALARMS / 2)) for values in (distance, off_lane)]
        return Familiarity(mean=mean, precision=precision, max_distance=limits[0], max_off_lane=limits[1])

    def doubt(self, scene: SceneMeasures) -> str | None:
        """Why a scene is of an unknown kind; None if it is of the known one."""
        if scene.num_tokens < _MIN_TOKENS:
            return f"only {scene.num_tokens} map segments and road users are near"
        distance = _distance(scene.embedding, self.mean, self.precision)
        reasons = []
        if not distance <= self.max_distance:
            reasons.append(f"its embedding is {distance:.1f} from those of training, above {self.max_distance:.1f}")
        if scene.off_lane > self.max_off_lane:
            reasons.append(f"{100 * scene.off_lane:.0f} % of the vehicles nearby are on no lane of the map")
        return " and ".join(reasons) or None

    def save(self, model_folder: Path) -> Path:
        """Writes the file beside a model's weights, which it belongs to."""
        path = model_folder / FAMILIARITY_FILE
        metadata = {"weights_sha256": weights_sha256(model_folder)}
        content = save(asdict(self), metadata=metadata)  # `save_file` has errors of its own where the disk is full
        replace_file(path, lambda temporary: temporary.write_bytes(content))
        return path

    @staticmethod
    def load(model_folder: Path) -> "Familiarity | None":
        """The familiarity of a model; None if it was never calibrated, or if it has other weights since."""
        from safetensors import safe_open

        path = model_folder / FAMILIARITY_FILE
        if not path.is_file():
            return None
        try:
            with safe_open(path, framework="np") as file:
                of_weights = (file.metadata() or {}).get("weights_sha256")
            content = {name: values.astype(np.float64) for name, values in load_file(path).items()}
            found = Familiarity(**content)
            shapes = {name: values.shape for name, values in content.items()}
            width = len(found.mean) if found.mean.ndim else 0
            if shapes != {"mean": (width,), "precision": (width, width), "max_distance": (), "max_off_lane": ()}:
                raise ValueError(f"its arrays have the shapes {shapes}")
            if not all(np.isfinite(values).all() for values in content.values()):
                raise ValueError("it has values that are not finite")
        except Exception as error:  # of safetensors, of numpy, of the checks above
            raise PlannerError(f"{path} cannot be read ({describe(error)}): run `waycode calibrate` again") from error
        return found if of_weights == weights_sha256(model_folder) else None


def measure_scene(embedding: SceneEmbedding, setting: Setting) -> SceneMeasures:
    """What familiarity looks at in an encoded scene."""
    tokens, mask = embedding.tokens.tokens[0], embedding.tokens.mask[0]
    tracks, now = setting.scene.tracks, setting.scene.current_step
    position = tracks.position_m[:, now].astype(np.float64)
    near = tracks.valid[:, now] & (tracks.types == TrackType.VEHICLE)
    near &= np.linalg.norm(position - position[setting.agent], axis=1) < _NEAR_M
    lane = setting.scene.map.lanes.graph.lane_at(position[near], tracks.heading_rad[near, now].astype(np.float64))
    return SceneMeasures(
        embedding=tokens[mask].mean(dim=0).double().cpu().numpy(),
        num_tokens=int(mask.sum()),
        off_lane=float((lane < 0).sum()) / max(_LEAST_VEHICLES, int(near.sum())),
    )


def _distance(
    embedding: Float[np.ndarray, " d"], mean: Float[np.ndarray, " d"], precision: Float[np.ndarray, "d d"]
) -> float:
    """Mahalanobis distance, divided by its expectation: about 1 for scenes of the known kind."""
    offset = embedding - mean
    return float(np.sqrt(max(0.0, offset @ precision @ offset) / len(mean)))


def weights_sha256(model_folder: Path) -> str:
    """Checksum of a model's weights."""
    return hashlib.sha256((model_folder / _WEIGHTS_FILE).read_bytes()).hexdigest()
