"""How many threads to use, and the pool that runs them.

Compiled kernels release the global interpreter lock, so plain Python threads run them side by side. The pool is made when it is
first needed and made again in a forked child, where the parent's threads do not exist.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from numbers import Integral
from queue import SimpleQueue
from typing import Any, TypeVar

import numpy as np

T = TypeVar("T")

_FACTORISED = 1000  # columns from which on a factorisation takes so long (10 ms) that several threads of BLAS pay


def available_cores() -> int:
    """Return the number of processors that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def effective_n_threads(n_jobs: int | None = None) -> int:
    """Return the number of threads that ``n_jobs`` stands for.

    Parameters
    ----------
    n_jobs : int or None
        None: as many as the processor affinity, ``OMP_NUM_THREADS`` and the limits set through threadpoolctl all allow, which is
        one inside a worker of joblib. A positive number: exactly so many. -1: all processors; -2: all but one; and so on.

    Returns
    -------
    int
        At least 1.
    """
    if n_jobs is None:
        return max(1, min(available_cores(), *_limits()))
    if not isinstance(n_jobs, Integral) or n_jobs == 0:
        raise ValueError(f"n_jobs must be None or an integer other than 0, got {n_jobs!r}")
    return int(n_jobs) if n_jobs > 0 else max(1, available_cores() + 1 + int(n_jobs))


def _limits() -> list[int]:
    """Return the limits that the environment and threadpoolctl set."""
    limits = [available_cores()]
    first = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    if first.isdigit():
        limits.append(int(first))
    limits += [library.num_threads for library in _libraries() if library.num_threads]
    return limits


@functools.cache
def _libraries() -> Sequence[Any]:
    """Return the thread pools of the numerical libraries loaded, found once: asking each for its limit is then cheap."""
    try:
        from threadpoolctl import ThreadpoolController
    except ImportError:
        return ()
    return tuple(ThreadpoolController().lib_controllers)


class _BlasThreads:
    """The threads of the linear algebra libraries: one while anybody is inside, but for long products as many as before."""

    def __init__(self) -> None:
        self.lock, self.depth, self.long = threading.Lock(), 0, 0
        self.before: list[tuple[Any, int]] = []

    def enter(self, inside: int, long: int) -> None:
        """Count who is inside, and who of them has a long product, up or down; set the threads accordingly."""
        with self.lock:
            if self.depth == 0 < inside:
                libraries = [library for library in _libraries() if library.user_api == "blas"]
                self.before = [(library, library.num_threads) for library in libraries if library.num_threads != 1]
            self.depth, self.long = self.depth + inside, self.long + long
            for library, number in self.before:
                library.set_num_threads(1 if self.depth and not self.long else number)
            if self.depth == 0:
                self.before = []


_blas = _BlasThreads()


@contextmanager
def blas_threads(long_products: bool) -> Iterator[None]:
    """Be inside of work whose products are long enough for several threads, or not.

    After a product the other threads of a library wait for the next one, busily, and take the processors from those that do
    something: where there are many short products, one thread is up to twice as fast as two.
    """
    blas, counts = _blas, (0, 1) if long_products else (1, 0)
    blas.enter(*counts)
    try:
        yield
    finally:
        blas.enter(-counts[0], -counts[1])


def factorisation_threads(n: int) -> AbstractContextManager[None]:
    """Be inside of a factorisation of a matrix with so many columns."""
    return blas_threads(True) if n >= _FACTORISED else nullcontext()


class _Task:
    """One part of the work, done by the first thread that claims it."""

    __slots__ = ("_claim", "_done", "_part", "_work", "error", "result")

    def __init__(self, work: Callable[..., Any], part: tuple[Any, ...]) -> None:
        self._work, self._part = work, part
        self._claim, self._done = threading.Lock(), threading.Lock()
        self._done.acquire()
        self.result: Any = None
        self.error: BaseException | None = None

    def run(self) -> None:
        """Do the work, unless another thread has claimed it."""
        if not self._claim.acquire(blocking=False):
            return
        try:
            self.result = self._work(*self._part)
        except BaseException as error:  # handed to the caller
            self.error = error
        finally:
            self._done.release()

    def finish(self) -> None:
        """Do the work if no thread has begun it, and wait for its end."""
        self.run()
        self._done.acquire()


class Ahead:
    """Work that another thread begins while this one goes on, if several may be used; else it is done when it is asked for."""

    def __init__(self, work: Callable[[], Any], n_threads: int) -> None:
        self._task = _Task(work, ())
        if n_threads > 1:
            with suppress(RuntimeError):  # as in `run_parts`
                _pool.submit([self._task])

    def result(self) -> Any:
        """Return what the work returns; to be asked for once."""
        self._task.finish()
        if self._task.error is not None:
            raise self._task.error
        return self._task.result


class _Pool:
    """The process's worker threads; the calling thread is one more.

    A plain queue and plain locks: handing over a part takes about half the time that an executor and its futures need, and a
    block of samples is only a few milliseconds of work.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.tasks: SimpleQueue[_Task] = SimpleQueue()
        self.size = 0

    def submit(self, tasks: Sequence[_Task]) -> None:
        """Hand tasks to the workers, of which there will be at least as many."""
        with self.lock:
            while self.size < len(tasks):
                threading.Thread(target=self._serve, name=f"diht_{self.size}", daemon=True).start()
                self.size += 1
        for task in tasks:
            self.tasks.put(task)

    def _serve(self) -> None:
        while True:
            self.tasks.get().run()


_pool = _Pool()


def _forget_pool() -> None:
    """Start afresh in a forked child: it inherits the queue but none of its threads, and perhaps locks that are held."""
    global _pool, _blas
    _pool, _blas = _Pool(), _BlasThreads()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_pool)


def run_parts(work: Callable[..., T], parts: Sequence[tuple[Any, ...]]) -> list[T]:
    """Call ``work(*part)`` for every part, the first one in this thread, the others in the pool.

    Returns the results in the order of the parts. A single part costs no more than the call. Products in a part are made by
    ``np.dot``: ``@`` keeps the interpreter's lock where its result has fewer than 500 numbers, however many it adds up.
    """
    if len(parts) == 1:
        return [work(*parts[0])]
    tasks = [_Task(work, part) for part in parts[1:]]
    with suppress(RuntimeError):  # no thread can be started where the interpreter is ending: all is done here
        _pool.submit(tasks)
    own = _Task(work, parts[0])
    own.run()
    for task in tasks:
        task.finish()
    for task in [own, *tasks]:
        if task.error is not None:
            raise task.error
    return [task.result for task in [own, *tasks]]


# Samples that are looked at together: vectors that stay in the cache, and work that is worth a wake-up.
_TOGETHER = 1 << 15


def in_slices(work: Callable[[slice], T], n: int, n_threads: int, size: int = _TOGETHER) -> list[T]:
    """Return what a function returns for the slices of n samples, in their order: the same ones whatever the number of threads."""
    if n <= size:
        return [work(slice(0, n))]
    slices = [slice(start, min(start + size, n)) for start in range(0, n, size)]
    each = -(-len(slices) // n_threads)
    errors = np.geterr()  # of this thread alone

    def group(some: list[slice]) -> list[T]:
        with np.errstate(**errors):
            return list(map(work, some))

    done = run_parts(group, [(slices[start : start + each],) for start in range(0, len(slices), each)])
    return [result for results in done for result in results]
