"""The process pool: runs tasks in worker processes that end when their parent does."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from itertools import islice
from typing import TypeVar

from waycode.dataset.files import DatasetError

Task = TypeVar("Task")
Result = TypeVar("Result")
BLAS_THREADS = "OPENBLAS_NUM_THREADS"


def run_tasks(
    tasks: Mapping[str, Task], make: Callable[[Task], Result], *, workers: int
) -> Generator[tuple[str, Result], None, None]:
    """Yields (name, result) of each task as soon as it is finished.

    Few tasks are submitted ahead, so that results do not pile up in memory. When a task fails, those that are running
    are finished and yielded before the error is raised.

    Args:
        tasks: by name.
        make: module-level function from a task to its result.
        workers: number of processes; 1 runs the tasks in this process.
    """
    if workers <= 1:
        for name, task in tasks.items():
            yield name, make(task)
        return
    context = multiprocessing.get_context("spawn")  # fork is unsafe with threads, and SUMO has global state
    executor = ProcessPoolExecutor(min(workers, max(1, len(tasks))), context, initializer=_become_worker)
    with numpy_with_one_thread(), executor as pool:
        try:
            yield from _results(tasks, make, pool, num_ahead=workers + 1)
        except BrokenProcessPool as error:
            raise DatasetError(
                "a worker process was killed (did the machine run out of memory?): "
                "what is finished is kept, so run the same command again, perhaps with fewer workers"
            ) from error
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def map_tasks(make: Callable[[Task], Result], tasks: Sequence[Task], *, workers: int) -> Iterator[Result]:
    """Results in the order of the tasks; otherwise as `run_tasks`."""
    early: dict[str, Result] = {}
    place = 0
    for name, result in run_tasks({str(index): task for index, task in enumerate(tasks)}, make, workers=workers):
        early[name] = result
        while str(place) in early:
            yield early.pop(str(place))
            place += 1


@contextmanager
def numpy_with_one_thread() -> Iterator[None]:
    """Gives processes that are started within it one BLAS thread each, so that they do not compete for cores.

    numpy reads the variable on import. A value set by the user is kept.
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
    """Ends this process when its parent ends.

    A killed parent cannot stop its workers, so a thread in each worker waits for the end of the parent. Ctrl-C ends a
    worker at once, without a message; the parent reports it.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
