"""A studio of the bundled scenes with a client that speaks to it as a page on loopback does."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fastapi.testclient import TestClient

from waycode.studio import Studio, StudioLimits, create_app

ADDRESS = "http://127.0.0.1:8765"
CROSSING: dict[str, Any] = {"dataset": "sumo-crossings", "scene": 3}  # an ego that starts before an all-way stop


@contextmanager
def studio_client(limits: StudioLimits | None = None) -> Iterator[tuple[Studio, TestClient]]:
    """The studio, and a client while its event loop runs."""
    studio = Studio.open([], model="sumo-small", limits=limits)
    with TestClient(create_app(studio), base_url=ADDRESS) as client:
        yield studio, client
