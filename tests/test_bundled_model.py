"""The model that comes with the package, on the scenes that come with it (which it was not trained on)."""

from importlib.resources import files

import numpy as np
import pytest

from waycode.dataset.dataset import Dataset
from waycode.evaluation.metrics import mean_over_types
from waycode.evaluation.reconstruction import AgentErrors, CodeMethod, reconstruction_errors
from waycode.model.saved import bundled_models, load_model

ENCODER, SEARCH = CodeMethod(by_search=False, num_levels=2), CodeMethod(by_search=True, num_levels=2)


@pytest.fixture(scope="module")
def errors() -> AgentErrors:
    model = load_model("sumo-small").model
    scenes = Dataset(str(files("waycode") / "samples" / "sumo"))
    return reconstruction_errors(model, iter(scenes[:]), methods=(ENCODER, SEARCH))


def test_it_is_bundled_small_and_has_thresholds() -> None:
    assert "sumo-small" in bundled_models()
    folder = files("waycode") / "models" / "sumo-small"
    assert sum(len(file.read_bytes()) for file in folder.iterdir()) < 15_000_000
    assert sorted(load_model("sumo-small").gate.sigma_max_m) == [1, 2, 3]


def test_three_tokens_found_by_search_say_what_road_users_did(errors: AgentErrors) -> None:
    by_tokens = [mean_over_types(errors.ade_m[SEARCH.name][:, count], errors.types) for count in range(3)]
    assert by_tokens[0] > by_tokens[1] > by_tokens[2]
    assert by_tokens[2] < 0.5


def test_search_beats_the_quantised_encoder(errors: AgentErrors) -> None:
    assert np.nanmean(errors.ade_m[SEARCH.name][:, 2]) < np.nanmean(errors.ade_m[ENCODER.name][:, 2])
