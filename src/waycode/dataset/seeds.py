"""Roles of the seeds of generated data, and the episodes that generated scenes were cut from.

A model is trained on training seeds, everything is tuned on development seeds, and test seeds are only for figures that
are published. The rule is fixed, so that nobody has to remember which dataset was used for what.
"""

from enum import StrEnum

from waycode.dataset.dataset import Dataset, DatasetError, DatasetInfo
from waycode.dataset.files import describe, parse_json
from waycode.scene.types import Scene

_GENERATED = "sumo"  # the source whose datasets have a seed
_TRAINING_SEEDS = range(1000, 2000)
_FIRST_TEST_SEED = 9000
SEED_RULE = (
    f"{_TRAINING_SEEDS.start} to {_TRAINING_SEEDS.stop - 1} for training, {_FIRST_TEST_SEED} and above for tests, "
    "all others for development"
)


class SeedRole(StrEnum):
    """What the scenes of a seed may be used for."""

    TRAINING = "training"
    DEVELOPMENT = "development"  # validation, choice of settings, figures on the way
    TEST = "test"  # published figures alone: neither training nor any choice

    @staticmethod
    def of(seed: int) -> "SeedRole":
        """The role of a seed of `waycode data sumo`."""
        if seed in _TRAINING_SEEDS:
            return SeedRole.TRAINING
        return SeedRole.TEST if seed >= _FIRST_TEST_SEED else SeedRole.DEVELOPMENT


def seed_of(info: DatasetInfo) -> int | None:
    """The seed of a generated dataset or of a part of one (`split_dataset`); None for other sources."""
    seed = info.settings.get("seed") if info.source == _GENERATED else None
    return seed if isinstance(seed, int) else None


def seed_role(info: DatasetInfo) -> SeedRole | None:
    """The role of a generated dataset or of a part of one; None for other sources."""
    seed = seed_of(info)
    return None if seed is None else SeedRole.of(seed)


def check_not_test(dataset: Dataset) -> None:
    """Raises `DatasetError` for a dataset of test seeds: models are neither trained nor validated on them."""
    if seed_role(dataset.info) is SeedRole.TEST:
        raise DatasetError(
            f"{dataset.folder} was generated with seed {seed_of(dataset.info)}, a test seed: "
            f"expected another dataset to train or validate on (seeds: {SEED_RULE})"
        )


def episode_of(scene: Scene) -> str:
    """Name of the simulated world that a scene is a window of; the scene's id for other sources.

    Scenes of one episode share roads, drivers and often the same road users: they are no independent samples.
    """
    return _episode(scene.id, scene.source, scene.rebuild)


def episodes_in(dataset: Dataset) -> list[str]:
    """`episode_of` all scenes of a dataset, in order, without reading the scenes."""
    columns = (dataset.column(name) for name in ("id", "source", "rebuild"))
    return [_episode(*row) for row in zip(*columns, strict=True)]


def _episode(scene_id: str, source: str, rebuild: str | None) -> str:
    if source != _GENERATED or rebuild is None:
        return scene_id
    try:
        episode = parse_json(rebuild)["episode"]
        return "-".join(map(str, (episode["family"], *episode["numbers"])))  # numbers: dataset seed, shard, attempt
    except (ValueError, KeyError, TypeError) as error:
        raise DatasetError(
            f"scene {scene_id!r:.80} does not say which episode it is from ({describe(error)}): expected rebuild as "
            "`waycode data sumo` writes it"
        ) from error
