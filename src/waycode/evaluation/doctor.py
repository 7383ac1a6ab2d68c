"""Checks of an installation: packages, numerics, bundled models against their stored outputs, the simulator.

`models/golden.json` holds the checksums of the bundled models' files and decoded positions of a few codes. After a
change of the bundled models run `python docs/golden.py`, which writes it; a test compares.
"""

import json
import platform
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from waycode.dataset.dataset import Dataset, load_scene
from waycode.dataset.files import parse_json, sha256_of_file
from waycode.evaluation.report import EvaluationError
from waycode.model.saved import bundled_models, find_model, load_model
from waycode.planner import Planner

# Modules that an extra of the package brings.
EXTRAS = {
    "sumo": ("sumo",),  # libsumo warns of pyarrow on its first import, which generating scenes suppresses
    "womd": ("google.protobuf", "crc32c"),
    "nuplan": ("pyogrio", "geopandas"),
    "studio": ("fastapi", "uvicorn", "websockets"),
    "video": ("imageio_ffmpeg",),
}
_GOLDEN_SCENE = ("sample", 0)
_GOLDEN_CODES = ([0], [1, 2, 3], [7, 5, 0])
_GOLDEN_STEPS = (19, 39, 79)  # 2, 4 and 8 s ahead
_TOLERANCE_M = 0.01  # float32 in another order of operations moves the decoded points by micrometres
_CEILING_SCENES = (0, 10, 15)  # of "sample": the recorded car keeps to the speed limit
_LEAST_CEILING = 0.95  # mean score of log replay there; 0.996 when it was chosen

CheckResult = Literal["passed", "failed", "missing"]


@dataclass(frozen=True)
class InstallationCheck:
    """One check of an installation."""

    name: str
    result: CheckResult  # "missing": an optional part is not installed
    detail: str  # one sentence


@dataclass(frozen=True)
class ModelDescription:
    """A bundled model, in a line."""

    name: str
    num_parameters: int
    num_tokens: int
    has_prior: bool  # knows which codes are likely
    is_joint: bool  # one code for several agents
    folder: str  # with its card, MODEL_CARD.md


def run_checks() -> Iterator[InstallationCheck]:
    """Runs all checks one after the other; a check that raises has failed."""
    yield _passing("installation", _installation)
    yield from map(_extra, EXTRAS)
    yield _passing("numerics", _numerics)
    golden = read_golden()
    for name in bundled_models():
        yield _passing(f"files of {name}", partial(_files, name, golden))
        yield _passing(f"outputs of {name}", partial(_outputs, name, golden))
    yield _passing("log replay", _log_replay)


def describe_models() -> list[ModelDescription]:
    """All bundled models."""
    described = []
    for name in bundled_models():
        saved = load_model(name)
        described.append(
            ModelDescription(
                name=name,
                num_parameters=sum(weights.numel() for weights in saved.model.parameters()),
                num_tokens=saved.model.config.num_tokens,
                has_prior=saved.model.config.prior,
                is_joint=saved.model.config.joint,
                folder=str(find_model(name)),
            )
        )
    return described


def golden_of(name: str) -> dict[str, Any]:
    """Checksums and decoded positions of a bundled model, as `golden.json` stores them."""
    folder = find_model(name)
    return {
        "sha256": {path.name: sha256_of_file(path) for path in sorted(folder.iterdir()) if path.is_file()},
        "position_m": {" ".join(map(str, code)): _decoded_m(name, code).tolist() for code in _GOLDEN_CODES},
    }


def golden_path() -> Path:
    """The file with the stored outputs of the bundled models."""
    return Path(str(files("waycode"))) / "models" / "golden.json"


def read_golden() -> dict[str, Any]:
    """Stored checksums and outputs by the model's name."""
    content: dict[str, Any] = parse_json(golden_path().read_bytes())
    return content


def write_golden() -> Path:
    """Stores what the bundled models give now."""
    content = {name: golden_of(name) for name in bundled_models()}
    golden_path().write_text(json.dumps(content, indent=1) + "\n")
    return golden_path()


