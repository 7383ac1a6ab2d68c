"""An index of recorded manoeuvres by their codes, to find the same manoeuvre in other scenes.

Codes describe behaviour, not places (paper, section 5.2): the same code means the same manoeuvre in another scene.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from jaxtyping import Float, Float32, Int

from waycode.dataset.files import describe, parse_json, replace_file
from waycode.features import collate, extract
from waycode.planner.plan import PlannerError
from waycode.planner.planner import Planner, recorded_agents
from waycode.scene import Scene
from waycode.scene.manoeuvre import classify

_SCENES_PER_BATCH = 16
INDEX_VERSION = 1
_METADATA = b"waycode-index"
_MAX_LEVELS, _MAX_DIM = 64, 10  # of an index; a damaged number must not pass for the size of a codebook


@dataclass(frozen=True, kw_only=True)
class RecordedManoeuvre:
    """A manoeuvre of one agent in one scene, with its code."""

    scene_index: int  # index of the scene in the dataset
    scene_id: str
    agent_id: str
    manoeuvre: str
    tokens: tuple[int, ...]
    distance: float | None = None  # between its latents and those of the query


@dataclass(frozen=True, kw_only=True)
class ManoeuvreIndex:
    """The codes of R recorded trajectories of N tokens."""

    levels: int
    scene_index: Int[np.ndarray, " R"]
    scene_ids: tuple[str, ...]
    agent_ids: tuple[str, ...]
    manoeuvres: tuple[str, ...]
    tokens: Int[np.ndarray, "R N"]
    latents: Float32[np.ndarray, "R N D"]  # not rounded

    def __len__(self) -> int:
        return len(self.scene_ids)

    def row_of(self, scene_id: str, agent_id: str) -> int:
        """Row of an agent's manoeuvre in the index."""
        rows = [row for row, name in enumerate(self.scene_ids) if name == scene_id]
        if not rows:
            raise PlannerError(f"the index has no scene {scene_id!r}; it has {len(set(self.scene_ids))} others")
        for row in rows:
            if self.agent_ids[row] == agent_id:
                return row
        available = ", ".join(self.agent_ids[row] for row in rows)
        raise PlannerError(f"the index has no agent {agent_id!r} of scene {scene_id!r}; available: {available}")

    def find(self, *, prefix: Sequence[int]) -> list[RecordedManoeuvre]:
        """All manoeuvres whose code starts with these tokens, in the order of the scenes."""
        longest = self.tokens.shape[1]
        if not 1 <= len(prefix) <= longest:
            raise PlannerError(f"the prefix has {len(prefix)} tokens, expected 1 to {longest}")
        count = self.levels ** self.latents.shape[2]
        if not all(0 <= token < count for token in prefix):
            raise PlannerError(f"the prefix {list(prefix)} has tokens out of range: expected 0 to {count - 1}")
        same = (self.tokens[:, : len(prefix)] == np.asarray(prefix)).all(axis=1)
        return [self.entry(int(row)) for row in np.flatnonzero(same)]

    def nearest(self, latents: Float[np.ndarray, "n D"], count: int) -> list[RecordedManoeuvre]:
        """The `count` manoeuvres with the nearest latents, nearest first; compares the first n tokens."""
        _, longest, dim = self.latents.shape
        if latents.shape[1] != dim or not 1 <= len(latents) <= longest:
            raise PlannerError(f"the latents have shape {list(latents.shape)}, expected [1 to {longest}, {dim}]")
        if count < 1:
            raise PlannerError(f"asked for {count} manoeuvres, expected at least 1")
        distance = np.linalg.norm(self.latents[:, : len(latents)] - latents, axis=(1, 2))
        rows = np.argsort(distance, kind="stable")[:count]
        return [self.entry(int(row), distance=float(distance[row])) for row in rows]

    def entry(self, row: int, *, distance: float | None = None) -> RecordedManoeuvre:
        """One row of the index."""
        return RecordedManoeuvre(
            scene_index=int(self.scene_index[row]),
            scene_id=self.scene_ids[row],
            agent_id=self.agent_ids[row],
            manoeuvre=self.manoeuvres[row],
            tokens=tuple(self.tokens[row].tolist()),
            distance=distance,
        )

    def save(self, path: str | Path) -> None:
        """Writes the index as one Parquet file, a row per manoeuvre."""
        table = pa.table(
            {
                "scene_index": pa.array(self.scene_index, pa.int32()),
                "scene_id": pa.array(self.scene_ids, pa.string()),
                "agent_id": pa.array(self.agent_ids, pa.string()),
                "manoeuvre": pa.array(self.manoeuvres, pa.string()),
                "tokens": pa.array(self.tokens.tolist(), pa.list_(pa.int32())),
                "latents": pa.array(self.latents.tolist(), pa.list_(pa.list_(pa.float32()))),
            }
        )
        notes = {"version": INDEX_VERSION, "levels": self.levels, "token_shape": self.latents.shape[1:]}
        table = table.replace_schema_metadata({_METADATA: json.dumps(notes).encode()})
        replace_file(Path(path), lambda temporary: pq.write_table(table, temporary, write_page_checksum=True))

    @staticmethod
    def is_file(path: str | Path) -> bool:
        """Whether a file is an index, and not, say, a Parquet file of scenes."""
        try:
            return _METADATA in (pq.read_schema(path).metadata or {})
        except (OSError, pa.ArrowException):
            return False

    @staticmethod
    def load(path: str | Path) -> "ManoeuvreIndex":
        """Reads an index from its file."""
        try:
            table = pq.ParquetFile(path, page_checksum_verification=True).read()
            notes = parse_json((table.schema.metadata or {})[_METADATA])
            if notes["version"] != INDEX_VERSION:
                raise PlannerError(f"{path} has version {notes['version']!r:.60}, this waycode reads {INDEX_VERSION}")
            num_tokens, dim = notes["token_shape"]
            columns = {name: table[name].to_pylist() for name in table.column_names}
            index = ManoeuvreIndex(
                levels=notes["levels"],
                scene_index=np.array(columns["scene_index"], np.int64),
                scene_ids=tuple(columns["scene_id"]),
                agent_ids=tuple(columns["agent_id"]),
                manoeuvres=tuple(columns["manoeuvre"]),
                tokens=np.array(columns["tokens"], np.int64).reshape(-1, num_tokens),
                latents=np.array(columns["latents"], np.float32).reshape(-1, num_tokens, dim),
            )
            index._check()
        except PlannerError:
            raise
        except Exception as error:  # Arrow's, numpy's and our own: there is no list of them
            message = f"{path} is not an index of manoeuvres ({describe(error)}): make one with build_index"
            raise PlannerError(message) from error
        return index

    def _check(self) -> None:
        """Raises `ValueError` for an index that `build_index` cannot have made."""
        num_rows, _, dim = self.latents.shape
        lengths = {len(self.scene_ids), len(self.agent_ids), len(self.manoeuvres)}
        if lengths != {num_rows} or self.scene_index.shape != (num_rows,) or len(self.tokens) != num_rows:
            raise ValueError(
                f"its columns have {sorted({*lengths, num_rows, len(self.tokens)})} rows, expected as many each"
            )
        if not all(isinstance(text, str) for text in (*self.scene_ids, *self.agent_ids, *self.manoeuvres)):
            raise ValueError("its ids and manoeuvres are not all text")
        if type(self.levels) is not int or not 2 <= self.levels <= _MAX_LEVELS or not 1 <= dim <= _MAX_DIM:
            raise ValueError(f"it has {self.levels!r:.60} levels in {dim} dimensions")
        if self.tokens.size and not 0 <= self.tokens.min() <= self.tokens.max() < self.levels**dim:
            raise ValueError(f"it has tokens out of the range 0 to {self.levels**dim - 1}")
        if not np.isfinite(self.latents).all():
            raise ValueError("its latents are not finite")


