"""What a target of fuzzing is. A run ends well, or with an error of ours that names the file."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path

from fuzz_inputs import Random
from waycode.scene import WaycodeError


@dataclass(frozen=True)
class Target(ABC):
    """Something that reads what others wrote.

    `prepare` is called once; `run` reads one damaged input, which is a function of the random generator alone.
    """

    folder: Path  # for the target's files

    @property
    def name(self) -> str:
        return type(self).__name__.lower()

    @abstractmethod
    def prepare(self) -> None:
        """Writes the undamaged files."""

    @abstractmethod
    def run(self, random: Random) -> bool:
        """Damages and reads; whether the input was accepted. Raises `Finding` for an answer that is not as promised."""


class Finding(Exception):  # noqa: N818 (what fuzzing looks for)
    """An answer that breaks a promise."""


def refused(path: Path, error: WaycodeError) -> bool:
    """False; an error of a reader must be one sentence that names the file."""
    text = str(error)
    if str(path) not in text:
        raise Finding(f"the file is not named in: {text[:300]}") from error
    if len(text) > 2000:
        raise Finding(f"the message has {len(text)} characters: {text[:300]}") from error
    return False
