"""Which finding stands in the way of a start, and which one a key ends: pure, over made-up findings."""

from specpanel.app.tui.screens.launch_outlook import Outlook, in_the_way, to_mend
from specpanel.core.engine.command import Command
from specpanel.core.engine.interpreter_facts import InterpreterFacts
from specpanel.core.preflight.finding import Finding
from specpanel.core.preflight.memory_estimate import MemoryEstimate
from specpanel.core.session.preparing import Prepared
from specpanel.core.settings.mla import Subject
from specpanel.core.settings.profile import Profile

FACTS = InterpreterFacts("/p", "3.12.1", "vllm", "0.32.0", "cuda", "module", None, frozenset())
MEMORY = MemoryEstimate("a device", (), None, None, None, None, None, None, ())
NOTE = Finding("a-note", "note", "good to know")
PORT = Finding("port-taken", "error", "taken", field="engine.port", mend=(("engine.port", 8001),))
BUSY = Finding("device-busy", "error", "busy", field="engine.gpu_memory_utilization")
LENGTH = Finding(
    *("max-model-len", "error", "too long", "", "target.max_model_len"),
    mend=(("target.max_model_len", 2048),),
)
MACHINE = Finding("vllm-missing", "error", "no vLLM")


def outlook(*findings: Finding) -> Outlook:
    profile = Profile.model_validate({"target": {"model": "/m"}})
    prepared = Prepared(profile, FACTS, Command((), {}), findings, MEMORY, Subject("gqa", "cuda"))
    return Outlook(profile, prepared, None)


def test_what_our_own_server_holds_is_in_nobodys_way() -> None:
    seen = outlook(PORT, BUSY, NOTE)
    assert in_the_way(seen, own_server=False) == PORT
    assert in_the_way(seen, own_server=True) is None
    assert in_the_way(outlook(PORT, LENGTH), own_server=True) == LENGTH


def test_an_error_without_a_setting_stands_in_the_way_as_well() -> None:
    assert in_the_way(outlook(MACHINE), own_server=True) == MACHINE
    assert in_the_way(None, own_server=False) is None


def test_the_key_ends_the_finding_of_the_current_setting_or_the_first() -> None:
    seen = outlook(BUSY, PORT, LENGTH)
    assert to_mend(seen, "target.max_model_len") == LENGTH
    assert to_mend(seen, "engine.gpu_memory_utilization") == PORT  # that one has no mend
    assert to_mend(seen, None) == PORT
    assert to_mend(outlook(NOTE, MACHINE), None) is None
