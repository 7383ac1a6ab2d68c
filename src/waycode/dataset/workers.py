"""Runs tasks in worker processes that end when their parent does."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Generator, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeVar

from waycode.scene.errors import DatasetError
from waycode.scene.types import Scene

Task = TypeVar("Task")
Result = TypeVar("Result")
BLAS_THREADS = "OPENBLAS_NUM_THREADS"


@dataclass(frozen=True)
class ShardContents:
    """What a task made: scenes, and how many it turned down for which reason."""

    scenes: list[Scene]
    rejected: Mapping[str, int] = field(default_factory=dict)


def run_tasks(
    tasks: Mapping[str, Task], make: Callable[[Task], Result], *, workers: int
) -> Generator[tuple[str, Result], None, None]:
    """Gives each task's result as soon as it is there, made in this process (one worker) or in others.

    Only a few tasks are handed out ahead, so that results never pile up in memory. When a task fails, those already
    begun are still finished and given before the error is raised: their work is not lost.
    """
    if workers <= 1:
        for name, task in tasks.items():
            yield name, make(task)
        return
    context = multiprocessing.get_context("spawn")  # fork is not safe beside threads, and SUMO has state of its own
    pool_of = ProcessPoolExecutor(min(workers, max(1, len(tasks))), context, initializer=_become_worker)
    with _numpy_with_one_thread(), pool_of as pool:
        try:
            yield from _results(tasks, make, pool, num_ahead=workers + 1)
        except BrokenProcessPool as error:
            raise DatasetError(
                "a worker process was killed (did the machine run out of memory?): "
                "what is finished is kept, so run the same command again, perhaps with fewer workers"
            ) from error
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


@contextmanager
def _numpy_with_one_thread() -> Iterator[None]:
    """Processes that are begun meanwhile compute with one thread: more would wait for those of the other processes.

    numpy reads this when it is first imported. What the user has set stays.
    """
    is_set = BLAS_THREADS in os.environ
    os.environ.setdefault(BLAS_THREADS, "1")
    try:
        yield
    finally:
        if not is_set:
            os.environ.pop(BLAS_THREADS, None)


def _results(
    tasks: Mapping[str, Task], make: Callable[[Task], Result], pool: ProcessPoolExecutor, *, num_ahead: int
) -> Generator[tuple[str, Result], None, None]:
    waiting = iter(tasks.items())
    running: dict[Future[Result], str] = {}
    failure: BaseException | None = None
    while True:
        if failure is None:
            running |= {pool.submit(make, task): name for name, task in islice(waiting, num_ahead - len(running))}
        if not running:
            break
        done, _ = wait(running, return_when=FIRST_COMPLETED)
        for future in done:
            name, error = running.pop(future), future.exception()
            if error is None:
                yield name, future.result()
            elif failure is None:
                failure = error
        if failure is not None:
            running = {future: name for future, name in running.items() if not future.cancel()}
    if failure is not None:
        raise failure


def _become_worker() -> None:
    """Lets this process end with its parent, however that ends.

    A parent that is killed cannot tell its workers to stop, and they would wait for work for ever: a thread watches it.
    Ctrl-C ends a worker at once and without a word; its parent says what there is to say.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
