"""Calls and their results as files, in a folder of the farm that its owner alone can read.

Of a call there is, under its name:

- `NAME.call`: it waits. Whoever renames that first has it: the process of the task to `NAME.begun`, `cancel()` to
  `NAME.withdrawn`.
- `NAME.task`: the number of its task.
- `NAME.result`: how it has ended; then `NAME.begun` goes, unless it has raised something.
"""

from __future__ import annotations

import fcntl
import os
import uuid
from pathlib import Path
from typing import Iterator, Optional

from .errors import FarmError

#: The first byte of a result: what the call has returned, or what it has raised.
RETURNED = b"v"
RAISED = b"e"


class Call:
    """A call, by the path of its files without their endings."""

    def __init__(self, base: Path) -> None:
        self.base = base

    def _file(self, ending: str) -> Path:
        return self.base.with_name(f"{self.base.name}.{ending}")

    @property
    def key(self) -> str:
        """By what an equal call is known."""
        return self.base.name.partition("-")[0]

    def note_task(self, task: int) -> None:
        """Notes the number of its task."""
        _write(self._file("task"), str(task).encode())

    def task(self) -> Optional[int]:
        """The number of its task; None: it was perhaps never submitted."""
        try:
            return int(self._file("task").read_bytes())
        except FileNotFoundError:
            return None

    def begin(self) -> Optional[bytes]:
        """What is to be called; None: it was withdrawn, or has returned before, and only that was not recorded."""
        begun = self._file("begun")
        try:
            self._file("call").rename(begun)
        except FileNotFoundError:
            pass
        if self.has_returned():
            return None
        # What an earlier try has raised is no result of this one.
        self._file("result").unlink(missing_ok=True)
        try:
            return begun.read_bytes()
        except FileNotFoundError:
            return None

    def is_begun(self) -> bool:
        """Whether a process has taken it."""
        return self._file("begun").exists()

    def withdraw(self) -> bool:
        """Takes it back; False: it has begun, or was withdrawn."""
        try:
            self._file("call").rename(self._file("withdrawn"))
        except FileNotFoundError:
            return False
        return True

    def end(self, kind: bytes, data: bytes) -> None:
        """Keeps its result."""
        _write(self._file("result"), kind + data)
        if kind == RETURNED:
            self._file("begun").unlink(missing_ok=True)

    def remove(self) -> None:
        """Removes all files of it: nobody asks for it any more, and its task has ended."""
        for ending in ("task", "call", "begun", "withdrawn", "result"):
            self._file(ending).unlink(missing_ok=True)

    def forget_result(self) -> None:
        """It is run again: what it has raised before is no result."""
        self._file("result").unlink(missing_ok=True)

    def has_returned(self) -> bool:
        """Whether it has ended without an exception."""
        try:
            with self._file("result").open("rb") as file:
                return file.read(1) == RETURNED
        except FileNotFoundError:
            return False

    def result(self) -> Optional[tuple[bytes, bytes]]:
        """The kind of its result, and the rest; None: there is none."""
        try:
            data = self._file("result").read_bytes()
        except FileNotFoundError:
            return None
        return data[:1], data[1:]


class Calls:
    """All calls of a farm."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(mode=0o700, exist_ok=True)
        # Every session has a part in it until it ends; with a kill, too.
        self._sessions = (folder / "sessions").open("a")

    def join(self) -> None:
        """Is one of the sessions."""
        fcntl.flock(self._sessions, fcntl.LOCK_SH)

    def be_alone(self) -> None:
        """Is the only session, until `join()`.

        Raises:
            FarmError: where there is another one.
        """
        try:
            fcntl.flock(self._sessions, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FarmError(
                f"resume {self._folder.parent.name}: another session uses it, which has to end first"
            ) from None

    def close(self) -> None:
        """Is no session any more."""
        self._sessions.close()

    def create(self, key: str, data: bytes) -> Call:
        """A new one, on the disk."""
        call = Call(self._folder / f"{key}-{uuid.uuid4().hex[:12]}")
        _write(call._file("call"), data)
        return call

    def earlier(self) -> Iterator[tuple[Call, int]]:
        """Those of earlier sessions that were not withdrawn, with their tasks, in the order of these."""
        bases = {path.with_suffix("") for path in self._folder.iterdir() if path.suffix in (".call", ".task")}
        found = []
        for call in map(Call, bases):
            task = call.task()
            # Whoever was killed before it had the number may have submitted the task: then that finds nothing to do.
            if task is None and not call.withdraw():
                task = call.task()
            if task is not None and not call._file("withdrawn").exists():
                found.append((call, task))
        return iter(sorted(found, key=lambda pair: pair[1]))


def _write(path: Path, data: bytes) -> None:
    """Writes a file as a whole, durably: a task is never run again once it has ended."""
    new = path.with_name(f"{path.name}.{uuid.uuid4().hex[:12]}.new")
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(fd, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(fd)
    new.rename(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
