"""A drafter is swapped in a server that fails in the middle: it is resumed, or a sentence says what to do."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from fakes.engine.workbench import Workbench, lives, wait_for

from specpanel.core.errors import ServerUnreachableError
from specpanel.core.training import swap
from specpanel.core.training.swap import DrafterSwap
from specpanel.core.training.worker_calls import NotSwappableError, SwapError

OLD, NEW = "/drafters/old", Path("/drafters/new")
DRAFTER = json.dumps({"method": "eagle3", "model": OLD, "num_speculative_tokens": 3})
Serve = Callable[..., AbstractAsyncContextManager[DrafterSwap]]


@pytest.fixture
def serve(bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> Serve:
    """The misbehaving server with its developer routes, and the client side of a swap."""
    monkeypatch.setattr(swap, "_COPY_S", 4.0)
    monkeypatch.setattr(swap, "_RESUME_S", 2.0)

    @asynccontextmanager
    async def serving(*, extended: bool = True, **script: Any) -> AsyncIterator[DrafterSwap]:
        more = ("--worker-extension-cls", "drafter_reload.extension") if extended else ()
        _, url = bench.serve(
            *("--speculative-config", DRAFTER, *more),
            script=script,
            environment={"VLLM_SERVER_DEV_MODE": "1"},
        )
        async with DrafterSwap(url) as drafter:
            yield drafter

    return serving


def is_paused(drafter: DrafterSwap) -> bool:
    return bool(httpx.get(f"{drafter.url}/is_paused", timeout=20).json()["is_paused"])


async def test_a_swap_takes_place_and_is_undone(serve: Serve) -> None:
    async with serve() as drafter:
        swapped = await drafter.swap(NEW)
        assert (swapped.fingerprint_before, swapped.fingerprint) == (OLD, str(NEW))
        assert not is_paused(drafter)
        assert (await drafter.undo()).folder == OLD


@pytest.mark.parametrize("kind", ["500", "list", "hang", "late"])
async def test_a_commit_that_fails_somehow_is_undone_and_the_server_resumed(
    serve: Serve, kind: str
) -> None:
    """ "late" copies the weights and answers 500 all the same."""
    async with serve(rpc=kind, rpc_at="commit") as drafter:
        with pytest.raises(SwapError, match=r"the copy failed .*; the old drafter was put back"):
            await drafter.swap(NEW)
        assert not is_paused(drafter)
        assert (await drafter.status()).folder == OLD


async def test_a_commit_that_only_says_that_it_was_done_is_found_out(serve: Serve) -> None:
    async with serve(rpc="garbage", rpc_at="commit") as drafter:
        with pytest.raises(SwapError, match="though it said so; the old ones draft"):
            await drafter.swap(NEW)
        assert not is_paused(drafter)


async def test_where_the_undo_fails_too_it_is_resumed_and_a_restart_advised(serve: Serve) -> None:
    async with serve(rpc="hang", rpc_at="commit undo") as drafter:
        with pytest.raises(SwapError, match=r"copy failed .*could not be brought back") as caught:
            await drafter.swap(NEW)
        assert "restart the server" in caught.value.fix
        assert not is_paused(drafter)


async def test_a_server_that_dies_between_pause_and_resume_is_called_ended(
    serve: Serve, bench: Workbench
) -> None:
    async with serve(rpc="die", rpc_at="commit") as drafter:
        with pytest.raises(
            ServerUnreachableError, match="ended while its drafter was being"
        ) as told:
            await drafter.swap(NEW)
        assert "start it again" in told.value.fix
        assert "curl" not in str(told.value), "nothing is left to resume"
        wait_for(lambda: not lives(bench.panels[0].process.pid), "its end")


async def test_a_server_that_ended_before_the_pause_is_not_said_to_have_paused(
    serve: Serve, bench: Workbench
) -> None:
    async with serve() as drafter:
        bench.panels[0].process.kill()
        bench.panels[0].process.wait()
        with pytest.raises(ServerUnreachableError, match="nothing was replaced") as told:
            await drafter.undo()
        assert "start it again" in told.value.fix
        assert "may still be paused" not in str(told.value)


async def test_a_pause_that_is_refused_replaces_nothing(serve: Serve) -> None:
    async with serve(pause="500") as drafter:
        with pytest.raises(SwapError, match=r"/pause.* answers 500: .*; nothing was replaced"):
            await drafter.swap(NEW)
        assert not is_paused(drafter)


async def test_a_server_that_never_answers_resume_is_named_with_the_command_to_send(
    serve: Serve,
) -> None:
    async with serve(resume="hang") as drafter:
        with pytest.raises(SwapError, match="may still be paused") as caught:
            await drafter.swap(NEW)
        assert caught.value.fix == f"Send it yourself: curl -X POST {drafter.url}/resume"


@pytest.mark.parametrize("where", ["prepare", "status"])
async def test_an_answer_without_its_fields_changes_nothing(serve: Serve, where: str) -> None:
    async with serve(rpc="garbage", rpc_at=where) as drafter:
        with pytest.raises(SwapError, match="with something unknown"):
            await (drafter.status() if where == "status" else drafter.swap(NEW))
        assert not is_paused(drafter)


async def test_a_server_without_the_extension_says_how_to_start_one(serve: Serve) -> None:
    async with serve(extended=False) as drafter:
        with pytest.raises(NotSwappableError) as caught:
            await drafter.swap(NEW)
        assert "engine.swappable=true" in caught.value.fix