def build_index(
    scenes: Iterable[Scene],
    planner: Planner,
    *,
    levels: int = 2,
    on_scenes: Callable[[int], None] = lambda count: None,
) -> ManoeuvreIndex:
    """Encodes the recorded future of every track to predict of every scene.

    Args:
        scenes: the scenes, in the order of their dataset.
        planner: its model encodes.
        levels: codebook levels of the stored token ids.
        on_scenes: progress callback, called after each batch with the number of its scenes.
    """
    model = planner.model
    codebook = model.codebook(levels)
    entries: list[tuple[int, str, str, str]] = []
    nothing = torch.zeros(0, model.config.num_tokens, model.config.token_dim, device="cpu")
    latents, rounded = [nothing], [nothing]
    numbered = enumerate(scenes)
    while batch := list(islice(numbered, _SCENES_PER_BATCH)):
        encoded = [(number, scene, agents) for number, scene in batch if (agents := recorded_agents(scene))]
        for number, scene, agents in encoded:
            manoeuvres = classify(scene)
            entries += [(number, scene.id, scene.tracks.ids[agent], str(manoeuvres[agent])) for agent in agents]
        if encoded:
            continuous, quantised = _encode(planner, [(scene, agents) for _, scene, agents in encoded], levels)
            latents.append(continuous)
            rounded.append(quantised)
        on_scenes(len(batch))
    return ManoeuvreIndex(
        levels=levels,
        scene_index=np.array([entry[0] for entry in entries], np.int64),
        scene_ids=tuple(entry[1] for entry in entries),
        agent_ids=tuple(entry[2] for entry in entries),
        manoeuvres=tuple(entry[3] for entry in entries),
        tokens=codebook.ids(torch.cat(rounded)).numpy(),
        latents=torch.cat(latents).numpy(),
    )


@torch.no_grad()
def _encode(
    planner: Planner, scenes: Sequence[tuple[Scene, list[int]]], levels: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Continuous and rounded latents, each [R, N, D], of the agents of some scenes."""
    model = planner.model
    batch = collate([extract(scene, agents, config=model.config.features) for scene, agents in scenes])
    batch = batch.to(planner.device)
    future_m, valid = batch.future_m[batch.agents.mask], batch.future_valid[batch.agents.mask]
    scene = model.encode_scene(batch.scene, batch.agents)
    return model.encode(future_m, valid, scene).cpu(), model.encode(future_m, valid, scene, levels=levels).cpu()
