"""`waycode find`: the same manoeuvre elsewhere, by the code of what road users did."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import tyro

from waycode.cli.console import progress, say, say_json
from waycode.cli.data import Flag, UsageError

if TYPE_CHECKING:
    from waycode.planner import ManoeuvreIndex, RecordedManoeuvre


@dataclass(frozen=True, kw_only=True)
class Find:
    """Find road users that did the same: whose code is near that of one of them, or begins with given tokens.

    Codes are made by the encoder for all tracks to predict. An index that was saved is searched in no time.
    """

    data: tyro.conf.Positional[str]
    """A dataset's folder, the word `sample` for the bundled scenes, or an index (.parquet) that was saved."""
    like: str | None = None
    """SCENE_ID:AGENT, a road user of the data: the nearest codes are listed, its own first."""
    prefix: str | None = None
    """Tokens, such as 3,5: all codes that begin with them are listed."""
    count: int = 10
    """How many to list."""
    model: str = "sumo-small"
    """Name of a bundled model, or folder of a model or of a run; not needed for an index."""
    levels: int = 2
    """Levels per dimension of a token."""
    threads: int = 1
    """Threads to compute with; small models are fastest with one."""
    save: Path | None = None
    """Write the index to this file (.parquet)."""
    json: Flag = False
    """Print what was found as JSON."""

    def run(self) -> int:
        from waycode.cli.planning_tables import entries_table

        if (self.like is None) == (self.prefix is None):
            raise UsageError("expected one of --like SCENE_ID:AGENT and --prefix 3,5")
        if self.count < 1:
            raise UsageError(f"--count is {self.count}, expected at least 1")
        index = self._index()
        if self.save is not None:
            index.save(self.save)
        found = self._found(index)
        if self.json:
            entries = [asdict(entry) for entry in found[: self.count]]
            say_json({"num_indexed": len(index), "num_found": len(found), "found": entries})
        else:
            say(entries_table(found[: self.count], num_found=len(found), num_indexed=len(index)))
        return 0

    def _index(self) -> "ManoeuvreIndex":
        from waycode.cli.planning import open_dataset, open_planner
        from waycode.planner import ManoeuvreIndex, build_index

        if Path(self.data).is_file():
            return ManoeuvreIndex.load(self.data)
        dataset, planner = open_dataset(self.data), open_planner(self.model, threads=self.threads)
        with progress("encoding", len(dataset)) as advance:
            return build_index(dataset, planner, levels=self.levels, on_scenes=advance)

    def _found(self, index: "ManoeuvreIndex") -> "list[RecordedManoeuvre]":
        if self.prefix is not None:
            return index.find(prefix=tokens_of(self.prefix))
        scene_id, _, agent_id = (self.like or "").rpartition(":")
        if not scene_id or not agent_id:
            raise UsageError(f"--like is {self.like!r}, expected SCENE_ID:AGENT")
        return index.nearest(index.latents[index.row_of(scene_id, agent_id)], self.count)


def tokens_of(text: str) -> list[int]:
    """Token ids from text such as 3,5."""
    try:
        return [int(part) for part in text.split(",")]
    except ValueError as error:
        raise UsageError(f"--prefix is {text!r}, expected whole numbers such as 3,5") from error
