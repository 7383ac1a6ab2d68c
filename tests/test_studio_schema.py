"""The OpenAPI schema is true: whatever schemathesis makes of it, the server answers as the schema says."""

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="the studio is not installed: pip install 'waycode[studio]'")
pytest.importorskip("schemathesis", reason="not installed: pip install 'waycode[dev]'")

import schemathesis
from hypothesis import HealthCheck, settings

from studio_client import ADDRESS, studio_client

HOST = {"host": ADDRESS.removeprefix("http://")}


@pytest.fixture(scope="module")
def schema() -> Iterator[Any]:
    with studio_client() as (_, client):
        yield schemathesis.openapi.from_asgi("/api/v1/openapi.json", client.app, base_url=ADDRESS, headers=HOST)


operations = schemathesis.pytest.from_fixture("schema")


@operations.parametrize()
@settings(max_examples=8, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_every_reply_fits_the_schema(case: Any) -> None:
    case.call_and_validate(headers=HOST)
