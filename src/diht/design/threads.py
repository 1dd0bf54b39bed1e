"""How many threads to use, and the pool that runs them.

Compiled kernels release the global interpreter lock, so plain Python threads run them side by side. The pool is made when it is
first needed and made again in a forked child, where the parent's threads do not exist.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from numbers import Integral
from typing import Any, TypeVar

T = TypeVar("T")


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


class _Pool:
    """The process's worker threads; the calling thread is one more."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.executor: ThreadPoolExecutor | None = None
        self.size = 0

    def get(self, size: int) -> ThreadPoolExecutor:
        """Return an executor of at least ``size`` threads."""
        with self.lock:
            if self.executor is None or self.size < size:
                # An executor that is outgrown finishes what it has been given; its threads then end by themselves.
                if self.executor is not None:
                    self.executor.shutdown(wait=False)
                self.size = max(size, available_cores() - 1)
                self.executor = ThreadPoolExecutor(self.size, thread_name_prefix="diht")
            return self.executor


_pool = _Pool()


def _forget_pool() -> None:
    """Start afresh in a forked child: it inherits the executor but none of its threads, and perhaps a lock that is held."""
    global _pool
    _pool = _Pool()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_pool)


def run_parts(work: Callable[..., T], parts: Sequence[tuple[Any, ...]]) -> list[T]:
    """Call ``work(*part)`` for every part, the first one in this thread, the others in the pool.

    Returns the results in the order of the parts. A single part costs no more than the call.
    """
    if len(parts) == 1:
        return [work(*parts[0])]
    futures: list[Future[T]] = []
    try:
        executor = _pool.get(len(parts) - 1)
        futures.extend(executor.submit(work, *part) for part in parts[1:])
    except RuntimeError:  # the executor was outgrown or the interpreter is ending: what was not submitted is done here
        pass
    results = [work(*parts[0])]
    results += [future.result() for future in futures]
    results += [work(*part) for part in parts[1 + len(futures) :]]
    return results
