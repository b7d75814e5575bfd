"""What goes wrong besides what calls raise."""

from __future__ import annotations

from typing import Optional


class FarmError(RuntimeError):
    """The farm itself can't do something; the text is that of `ckptd`."""


class TaskFailed(RuntimeError):
    """The task of a call has ended without a result: by a signal, by its time limit, by `kill()`, by `os._exit()`. Or it
    does not end, since it can't be brought back from its checkpoint: then its outcome is `stuck`."""

    def __init__(
        self,
        task: int,
        outcome: str,
        status: int,
        signal: Optional[int],
        stderr: str,
        reason: Optional[str] = None,
    ) -> None:
        super().__init__(task, outcome, status, signal, stderr, reason)
        #: The number of the task in its farm.
        self.task = task
        #: How it has ended, as results.jsonl says it: `exited`, `signalled`, `timed-out`, `cancelled` and so on, or `stuck`.
        self.outcome = outcome
        #: The status by which a shell would show that.
        self.status = status
        #: The signal that has ended it, if one has.
        self.signal = signal
        #: The end of what it has written to standard error.
        self.stderr = stderr
        #: Why it can't be brought back, if that is so.
        self.reason = reason

    def __str__(self) -> str:
        if self.reason is not None:
            return f"task {self.task} can't be brought back from its checkpoint: {self.reason}"
        how = f"by signal {self.signal}" if self.signal else f"with status {self.status} ({self.outcome})"
        said = f"\n{self.stderr}" if self.stderr else ""
        return f"task {self.task} has ended {how} without a result{said}"


class RemoteTraceback(Exception):
    """The traceback of an exception in the process of the task, as text: the cause of what `result()` raises."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f'\n"""\n{self.text}"""'
