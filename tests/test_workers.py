"""Worker processes and the threads of numpy's linear algebra in them."""

import os

import pytest

from waycode.dataset.workers import BLAS_THREADS, run_tasks


def test_workers_do_not_fight_for_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(BLAS_THREADS, raising=False)
    found = dict(run_tasks({"a": BLAS_THREADS, "b": BLAS_THREADS}, os.getenv, workers=2))
    assert found == {"a": "1", "b": "1"}
    assert BLAS_THREADS not in os.environ


def test_what_the_user_has_set_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(BLAS_THREADS, "2")
    assert dict(run_tasks({"a": BLAS_THREADS, "b": BLAS_THREADS}, os.getenv, workers=2)) == {"a": "2", "b": "2"}
    assert os.environ[BLAS_THREADS] == "2"
