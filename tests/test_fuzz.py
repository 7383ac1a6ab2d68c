"""The short form of fuzzing (`make fuzz` is the long one): whatever is read is valid, or refused with our error."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fuzz_base import Target
from fuzz_targets import TARGETS

EXAMPLES = {
    "nuplanlog": 8, "nuplanmap": 4, "oddscenes": 8, "modelfolder": 15, "runfolder": 15, "datasetfolder": 20,
    "studiorequests": 15,
}  # fmt: skip


@pytest.fixture(scope="module")
def targets(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Target]:
    made = [kind(tmp_path_factory.mktemp("fuzz") / kind.__name__.lower()) for kind in TARGETS]
    for target in made:
        target.prepare()
    return {target.name: target for target in made}


@pytest.mark.filterwarnings("ignore")  # numpy warns of overflows in damaged numbers, which are then refused
@pytest.mark.parametrize("name", [kind.__name__.lower() for kind in TARGETS])
def test_damaged_input_is_read_or_refused(name: str, targets: dict[str, Target]) -> None:
    @settings(
        max_examples=EXAMPLES.get(name, 40), deadline=None, database=None, derandomize=False,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(seed=st.integers(0, 2**32 - 1))
    def check(seed: int) -> None:
        targets[name].run(np.random.default_rng(seed))

    check()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [kind.__name__.lower() for kind in TARGETS])
def test_not_everything_is_refused(name: str, targets: dict[str, Target]) -> None:
    """A target that refuses all input, damaged or not, would test nothing."""
    assert any(targets[name].run(np.random.default_rng(seed)) for seed in range(60))
