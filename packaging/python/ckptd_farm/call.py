"""The process of a task: `python -m ckptd_farm.call FILE NAME` runs one call. NAME is for whoever looks at the farm."""

from __future__ import annotations

import os
import pickle
import sys
import traceback
from pathlib import Path
from typing import Any

from .calls import RAISED, RETURNED, Call
from .command import forget_safe_path
from .results import pickled


def main() -> int:
    """Runs it; the exit status, by which the farm knows whether it is to be tried again."""
    forget_safe_path(os.environ)
    call = Call(Path(sys.argv[1]))
    # Before it begins: whoever finds that it can't be withdrawn has the number then.
    call.note_task(int(os.environ["CKPTD_FARM_TASK"]))
    data = call.begin()
    if data is None:
        return 0
    sys.argv = sys.argv[:1]
    try:
        # By name in this block alone: what it returns may be large.
        kind, written = RETURNED, pickled(_called(data))
    except BaseException as error:  # Also SystemExit: the caller is to hear of it.
        kind, written = RAISED, _raised(error)
    call.end(kind, written)
    return 0 if kind == RETURNED else 1


def _called(data: bytes) -> Any:
    path, inner = pickle.loads(data)
    # As where it was submitted: the same name is the same module.
    sys.path[:] = path
    fn, args, kwargs = pickle.loads(inner)
    return fn(*args, **kwargs)


def _raised(error: BaseException) -> bytes:
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    sys.stderr.write(text)
    bare = error.with_traceback(None)
    try:
        written = pickled((bare, text))
        pickle.loads(written)
    except Exception:
        # One that can't be sent, or be made again of its arguments.
        written = pickled((RuntimeError(f"{type(error).__qualname__}: {error}"), text))
    return written


if __name__ == "__main__":
    sys.exit(main())
