"""Which devices the watched server uses, from its process on this machine."""

from collections.abc import Sequence

import psutil

from specpanel.core.devices.records import DeviceSample
from specpanel.core.devices.visibility import used_by


class ServerDevices:
    """Remembers what a server was started with: neither arguments nor environment change later."""

    def __init__(self) -> None:
        self._pid: int | None = None
        self._started: tuple[dict[str, str], list[str]] | None = None

    def uuids(
        self, sample: DeviceSample, pid: int | None, pids: Sequence[int]
    ) -> tuple[str, ...] | None:
        """The devices of the server whose leader is ``pid``; None where that cannot be told."""
        if pid is None or not sample.devices:
            return None
        if pid != self._pid:
            self._pid, self._started = pid, _started_with(pid)
        if self._started is None:
            return None
        environment, arguments = self._started
        return used_by(
            sample.devices,
            sample.readings,
            environment=environment,
            arguments=arguments,
            pids=pids or (pid,),
        )


def _started_with(pid: int) -> tuple[dict[str, str], list[str]] | None:
    try:
        process = psutil.Process(pid)
        return process.environ(), process.cmdline()
    except (psutil.Error, OSError):
        return None
