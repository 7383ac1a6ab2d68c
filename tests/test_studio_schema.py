"""The OpenAPI schema is true: whatever schemathesis makes of it, the server answers as the schema says."""

from typing import Any, cast

import pytest

pytest.importorskip("fastapi", reason="the studio is not installed: pip install 'waycode[studio]'")
pytest.importorskip("schemathesis", reason="not installed: pip install 'waycode[dev]'")

import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.specs.openapi.checks import positive_data_acceptance

from studio_client import ADDRESS, studio_client

HOST = {"host": ADDRESS.removeprefix("http://")}
NUM_OPERATIONS = 16


# schemathesis draws from Python's own random numbers, which hypothesis discourages.
@pytest.mark.filterwarnings("default::hypothesis.errors.HypothesisDeprecationWarning")
def test_every_reply_fits_the_schema() -> None:
    with studio_client() as (_, client):
        schema = schemathesis.openapi.from_asgi("/api/v1/openapi.json", client.app, headers=HOST)
        tested = []
        for result in schema.get_all_operations():
            operation = cast(Any, result).ok()  # a fault of the schema itself has no operation: it raises here

            @given(case=operation.as_strategy())
            @settings(max_examples=5, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
            def check(case: Any) -> None:
                # No schema can say which texts are objectives and which tokens a model has: those get 422, and say why.
                case.call_and_validate(headers=HOST, excluded_checks=[positive_data_acceptance])

            check()
            tested.append(operation.label)
    assert len(tested) == NUM_OPERATIONS, tested
