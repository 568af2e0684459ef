"""Work done at once: the first error ends the rest, and nothing of it stays behind."""

import asyncio

import pytest

from specpanel.core.together import together


async def test_the_first_error_is_raised_and_ends_the_others() -> None:
    ended: list[str] = []

    async def waits() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("waits")

    async def fails() -> None:
        raise ValueError("the first")

    with pytest.raises(ValueError, match="the first"):
        await together([waits(), fails(), waits()])
    assert ended == ["waits", "waits"]


async def test_a_timeout_after_a_failure_is_a_timeout() -> None:
    """No request to cancel is left behind, which a timeout would take for a cancellation."""

    async def fails() -> None:
        await asyncio.sleep(0)
        raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011
        await together([fails()])
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.001):
            await asyncio.Event().wait()


async def test_a_cancellation_from_outside_ends_all() -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def waits() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    task = asyncio.create_task(together([waits()]))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()


async def test_nothing_to_do_is_done() -> None:
    await together([])
