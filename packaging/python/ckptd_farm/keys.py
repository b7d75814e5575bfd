"""Calls as bytes, and by what an equal call of a later session is known."""

from __future__ import annotations

import hashlib
import io
import sys
from types import CodeType
from typing import Any, Callable

import cloudpickle


class _KeyPickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Writes what is never read, but equal for equal calls: where code stands, and the random marks that cloudpickle
    gives to classes, are left out."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, type):
            return _known_by, (obj.__module__, obj.__qualname__)
        if isinstance(obj, CodeType):
            names = (obj.co_name, obj.co_names, obj.co_varnames, obj.co_freevars)
            return _known_by, (names, obj.co_code, obj.co_consts)
        return super().reducer_override(obj)


def _known_by(*parts: Any) -> None:
    """Stands in a key for what has these parts."""


def pickled(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
    """The call as bytes, with the folders in which modules are looked for."""
    data: bytes = cloudpickle.dumps((list(sys.path), cloudpickle.dumps((fn, args, kwargs))))
    return data


def key(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """Equal for the same function with equal arguments, also in another process."""
    written = io.BytesIO()
    _KeyPickler(written).dump((fn, args, sorted(kwargs.items())))
    return hashlib.blake2b(written.getvalue(), digest_size=16).hexdigest()
