"""How every experiment begins and ends: in the store, told as events, also after Ctrl-C or a failure."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from specpanel.core.engine.registry import table_without_secrets
from specpanel.core.errors import ExitCode, SpecpanelError
from specpanel.core.lab.arms import launch_fingerprint
from specpanel.core.lab.environment import read_environment
from specpanel.core.lab.events import (
    BlockMeasured,
    ExperimentBegan,
    ExperimentEnded,
    LabListener,
    PointMeasured,
)
from specpanel.core.lab.servers import Ready, Serving, Stop
from specpanel.core.lab.store import DONE, FAILED, INTERRUPTED, Store
from specpanel.core.session.launch import InterruptedRunError
from specpanel.core.settings.profile import Profile
from specpanel.core.traffic.records import RequestRecord


class Ledger:
    """What an experiment writes while it runs."""

    def __init__(self, store: Store, experiment: str) -> None:
        self._store = store
        self._experiment = experiment

    def server(self, ready: Ready, serving: Serving) -> int:
        """A server that is going to be measured; its number."""
        profile = ready.arm.profile
        return self._store.add_run(
            self._experiment,
            ready.arm.name,
            profile.drafter.method,
            profile.drafter.draft_tokens,
            launch_fingerprint(profile),
            table_without_secrets(profile),
            serving.ready_s,
        )

    def attached(
        self, arm: str, drafter: str, draft_tokens: int | None, settings: Profile | None
    ) -> int:
        """A server that ran already; its number. ``settings`` where it is one of ours."""
        launch = "" if settings is None else launch_fingerprint(settings)
        table = {} if settings is None else table_without_secrets(settings)
        return self._store.add_run(
            self._experiment, arm, drafter, draft_tokens, launch, table, None
        )

    def block(
        self,
        run: int,
        number: int,
        conditions: Mapping[str, Any],
        records: Sequence[RequestRecord],
    ) -> None:
        """What was measured there."""
        self._store.add_measurements(run, number, conditions, records)

    def told(self, event: BlockMeasured | PointMeasured) -> None:
        """How it stands, for a panel that looks on from another process."""
        self._store.add_progress(self._experiment, {"kind": event.kind, **asdict(event)})


class Work(Protocol):
    """One experiment. ``conclusion`` and ``result`` may be asked at any time."""

    kind: str

    @property
    def title(self) -> str: ...

    @property
    def plan(self) -> str: ...

    @property
    def seed(self) -> int: ...

    def settings(self) -> dict[str, Any]: ...

    async def prepare(self, stop: Stop) -> Ready: ...

    async def run(self, ledger: Ledger, stop: Stop) -> None: ...

    def conclusion(self) -> str: ...

    def result(self) -> dict[str, Any] | None: ...


@dataclass(frozen=True, slots=True)
class Ended:
    """How an experiment ended. ``error`` is what ended it early."""

    id: str | None
    state: str
    result: dict[str, Any] | None
    conclusion: str
    error: SpecpanelError | None

    @property
    def exit_code(self) -> ExitCode:
        if self.error is not None:
            return self.error.exit_code
        return ExitCode.INTERRUPTED if self.state == INTERRUPTED else ExitCode.DONE


async def conduct(work: Work, store: Store, tell: LabListener, stop: Stop) -> Ended:
    """Do the experiment and store what it found, all or in part.

    What cannot be launched at all leaves nothing in the store.
    """
    try:
        first = await work.prepare(stop)
    except InterruptedRunError:
        return Ended(None, INTERRUPTED, None, "interrupted before anything was measured", None)
    except SpecpanelError as error:
        return Ended(None, FAILED, None, str(error), error)
    around = read_environment(first.placed, first.facts)
    name = store.begin(work.kind, work.title, work.settings(), around.table(), work.seed)
    tell(ExperimentBegan(name, work.kind, work.plan))
    state, failure = FAILED, None
    conclusion, result = "it ended by a fault of specpanel itself", None
    try:
        try:
            await work.run(Ledger(store, name), stop)
            state = DONE
        except InterruptedRunError:
            state = INTERRUPTED
        except SpecpanelError as error:
            failure = error
        result = work.result()
        conclusion = str(failure) if failure is not None else work.conclusion()
    finally:
        store.finish(name, state, conclusion, result)
    tell(ExperimentEnded(name, work.kind, state, conclusion, result))
    return Ended(name, state, result, conclusion, failure)
