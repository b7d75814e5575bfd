"""Calls of the executable `ckptd`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import Any, MutableMapping, Optional, Sequence

from .errors import FarmError

#: Keeps Python from looking for modules in the working directory, where others may have put some; from 3.11 on.
SAFE_PATH = "PYTHONSAFEPATH"
#: Its value where nobody else has set it.
_OWN = "ckptd"


def forget_safe_path(environment: MutableMapping[str, str]) -> None:
    """What a call starts is not to be kept from it."""
    if environment.get(SAFE_PATH) == _OWN:
        del environment[SAFE_PATH]


def executable() -> str:
    """The one that `CKPTD` names, that of this Python's environment, or that in `PATH`."""
    if named := os.environ.get("CKPTD"):
        return named
    beside = Path(sysconfig.get_path("scripts"), "ckptd")
    found = str(beside) if beside.exists() else shutil.which("ckptd")
    if found is None:
        raise FarmError("there is no ckptd: install it, or let CKPTD name it")
    return found


class Command:
    """`ckptd farm`, of the farms in one folder."""

    def __init__(self, ckptd: Optional[str], directory: Optional[str]) -> None:
        self._ckptd = ckptd or executable()
        self._directory = [] if directory is None else ["--dir", os.path.abspath(directory)]

    def words(self, *words: str) -> list[str]:
        """The words of a command about farms."""
        return [self._ckptd, *self._directory, "farm", *words]

    def call(self, *words: str) -> str:
        """What it has written, once it has ended.

        Raises:
            FarmError: with what it has said, where its status is not 0.
        """
        try:
            ended = subprocess.run(
                self.words(*words),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env={SAFE_PATH: _OWN, **os.environ} if words[0] == "submit" else None,
            )
        except OSError as error:
            raise FarmError(f"run {self._ckptd}: {error}") from error
        if ended.returncode != 0:
            said = ended.stderr.strip().removeprefix("ckptd: ")
            raise FarmError(said or f"'ckptd farm {words[0]}' has ended with status {ended.returncode}")
        return ended.stdout

    def status(self, farm: str) -> dict[str, Any]:
        """How a farm is."""
        status: dict[str, Any] = json.loads(self.call("status", farm, "--json"))
        return status

    def submit(self, farm: str, options: Sequence[str], program: Sequence[str]) -> int:
        """Submits a task; its number."""
        return int(self.call("submit", "--farm", farm, *options, "--", *program))