def _passing(name: str, check: Callable[[], str]) -> InstallationCheck:
    try:
        return InstallationCheck(name, "passed", check())
    except Exception as error:  # whatever a broken installation raises is what the user wants to know
        return InstallationCheck(name, "failed", f"{type(error).__name__}: {error}" if not str(error) else str(error))


def _installation() -> str:
    from waycode import __version__

    versions = f"Python {platform.python_version()}, torch {torch.__version__}, numpy {np.__version__}"
    found = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else "none"
    return f"waycode {__version__}, {versions}; accelerator: {found}"


def _extra(name: str) -> InstallationCheck:
    install = f"pip install 'waycode[{name}]'"
    for module in EXTRAS[name]:
        try:
            import_module(module)
        except ImportError as error:
            return InstallationCheck(f"extra {name}", "missing", f"{error}: {install}, if you need it")
    return InstallationCheck(f"extra {name}", "passed", ", ".join(EXTRAS[name]))


def _numerics() -> str:
    """Compares what the models compute with in float32 with float64: a product, softmax and a norm."""
    generator = torch.Generator().manual_seed(0)
    left, right = (torch.randn(64, 64, generator=generator, dtype=torch.float64) for _ in range(2))

    def compute(dtype: torch.dtype) -> torch.Tensor:
        attention = torch.softmax(left.to(dtype) @ right.to(dtype) / 8, dim=-1)
        return torch.nn.functional.layer_norm(attention @ right.to(dtype), (64,)).double()

    error = float((compute(torch.float32) - compute(torch.float64)).abs().max())
    if not error < 1e-4:
        raise EvaluationError(f"float32 differs from float64 by {error:.1e}, expected less than 1e-4")
    return f"float32 differs from float64 by {error:.0e} at most"


def _files(name: str, golden: dict[str, Any]) -> str:
    if name not in golden:
        raise EvaluationError(f"no checksums are stored for {name}; available: {', '.join(golden)}")
    folder, stored = find_model(name), golden[name]["sha256"]
    for file, checksum in stored.items():
        if not (folder / file).is_file():
            raise EvaluationError(f"{folder / file} is missing: install waycode again")
        if sha256_of_file(folder / file) != checksum:
            raise EvaluationError(f"{folder / file} has another checksum than was published: install waycode again")
    return f"{len(stored)} files have the published checksums"


def _outputs(name: str, golden: dict[str, Any]) -> str:
    if name not in golden:
        raise EvaluationError(f"no outputs are stored for {name}; available: {', '.join(golden)}")
    stored = golden[name]["position_m"]
    errors_m = [
        float(np.abs(_decoded_m(name, list(map(int, code.split()))) - np.array(position_m)).max())
        for code, position_m in stored.items()
    ]
    if not max(errors_m) <= _TOLERANCE_M:
        raise EvaluationError(f"decoded positions differ by {max(errors_m):.3f} m, expected {_TOLERANCE_M} m at most")
    return f"{len(stored)} codes decode as published, within {1000 * max(errors_m):.2g} mm"


def _decoded_m(name: str, code: list[int]) -> np.ndarray:
    """Positions [3, 2] in the world frame, 2, 4 and 8 s ahead, that a code means in the first bundled scene."""
    scene = load_scene(*_GOLDEN_SCENE)
    plan = Planner.from_pretrained(name).encode(scene).decode(code)
    return np.stack([plan.x_m, plan.y_m], axis=1)[list(_GOLDEN_STEPS)].round(6)


def _log_replay() -> str:
    """A car that drives as recorded among recorded traffic must score almost 1: the ceiling of all drivers."""
    from waycode.simulation.registry import DriverSpec
    from waycode.simulation.rollout import score, simulate

    dataset = Dataset("sample")
    scenes = [dataset[index] for index in _CEILING_SCENES]
    scores = [score(simulate(scene, DriverSpec(name="replay", model="").build(scene))).score for scene in scenes]
    mean = float(np.mean(scores))
    if not mean >= _LEAST_CEILING:
        raise EvaluationError(f"log replay scores {mean:.3f}, expected {_LEAST_CEILING} or more")
    return f"drives {len(scores)} bundled scenes with a mean score of {mean:.3f}, the ceiling for all drivers"
