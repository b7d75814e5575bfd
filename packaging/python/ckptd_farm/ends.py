"""Hears of tasks as they end, from one process of `ckptd farm wait`."""

from __future__ import annotations

import contextlib
import json
import logging
import queue
import subprocess
import threading
from typing import IO, Any, Callable, Optional

from .command import Command
from .errors import FarmError

log = logging.getLogger("ckptd_farm")


class Ends:
    """Tells of each task that it was asked for once that has ended.

    Args:
        ended: is called with the line of the task, as results.jsonl has it.
        failed: is called with all that nothing will be heard of, and why.
    """

    def __init__(
        self,
        command: Command,
        farm: str,
        ended: Callable[[dict[str, Any]], None],
        failed: Callable[[set[int], FarmError], None],
    ) -> None:
        # It begins a farm again that was killed, and waits for the start of one that was stopped.
        self._words = command.words("wait", "--farm", farm, "--each", "--stdin", "--resume")
        self._ended = ended
        self._failed = failed
        self._lock = threading.Lock()
        self._wanted: set[int] = set()
        self._process: Optional[subprocess.Popen[str]] = None
        #: What the process is to be told; None: no more.
        self._to_tell: queue.SimpleQueue[Optional[list[int]]] = queue.SimpleQueue()
        self._closed = False
        self._said = ""

    def want(self, task: int) -> None:
        """Asks for a task.

        Raises:
            FarmError: where nothing can be heard of it.
        """
        with self._lock:
            self._wanted.add(task)
            if self._process is not None:
                self._to_tell.put([task])
                return
            try:
                self._begin()
            except OSError as error:
                self._wanted.discard(task)
                raise _not_started(error) from error

    def forget(self, task: int) -> None:
        """Asks for it no more."""
        with self._lock:
            self._wanted.discard(task)

    def close(self) -> None:
        """Ends that. Tasks that have not ended are not heard of."""
        with self._lock:
            self._closed = True
            process = self._process
        if process is not None:
            process.terminate()

    def _begin(self) -> None:
        """Starts the process. The caller has the lock."""
        # A key of the terminal is for this process alone.
        process = subprocess.Popen(
            self._words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._process = process
        self._to_tell = queue.SimpleQueue()
        self._to_tell.put(sorted(self._wanted))
        # One for each stream, so that neither side waits for the other. The interpreter does not wait for them when it
        # ends: the tasks run on.
        for target, *args in (
            (self._warn, process.stderr),
            (self._tell, process.stdin, self._to_tell),
            (self._read, process, self._to_tell),
        ):
            threading.Thread(target=target, args=args, daemon=True).start()

    @staticmethod
    def _tell(stdin: IO[str], to_tell: queue.SimpleQueue[Optional[list[int]]]) -> None:
        # It may have ended: the next one is told then.
        with contextlib.suppress(OSError), stdin:
            while (tasks := to_tell.get()) is not None:
                stdin.write("".join(f"{task}\n" for task in tasks))
                stdin.flush()

    def _warn(self, stderr: IO[str]) -> None:
        with stderr:
            for line in stderr:
                self._said = line.strip().removeprefix("ckptd: ")
                log.warning("%s", self._said)

    def _read(self, process: subprocess.Popen[str], to_tell: queue.SimpleQueue[Optional[list[int]]]) -> None:
        assert process.stdout is not None
        with process.stdout:
            for text in process.stdout:
                # What has no end was torn by a kill: the next process tells it again.
                if text.endswith("\n"):
                    self._take(json.loads(text))
        status = process.wait()
        to_tell.put(None)
        with self._lock:
            self._process = None
            if self._closed or not self._wanted:
                return
            why = FarmError(self._said or f"'ckptd farm wait' has ended with status {status}")
            if status < 0:
                # Somebody has killed it, not the farm.
                try:
                    self._begin()
                    return
                except OSError as error:
                    why = _not_started(error)
            left, self._wanted = self._wanted, set()
        self._failed(left, why)

    def _take(self, line: dict[str, Any]) -> None:
        with self._lock:
            is_wanted = line["task"] in self._wanted
            self._wanted.discard(line["task"])
        if is_wanted:
            try:
                self._ended(line)
            except Exception:
                # Others are to be heard of all the same.
                log.exception("task %s has ended, which could not be told", line["task"])


def _not_started(error: OSError) -> FarmError:
    return FarmError(f"start 'ckptd farm wait': {error}")
