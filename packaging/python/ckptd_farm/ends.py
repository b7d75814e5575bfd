"""Hears of tasks as they end, from one process of `ckptd farm wait`."""

from __future__ import annotations

import json
import logging
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
        self._closed = False
        self._said = ""

    def want(self, task: int) -> None:
        """Asks for a task."""
        with self._lock:
            self._wanted.add(task)
            if self._process is None:
                self._begin()
            else:
                self._tell(self._process, [task])

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
        self._tell(process, sorted(self._wanted))
        # The interpreter does not wait for them when it ends: the tasks run on.
        threading.Thread(target=self._warn, args=(process.stderr,), daemon=True).start()
        threading.Thread(target=self._read, args=(process,), daemon=True).start()

    @staticmethod
    def _tell(process: subprocess.Popen[str], tasks: list[int]) -> None:
        assert process.stdin is not None
        try:
            process.stdin.write("".join(f"{task}\n" for task in tasks))
            process.stdin.flush()
        except OSError:
            # It has ended: the next one is told.
            pass

    def _warn(self, stderr: IO[str]) -> None:
        for line in stderr:
            self._said = line.strip().removeprefix("ckptd: ")
            log.warning("%s", self._said)

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for text in process.stdout:
            line = json.loads(text)
            with self._lock:
                is_wanted = line["task"] in self._wanted
                self._wanted.discard(line["task"])
            if is_wanted:
                self._ended(line)
        status = process.wait()
        if process.stdin is not None:
            try:
                process.stdin.close()
            except OSError:
                pass
        with self._lock:
            self._process = None
            if self._closed or not self._wanted:
                return
            if status < 0:
                # Somebody has killed it, not the farm.
                self._begin()
                return
            left, self._wanted = self._wanted, set()
        self._failed(left, FarmError(self._said or f"'ckptd farm wait' has ended with status {status}"))
