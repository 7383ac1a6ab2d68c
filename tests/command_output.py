"""What a command printed, as the tests of the command line read it."""

import json
from typing import Any

import pytest

Output = pytest.CaptureFixture[str]


def json_of(output: Output) -> Any:
    return json.loads(output.readouterr().out)


def complaint_of(output: Output) -> str:
    """What was said on stderr: one line."""
    text = output.readouterr().err
    assert text.startswith("waycode: ")
    assert text.count("\n") == 1
    return text
