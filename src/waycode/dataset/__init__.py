"""Scenes on disk: Parquet shards with checksums, random access, resumable workers.

The names below are imported on first use, because they need pyarrow. The modules: `dataset` (read and write),
`storage` (the Parquet form), `files` (atomic writes), `workers` (the process pool), `seeds` (what generated data may be
used for), `summary`, `checks` and `split`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from waycode.dataset.dataset import Dataset as Dataset
    from waycode.dataset.dataset import load_scene as load_scene
    from waycode.dataset.dataset import save_scene as save_scene
    from waycode.dataset.files import DatasetError as DatasetError

__all__ = ["Dataset", "DatasetError", "load_scene", "save_scene"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module("waycode.dataset.dataset"), name)
    raise AttributeError(f"waycode.dataset has no {name!r}; available: {', '.join(__all__)}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
