"""A swap over HTTP: in which order, paused how long, and always resumed. Against a server that can fail."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest
from fakes.swapping_engine import SwappingEngine, Worker

from specpanel.core.errors import ConfigurationError, ServerUnreachableError
from specpanel.core.training.swap import CheckpointRefusedError, DrafterSwap
from specpanel.core.training.worker_calls import SwapError

NEW = Path("/drafters/new")
OLD = "/drafters/old"


async def test_only_the_copy_is_done_in_the_pause() -> None:
    async with SwappingEngine() as engine, DrafterSwap(engine.url) as drafter:
        swapped = await drafter.swap(NEW)
        assert engine.asked == ["prepare", "pause", "commit", "resume", "drafter_status"]
        assert (await drafter.status()).folder == str(NEW)
    assert swapped.fingerprint_before == OLD
    assert swapped.fingerprint == str(NEW)
    assert swapped.shared == ("embed_tokens.weight",)
    assert 0 < swapped.paused_s < 5


async def test_undo_brings_back_the_old_one_in_a_pause_of_its_own() -> None:
    async with SwappingEngine() as engine, DrafterSwap(engine.url) as drafter:
        await drafter.swap(NEW)
        engine.asked.clear()
        assert (await drafter.undo()).folder == OLD
        assert engine.asked == ["pause", "undo", "resume", "drafter_status"]
        with pytest.raises(SwapError, match="keeps no drafter from before"):
            await drafter.undo()
        assert not engine.paused


async def test_a_refused_checkpoint_never_pauses() -> None:
    worker = Worker(0, fault="prepare", reason="not in the checkpoint: fc.weight")
    async with SwappingEngine([worker]) as engine, DrafterSwap(engine.url) as drafter:
        with pytest.raises(
            CheckpointRefusedError, match=r"new cannot .*: not in the .*fc.weight\."
        ):
            await drafter.swap(NEW)
        assert "pause" not in engine.asked
        assert (await drafter.status()).folder == OLD


async def test_one_worker_that_refuses_keeps_all_of_them() -> None:
    workers = [Worker(0), Worker(1, fault="prepare", reason="too wide")]
    async with SwappingEngine(workers) as engine, DrafterSwap(engine.url) as drafter:
        with pytest.raises(CheckpointRefusedError, match="too wide"):
            await drafter.swap(NEW)
        assert [worker.folder for worker in workers] == [OLD, OLD]
        assert [worker.prepared for worker in workers] == [None, None]


async def test_a_copy_that_fails_on_one_worker_is_undone_on_the_others_before_resuming() -> None:
    workers = [Worker(0), Worker(1, fault="commit")]
    async with SwappingEngine(workers) as engine, DrafterSwap(engine.url) as drafter:
        with pytest.raises(SwapError, match=r"worker 1 .*no room.*the old drafter was put back"):
            await drafter.swap(NEW)
        assert engine.asked == ["prepare", "pause", "commit", "undo", "resume"]
        assert [worker.folder for worker in workers] == [OLD, OLD]
        assert not engine.paused


async def test_resuming_is_tried_again() -> None:
    async with SwappingEngine(failing_resumes=2) as engine, DrafterSwap(engine.url) as drafter:
        await drafter.swap(NEW)
        assert engine.asked.count("resume fails") == 2
        assert not engine.paused


async def test_a_server_that_will_not_resume_is_named_with_the_command_to_send() -> None:
    async with SwappingEngine(failing_resumes=9) as engine, DrafterSwap(engine.url) as drafter:
        with pytest.raises(SwapError, match="may still be paused") as caught:
            await drafter.swap(NEW)
        assert caught.value.fix == f"Send it yourself: curl -X POST {engine.url}/resume"


async def test_a_cancelled_swap_still_ends_the_pause() -> None:
    async with SwappingEngine(hold=True) as engine, DrafterSwap(engine.url) as drafter:
        task = asyncio.create_task(drafter.swap(NEW))
        await engine.until("commit")
        task.cancel()
        engine.release.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert engine.asked[-1] == "resume"
        assert not engine.paused


async def test_a_swapper_that_is_killed_leaves_no_server_paused() -> None:
    program = (
        "import asyncio, sys\n"
        "from pathlib import Path\n"
        "from specpanel.core.training.swap import DrafterSwap\n"
        "asyncio.run(DrafterSwap(sys.argv[1]).swap(Path('/drafters/new')))\n"
    )
    async with SwappingEngine(hold=True) as engine:
        child = await asyncio.create_subprocess_exec(sys.executable, "-c", program, engine.url)
        await engine.until("commit")
        assert engine.paused
        os.kill(child.pid, signal.SIGKILL)
        await child.wait()
        await engine.until("resume")
        assert not engine.paused


async def test_a_server_without_the_extension_or_the_routes_says_how_to_start_one() -> None:
    for lacking in ({"extension": False}, {"developer": False}):
        async with SwappingEngine(**lacking) as engine, DrafterSwap(engine.url) as drafter:
            with pytest.raises(SwapError) as caught:
                await drafter.status()
            assert "engine.swappable=true" in caught.value.fix


async def test_another_machine_is_refused_and_nobody_listening_is_told() -> None:
    with pytest.raises(ConfigurationError, match="only a server of this machine"):
        DrafterSwap("http://192.0.2.7:8000")
    async with SwappingEngine() as engine:
        url = engine.url
    async with DrafterSwap(url) as drafter:
        with pytest.raises(ServerUnreachableError, match="gives no answer"):
            await drafter.status()
