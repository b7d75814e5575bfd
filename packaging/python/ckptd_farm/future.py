"""The future of a call that is a task."""

from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from .calls import Call

if TYPE_CHECKING:
    from .farm import Farm

T = TypeVar("T")


class FarmFuture(Future[T]):
    """As of any executor. Its task is on the disk: it runs also if this process is no more."""

    def __init__(self, farm: Farm, call: Call, task: int) -> None:
        super().__init__()
        self._farm = farm
        self._call = call
        #: The number of the task in its farm.
        self.task = task

    def running(self) -> bool:
        """Whether it has begun and not ended."""
        return not self.done() and self._call.is_begun()

    def cancel(self) -> bool:
        """Takes the call back if it has not begun; False: it has, see `kill()`."""
        if self.done():
            return self.cancelled()
        if not self._farm._withdraw([self]):
            return self.cancelled()
        return True

    def kill(self) -> bool:
        """Ends the call whether it has begun or not: SIGTERM, and SIGKILL 5 seconds later. One that has begun raises
        `TaskFailed`. False: it has ended before."""
        return self.cancel() or self._farm._kill(self)

    @property
    def stdout(self) -> Path:
        """The file of what it has written to standard output."""
        return self._farm.results / f"{self.task}.out"

    @property
    def stderr(self) -> Path:
        """The file of what it has written to standard error."""
        return self._farm.results / f"{self.task}.err"

    def _notify_cancel(self) -> bool:
        """Is cancelled, and tells who waits."""
        return super().cancel() and not self.set_running_or_notify_cancel()
