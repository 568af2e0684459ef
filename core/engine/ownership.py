"""What a running server is there for: the command of specpanel's that started it and still needs it."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

import psutil

from specpanel.core.engine.registry import ServerRecord

_PROGRAMS = ("specpanel", "specpanel.app")
# What each command does with the servers that it starts. Those of the panel itself are not among them.
_NEEDS: dict[str, str] = {
    "run": "a run",
    "demo": "a run",
    "compare": "an experiment",
    "breakeven": "an experiment",
    "tune": "an experiment",
    "parity": "an experiment",
    "train": "a training",
    "promote": "a promotion",
}
_CLOCK_S = 2.0  # start times of processes are that much apart from the clock at most


@dataclass(frozen=True, slots=True)
class Owner:
    """The living process that started a server and uses it. ``need`` is what it does, ``a run`` …"""

    command: str
    need: str
    pid: int

    @property
    def words(self) -> str:
        return f"{self.need} (specpanel {self.command}, pid {self.pid})"

    @property
    def loses_all(self) -> bool:
        """Whether the end of its server ruins the work of hours; a run tells what it has."""
        return self.need != "a run"

    def without(self, name: str) -> str:
        """What becomes of the work when its server of this ``name`` ends, without a full stop."""
        ruined = "which fails without it" if self.loses_all else "which ends with it"
        return f"{name} belongs to {self.words}, {ruined}"


def owner_of(record: ServerRecord) -> Owner | None:
    """Who needs the server; None where nobody does any more, or a panel has it."""
    pid = record.owner_pid
    if pid == os.getpid():
        return None
    try:
        process = psutil.Process(pid)
        began_unix, words = process.create_time(), process.cmdline()
    except (psutil.Error, OSError):
        return None
    command = command_in(words)
    need = None if command is None else need_of(command, words)
    if command is None or need is None or began_unix > record.started_unix + _CLOCK_S:
        return None  # a pid that another process has by now is younger than the server
    return Owner(command, need, pid)


def need_of(command: str, words: Sequence[str]) -> str | None:
    """What a process of these words does with its servers; None where it needs none of them."""
    own = takewhile(lambda word: word != "--", words)  # what follows is for vLLM
    if command == "run" and any(word.partition("=")[0] == "--with" for word in own):
        return "an experiment"  # a sweep over loads, by another program
    return _NEEDS.get(command)


def command_in(words: Sequence[str]) -> str | None:
    """The command of specpanel's in a process's words: ``run`` of ``python …/bin/specpanel run x``."""
    places = [at for at, word in enumerate(words[:5]) if word.rpartition("/")[2] in _PROGRAMS]
    if not places:
        return None
    return next((word for word in words[places[0] + 1 :] if not word.startswith("-")), None)
