"""Which server a promotion is for, and which of the two ways it takes."""

import asyncio
from collections.abc import Callable
from typing import Literal

from specpanel.core.engine.process import running_at, running_servers
from specpanel.core.engine.registry import ServerRecord, find
from specpanel.core.errors import ConfigurationError, NotRunningError
from specpanel.core.training.audit import Promotion
from specpanel.core.training.promote import Promoting, PromotionPlan
from specpanel.core.training.promote_restart import RestartPromoting
from specpanel.core.training.swap import CheckpointRefusedError
from specpanel.core.training.worker_calls import NotSwappableError
from specpanel.core.web import server_root

ChosenWay = Literal["auto", "in place", "restart"]


def find_server(named: str | None) -> tuple[str, str, ServerRecord | None]:
    """Name, address and record of the server that is meant; the only one that runs where none is named.

    Raises:
        ConfigurationError, NotRunningError: there is none, or it is not clear which.
    """
    if named is not None and "://" in named:
        url = server_root(named)
        record = running_at(url)
        return (record.name if record else named), url, record
    running = running_servers()
    if named is None:
        if not running:
            raise NotRunningError("no server of specpanel's is running", "Name one with --server.")
        if len(running) > 1:
            known = ", ".join(record.name for record in running)
            raise ConfigurationError(f"several servers run: {known}", "Name one with --server.")
    record = running[0] if named is None else find(named, running)
    return record.name, record.url, record


class PromotionRun:
    """One promotion by the chosen way. ``interrupt`` may be called at any time: the old drafter serves then.

    ``auto`` exchanges in place, and restarts where server or checkpoint do not let that be.
    """

    def __init__(
        self,
        plan: PromotionPlan,
        record: ServerRecord | None,
        way: ChosenWay = "auto",
        tell: Callable[[str], None] = lambda _: None,
        interrupted: asyncio.Event | None = None,
    ) -> None:
        self.plan = plan
        self._record = record
        self._way = way
        self._tell = tell
        self._interrupted = interrupted or asyncio.Event()

    def interrupt(self) -> None:
        self._interrupted.set()

    async def run(self) -> Promotion:
        """What came of it.

        Raises:
            SpecpanelError: the checkpoint was refused, or something failed.
        """
        if self._way == "restart":
            return await self._restart()
        try:
            return await Promoting(self.plan, self._tell, self._interrupted).run()
        except (CheckpointRefusedError, NotSwappableError) as error:
            if self._way == "in place" or self._record is None:
                raise
            self._tell(f"{error.message}; trying with a server of its own")
        return await self._restart()

    async def _restart(self) -> Promotion:
        if self._record is None:
            raise ConfigurationError(
                f"{self.plan.server} was not started by specpanel, so it cannot be replaced by another",
                "Promote in place, or start it with specpanel run --keep-running.",
            )
        return await RestartPromoting(self.plan, self._record, self._tell, self._interrupted).run()
