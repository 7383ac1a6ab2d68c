"""SUMO in a process of its own: libsumo holds one simulation per process, and its crash must not be ours."""

import multiprocessing
import signal
import weakref
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

from waycode.scene import Scene
from waycode.simulation.errors import SimulationError
from waycode.simulation.sumo_shadow import Placement
from waycode.simulation.sumo_world import LiveWorld, Sighting, live_world

PATIENCE_S = 5.0  # for a worker that is to end


@dataclass(frozen=True)
class Failure:
    """Why a request could not be met, in one sentence."""

    sentence: str


def serve(connection: Connection) -> None:
    """Answers every request with a `Sighting` or a `Failure`, until the parent is done or gone.

    A `Scene` starts its world anew, a `Placement` makes a step in it.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's business; when it ends, the pipe closes
    world: LiveWorld | None = None
    with suppress(EOFError, OSError), ExitStack() as running:
        while True:
            request = connection.recv()
            try:
                if isinstance(request, Scene):
                    running.close()  # one simulation at a time
                    world = running.enter_context(live_world(request))
                elif world is not None:
                    world.step(request)
                answer = Failure("no scene was started") if world is None else world.sighting()
            except Exception as error:  # whatever SUMO raises is told to the parent
                answer = Failure(str(error))
            connection.send(answer)


class SumoProcess:
    """A worker, seen from its parent; it ends when this object does."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")  # a fork would copy threads and open files
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=serve, args=(theirs,), daemon=True, name="waycode-sumo")
        self._process.start()
        theirs.close()  # so that its end closes the pipe
        self._scene: Scene | None = None
        self._moves: tuple[Placement, ...] = ()
        self.close = weakref.finalize(self, _end, self._process, self._connection)

    @property
    def is_closed(self) -> bool:
        return not self.close.alive

    @property
    def pid(self) -> int | None:
        return self._process.pid

    def sighting(self, scene: Scene, moves: tuple[Placement, ...]) -> Sighting:
        """The world after the ego was put to these places, a step each, from the scene's current step on.

        The last call's world is at hand: one more step is cheap. For anything else it is replayed from its seed.
        """
        if moves and self._scene is scene and self._moves == moves[:-1]:
            answer = self._answer(moves[-1], scene)
        else:
            answer = self._answer(scene, scene)
            for move in moves:
                answer = self._answer(move, scene)
        self._scene, self._moves = scene, moves
        return answer

    def _answer(self, request: Scene | Placement, scene: Scene) -> Sighting:
        self._scene = None  # unknown until all is well again
        try:
            self._connection.send(request)
            answer = self._connection.recv()
        except (EOFError, OSError) as error:
            self._process.join(PATIENCE_S)
            code = self._process.exitcode
            self.close()
            raise SimulationError(
                f"the SUMO process of scene {scene.id!r} ended by itself (exit code {code}): simulate the scene again"
            ) from error
        if isinstance(answer, Failure):
            self.close()
            raise SimulationError(f"SUMO cannot simulate scene {scene.id!r}: {answer.sentence}")
        sighting: Sighting = answer
        return sighting


def _end(process: BaseProcess, connection: Connection) -> None:
    """Closes the pipe, which ends the worker and lets it tidy up; one that is stuck is killed."""
    connection.close()
    process.join(PATIENCE_S)
    if process.is_alive():
        process.kill()
        process.join()
