"""A polite kill while the program is still importing itself is an interrupt, not a death without words."""

import signal
import subprocess
import sys

import pytest


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("module", ["specpanel.app.cli.root", "specpanel.core.engine.process"])
def test_a_signal_during_imports_is_an_interrupt_without_a_traceback(
    number: signal.Signals, module: str
) -> None:
    program = f"""
import os, signal, sys
signal.signal({int(number)}, signal.SIG_DFL)  # nohup and the like leave it ignored
class Killer:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), {int(number)})
sys.meta_path.insert(0, Killer())
sys.argv = ["specpanel", "ps"]
from specpanel.app.cli import main
main()
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ended.returncode == 130
    assert ended.stderr == ""
