"""Results as bytes. A class of the script is that of whichever session reads them, also if it is another process than the
one that has submitted the call."""

from __future__ import annotations

import io
import sys
from typing import Any, Callable, Optional

import cloudpickle

_MAIN = "__main__"


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Writes a class of the script so that it is taken from the script where it is read, and made anew elsewhere."""

    def reducer_override(self, obj: Any) -> Any:
        reduced = super().reducer_override(obj)
        if not (isinstance(obj, type) and obj.__module__ == _MAIN and isinstance(reduced, tuple) and len(reduced) == 6):
            return reduced
        make, parts, state, items, pairs, set_state = reduced
        return _own_or_made, (obj.__qualname__, make, parts), (set_state, state), items, pairs, _set_unless_own


def pickled(value: Any) -> bytes:
    """It as bytes, for `pickle.loads`."""
    written = io.BytesIO()
    _Pickler(written).dump(value)
    return written.getvalue()


def _own(name: str) -> Optional[type]:
    """The class of that name in the script; None: there is none."""
    found: Any = sys.modules.get(_MAIN)
    for part in name.split("."):
        found = getattr(found, part, None)
    is_it = isinstance(found, type) and (found.__module__, found.__qualname__) == (_MAIN, name)
    return found if is_it else None


def _own_or_made(name: str, make: Callable[..., type], parts: tuple[Any, ...]) -> type:
    return _own(name) or make(*parts)


def _set_unless_own(made: type, state: tuple[Callable[[type, Any], Any], Any]) -> None:
    """What a class of the script is like is the script's: it may have been changed since."""
    set_state, inner = state
    if _own(made.__qualname__) is not made:
        set_state(made, inner)
