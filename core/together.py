"""Several pieces of work at once, of which the first that fails ends the others."""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any


async def together(works: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Do all of ``works`` at once. Where one raises, the others are cancelled and its error is raised.

    ``asyncio.TaskGroup`` does the same, but that of Python 3.11.2, which Debian 12 has, leaves its own
    request to cancel behind, and every ``asyncio.timeout`` after that is taken for a cancellation.
    """
    tasks = [asyncio.create_task(work) for work in works]
    if not tasks:
        return
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in tasks:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            raise error
