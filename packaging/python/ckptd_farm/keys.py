"""Calls as bytes, and by what an equal call of a later session is known."""

from __future__ import annotations

import hashlib
import io
import sys
from types import CodeType, FunctionType
from typing import Any, Callable

import cloudpickle


class _KeyPickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Writes what is never read, but equal for equal calls: where code stands, and the random marks that cloudpickle
    gives to classes, are left out."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, type):
            return _known_by, (obj.__module__, obj.__qualname__)
        if isinstance(obj, CodeType):
            names = (obj.co_name, obj.co_names, obj.co_varnames, obj.co_freevars, obj.co_cellvars)
            takes = (obj.co_argcount, obj.co_posonlyargcount, obj.co_kwonlyargcount, obj.co_flags)
            handlers = getattr(obj, "co_exceptiontable", b"")
            return _known_by, (names, takes, obj.co_code, handlers, _in_order(obj.co_consts))
        reduced = super().reducer_override(obj)
        if isinstance(obj, FunctionType) and isinstance(reduced, tuple):
            make, parts, *rest = reduced
            return (make, tuple(map(_without_places, parts)), *rest)
        return reduced


def _in_order(constant: Any) -> Any:
    """The same where no order depends on the process: that of a set of strings does."""
    if isinstance(constant, frozenset):
        return "frozenset", sorted(map(repr, constant))
    return tuple(map(_in_order, constant)) if isinstance(constant, tuple) else constant


def _without_places(part: Any) -> Any:
    """What cloudpickle keeps of a function's module, without where that stands."""
    if not isinstance(part, dict):
        return part
    return {name: value for name, value in part.items() if name not in ("__file__", "__path__")}


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
