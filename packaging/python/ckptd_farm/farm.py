"""A farm as an executor."""

from __future__ import annotations

import functools
import itertools
import os
import pickle
import sys
import threading
import time
from collections import defaultdict, deque
from concurrent.futures import Executor, wait
from pathlib import Path
from typing import Any, Callable, Iterable, Iterator, Optional, Sequence, TypeVar, Union

from . import keys
from .calls import RETURNED, Call, Calls
from .command import Command
from .ends import Ends, log
from .errors import FarmError, RemoteTraceback, TaskFailed
from .future import FarmFuture

T = TypeVar("T")

#: How much of a task's standard error stands in an exception, in bytes.
TAIL = 4000


class Farm(Executor):
    """Runs calls as tasks of `ckptd farm`, in a process each.

    A call is on the disk when `submit()` returns, and ends once, whatever is killed. What takes long goes on from its
    last checkpoint after a kill, a reboot, or `ckptd farm stop`.

    Args:
        name: the farm, which is made if it is not there. Without a name it is this object's own, and goes with it.
        jobs: how many calls run at a time [as many as there are processors].
        checkpoint: how old a call is at its first checkpoint, and how long it is from one to the next: seconds,
            `"auto"` or `"none"` [auto].
        timeout: how many seconds a call may take [no limit].
        retries: how often a call is tried again that has raised something or was killed [0].
        idle: after how many seconds without a call the farm ends by itself [60].
        resume: equal calls of earlier sessions are not run again: their results are handed out, or waited for.
        retry_failed: with `resume`, those are run again that had raised something or were killed.
        directory: where farms are kept [`CKPTD_DIR`, or ~/.local/state/ckptd].
        ckptd: the executable [`CKPTD`, that of this environment, or that in PATH].
    """

    def __init__(
        self,
        name: Optional[str] = None,
        *,
        jobs: Optional[int] = None,
        checkpoint: Union[float, str, None] = None,
        timeout: Optional[float] = None,
        retries: Optional[int] = None,
        idle: Optional[float] = None,
        resume: bool = False,
        retry_failed: bool = False,
        directory: Optional[str] = None,
        ckptd: Optional[str] = None,
    ) -> None:
        if resume and name is None:
            raise ValueError("resume needs the name of a farm")
        self._command = Command(ckptd, directory)
        self._is_temporary = name is None
        self.name = name or f"python-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}-{next(_COUNT)}"
        self.jobs = jobs or os.cpu_count() or 1
        #: Whether it is ended with this object: one that somebody else has begun is left to them.
        self._is_own = resume or not self._is_running()
        self._command.call("start", self.name, *_options(jobs=jobs, checkpoint=checkpoint, idle=idle))
        #: The folder of what the tasks write.
        self.results = Path(self._command.status(self.name)["results"])
        self._limits = _options(timeout=timeout, retries=retries)
        self._calls = Calls(self.results.parent / "python")
        self._retries_failed = retry_failed
        self._lock = threading.RLock()
        self._is_shut = False
        self._pending: dict[int, FarmFuture[Any]] = {}
        self._ends = Ends(self._command, self.name, self._deliver, self._lose)
        self._earlier: defaultdict[str, deque[tuple[Call, int]]] = defaultdict(deque)
        if resume:
            # What another session is about to submit looks like what was left of one.
            self._calls.be_alone()
            for call, task in self._calls.earlier():
                self._earlier[call.key].append((call, task))
        self._calls.join()

    def _is_running(self) -> bool:
        try:
            return bool(self._command.status(self.name)["state"] == "running")
        except FarmError:
            return False

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> FarmFuture[T]:
        """Has `fn(*args, **kwargs)` run as a task.

        Raises:
            FarmError: where the farm can't take it.
        """
        key, data = keys.key(fn, args, kwargs), keys.pickled(fn, args, kwargs)
        with self._lock:
            if self._is_shut:
                raise RuntimeError("cannot schedule new futures after shutdown")
            call, task = self._take_earlier(key) or self._submit(fn, key, data)
            future: FarmFuture[T] = FarmFuture(self, call, task)
            self._pending[task] = future
            try:
                self._ends.want(task)
                return future
            except FarmError as raised:
                del self._pending[task]
                error = raised
        future.set_exception(error)
        return future

    def _submit(self, fn: Callable[..., Any], key: str, data: bytes) -> tuple[Call, int]:
        call = self._calls.create(key, data)
        shown = getattr(fn, "__qualname__", type(fn).__qualname__)
        program = [sys.executable, "-m", "ckptd_farm.call", str(call.base), shown]
        try:
            task = self._command.submit(self.name, self._limits, program)
        except FarmError:
            call.withdraw()
            raise
        call.note_task(task)
        return call, task

    def _take_earlier(self, key: str) -> Optional[tuple[Call, int]]:
        """An equal call of an earlier session, each once."""
        if not self._earlier.get(key):
            return None
        call, task = self._earlier[key].popleft()
        if self._retries_failed and not call.has_returned():
            try:
                self._command.call("retry", "--farm", self.name, str(task))
            except FarmError as error:
                # It has not ended, or there is no room for another try.
                log.info("%s", error)
            else:
                call.forget_result()
        return call, task

    def map(
        self,
        fn: Callable[..., T],
        *iterables: Iterable[Any],
        timeout: Optional[float] = None,
        chunksize: int = 1,
        **options: Any,
    ) -> Iterator[T]:
        """As `concurrent.futures.Executor.map`; `chunksize` calls are one task."""
        if chunksize < 1:
            raise ValueError("chunksize must be 1 or more")
        if chunksize == 1:
            return super().map(fn, *iterables, timeout=timeout, **options)
        run = functools.partial(_run_chunk, fn)
        chunks = super().map(run, _chunks(zip(*iterables), chunksize), timeout=timeout, **options)
        return itertools.chain.from_iterable(chunks)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Takes no more calls.

        With `wait`, returns once all have ended, and ends the farm then if this object has begun it. Without, calls
        run on, also after this process; `resume` gets their results.
        """
        with self._lock:
            self._is_shut = True
            pending = list(self._pending.values())
        if cancel_futures:
            self._withdraw(pending)
        if wait:
            self._end(pending)

    def _end(self, pending: Sequence[FarmFuture[Any]]) -> None:
        wait(pending)
        self._ends.close()
        self._calls.close()
        if not self._is_own:
            return
        self._is_own = False
        try:
            status = self._command.status(self.name)
            if not self._is_temporary and (status["running"] or status["queued"]):
                # Somebody else's: they end it, or it ends by itself once it has nothing to do.
                return
            self._command.call("stop", self.name)
            if self._is_temporary:
                self._command.call("rm", self.name)
        except FarmError as error:
            log.warning("%s", error)

    def _withdraw(self, futures: Sequence[FarmFuture[Any]]) -> bool:
        """Cancels those that have not begun; whether there were any."""
        with self._lock:
            waiting = (future for future in futures if self._pending.get(future.task) is future)
            withdrawn = [future for future in waiting if future._call.withdraw()]
            for future in withdrawn:
                self._pending.pop(future.task, None)
                self._ends.forget(future.task)
        cancelled = [future for future in withdrawn if future._notify_cancel()]
        if withdrawn and self._cancel(withdrawn) and self._is_temporary:
            for future in withdrawn:
                future._call.remove()
        return bool(cancelled)

    def _kill(self, future: FarmFuture[Any]) -> bool:
        return not future.done() and self._cancel([future])

    def _cancel(self, futures: Sequence[FarmFuture[Any]]) -> bool:
        tasks = [str(future.task) for future in futures]
        are_cancelled = True
        # No more words than a command can have.
        for some in _chunks(tasks, 1000):
            try:
                self._command.call("cancel", "--farm", self.name, *some)
            except FarmError:
                # It has ended meanwhile: one that was withdrawn finds nothing to do.
                are_cancelled = False
        return are_cancelled

    def _deliver(self, line: dict[str, Any]) -> None:
        """Is called when a task has ended."""
        with self._lock:
            future = self._pending.pop(line["task"], None)
        if future is None:
            return
        try:
            result = future._call.result()
            if self._is_temporary and line["outcome"] != "stuck":
                # No other session asks for it.
                future._call.remove()
            if result is None:
                ended = (line["task"], line["outcome"], line["status"], line["signal"])
                raise TaskFailed(*ended, _tail(future.stderr), line.get("reason"))
            kind, data = result
            if kind == RETURNED:
                future.set_result(pickle.loads(data))
                return
            error, text = pickle.loads(data)
            error.__cause__ = RemoteTraceback(text)
        except BaseException as raised:  # Also what can't be read here: the caller is to hear of it.
            error = raised
        future.set_exception(error)

    def _lose(self, tasks: set[int], error: FarmError) -> None:
        """Is called when nothing will be heard of these any more."""
        with self._lock:
            lost = [self._pending.pop(task) for task in tasks if task in self._pending]
        for future in lost:
            future.set_exception(error)


_COUNT = itertools.count(1)


def _options(**values: Union[float, str, None]) -> list[str]:
    """Options of a command."""
    given = [(name, value) for name, value in values.items() if value is not None]
    return [word for name, value in given for word in (f"--{name}", str(value))]


def _chunks(items: Iterable[Any], size: int) -> Iterator[list[Any]]:
    iterator = iter(items)
    while chunk := list(itertools.islice(iterator, size)):
        yield chunk


def _run_chunk(fn: Callable[..., T], chunk: list[tuple[Any, ...]]) -> list[T]:
    return [fn(*args) for args in chunk]


def _tail(path: Path) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - TAIL))
            return file.read().decode(errors="replace")
    except OSError:
        return ""
