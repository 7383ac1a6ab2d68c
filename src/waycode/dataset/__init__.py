"""Scenes on disk: Parquet shards with checksums, read at random, written by resumable workers.

`waycode.dataset.dataset` holds `Dataset`, `load_scene` and `save_scene`; the other modules are imported by name.
"""
