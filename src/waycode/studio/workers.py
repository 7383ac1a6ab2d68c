"""Processes that compute for the studio.

The event loop shares its process with nothing that computes: threads that plan would hold the lock of the interpreter,
and the loop would wait for it.
"""

import asyncio
import atexit
import gc
import multiprocessing
import pickle
import signal
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from typing import Any

from pydantic import BaseModel

from waycode.dataset.workers import numpy_with_one_thread
from waycode.scene import WaycodeError
from waycode.studio.errors import ProblemKind, RequestError, kind_of

_PRELOADED = ["waycode.studio.planning", "waycode.studio.drives", "waycode.studio.library"]
_END_S = 5.0  # how long a process may take to end before it is killed


class WorkerProcess:
    """A process that owns a desk and calls its methods, one after the other.

    It starts with the first call, and again if it was killed. Calls may come from any event loop.
    """

    def __init__(self, make_desk: Callable[[], object], *, name: str):
        """Prepares a process.

        Args:
            make_desk: called in the process; can be pickled, as can the arguments of the desk's methods.
            name: of the process, for lists of processes.
        """
        self._make_desk, self._name = make_desk, name
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"studio-{name}")  # waits for the replies
        self._process: multiprocessing.process.BaseProcess | None = None
        self._connection: Connection | None = None
        self._is_closed = False
        self.num_waiting = 0  # calls that are not answered yet

    @property
    def pid(self) -> int | None:
        """Of the process, if it runs."""
        return None if self._process is None else self._process.pid

    async def call(self, method: str, *arguments: Any) -> bytes:
        """The reply of a method of the desk, as JSON if it is a message; raises `RequestError` with the reason."""
        if self._is_closed:
            raise RequestError("failed", "the studio closes")
        self.num_waiting += 1
        try:
            loop = asyncio.get_running_loop()
            problem, reply = await loop.run_in_executor(self._thread, self._exchange, method, arguments)
        finally:
            self.num_waiting -= 1
        if problem is not None:
            raise RequestError(problem, reply.decode())
        return reply

    def start(self) -> None:
        """Starts the process now, so that the first call does not wait for it."""
        self._thread.submit(self._connected)

    def close(self) -> None:
        """Ends the process, also in the middle of a call."""
        self._is_closed = True
        self._end()
        self._thread.shutdown(wait=True, cancel_futures=True)
        self._end()  # it may have been starting
        atexit.unregister(self._end)

    def _end(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.join(_END_S)
            if self._process.is_alive():
                self._process.kill()

    def _exchange(self, method: str, arguments: tuple[Any, ...]) -> tuple[ProblemKind | None, bytes]:
        try:
            connection = self._connected()
            connection.send((method, arguments))
            problem, reply = pickle.loads(connection.recv_bytes())  # noqa: S301  # from our own process
            return problem, reply
        except (EOFError, OSError):
            self._connection = None
            return "failed", b"the process that computes was ended (out of memory?): try again, it starts anew"

    def _connected(self) -> Connection:
        if self._is_closed:
            raise EOFError
        if self._connection is None:
            context = _context()
            self._connection, theirs = context.Pipe()
            # Not a daemon: SUMO's traffic has a process of its own. It ends when our end of the pipe is closed.
            self._process = context.Process(target=_serve, args=(theirs, self._make_desk), name=self._name)
            with numpy_with_one_thread():
                self._process.start()
            atexit.register(
                self._end
            )  # of a studio that nobody closes; else Python would wait for the process for ever
            theirs.close()
        return self._connection


def _context() -> Any:
    """Processes are copies of one that has imported everything, which saves seconds and memory; else fresh ones."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    return context


def _serve(connection: Connection, make_desk: Callable[[], object]) -> None:
    """The life of a process: answers calls until the other end of the pipe is closed."""
    import torch

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the studio, which ends its processes
    torch.set_num_threads(1)  # there are as many processes as plans at a time; more threads would wait for each other
    desk = make_desk()
    gc.collect()
    gc.freeze()  # modules and weights stay: searching them for garbage would take tenths of a second
    while True:
        try:
            method, arguments = connection.recv()
            connection.send_bytes(pickle.dumps(_answer(desk, method, arguments)))
        except (EOFError, OSError):
            return


def _answer(desk: object, method: str, arguments: tuple[Any, ...]) -> tuple[ProblemKind | None, bytes]:
    try:
        reply = getattr(desk, method)(*arguments)
    except WaycodeError as error:
        return kind_of(error), str(error).encode()
    except Exception as error:
        traceback.print_exc()  # a fault of ours: whoever runs the studio sees where
        return "failed", f"the studio failed with {type(error).__name__}: {error}".encode()
    if isinstance(reply, BaseModel):
        return None, reply.model_dump_json().encode()
    return None, reply.encode() if isinstance(reply, str) else reply
