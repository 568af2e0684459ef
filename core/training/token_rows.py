"""Make token rows: the target answers each prompt, or the given answers are put into tokens.

Rows are appended as they come, so that an interrupted run goes on where it was.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path

from specpanel.core.errors import SpecpanelError, TrafficError
from specpanel.core.together import together
from specpanel.core.training.conversations import Conversation
from specpanel.core.training.dataset_checks import TokenRow
from specpanel.core.training.recipe import Data
from specpanel.core.training.target_client import RequestRefusedError, TargetClient

_FAILED_LIMIT = 0.05
_FEWEST_FAILURES = 3


class RowMaker:
    """Asks for all rows that are not there yet.

    Args:
        on_progress: called with rows done, rows wanted and tokens of answers a second.
    """

    def __init__(
        self,
        client: TargetClient,
        settings: Data,
        path: Path,
        on_progress: Callable[[int, int, float | None], None],
    ) -> None:
        self._client = client
        self._settings = settings
        self._path = path
        self._on_progress = on_progress
        self.failures: list[tuple[str, str]] = []

    async def make(self, conversations: Sequence[Conversation]) -> None:
        """Raises TrafficError where more than 5 % of the prompts fail, with the most telling reason."""
        there = {row.id for row in read_rows(self._path)}
        missing = [one for one in conversations if _first_id(one, self._settings) not in there]
        done = total = len(conversations)
        done -= len(missing)
        slots = asyncio.Semaphore(self._settings.concurrency)
        began_s, tokens = time.monotonic(), 0
        self._on_progress(done, total, None)

        async def one(conversation: Conversation) -> None:
            nonlocal done, tokens
            async with slots:
                try:
                    rows = await self._rows(conversation)
                except RequestRefusedError as error:
                    self.failures.append((conversation.id, str(error)))
                    self._judge(total)
                    return
            with self._path.open("a", encoding="utf-8") as file:
                file.write("".join(_line(row) for row in rows))
            done += 1
            tokens += sum(row.trained for row in rows)
            self._on_progress(done, total, tokens / max(1e-3, time.monotonic() - began_s))

        await together(one(conversation) for conversation in missing)

    def _judge(self, total: int) -> None:
        failed = len(self.failures)
        if failed >= _FEWEST_FAILURES and failed > _FAILED_LIMIT * total:
            raise TrafficError(
                f"{failed} of {total} prompts failed; the last ({self.failures[-1][0]}): "
                f"{self.failures[-1][1]}",
                "Look at the server's log, and at the lengths of the prompts.",
            )

    async def _rows(self, conversation: Conversation) -> list[TokenRow]:
        if self._settings.answers == "given":
            return [row async for row in self._given(conversation)]
        answer = await self._client.answer(
            conversation.question,
            max_tokens=self._settings.max_tokens,
            temperature=self._settings.temperature,
            seed=self._settings.seed,
        )
        return [
            make_row(
                conversation.id,
                answer.prompt_ids,
                answer.answer_ids,
                self._settings.seq_length,
                answer.finish_reason,
            )
        ]

    async def _given(self, conversation: Conversation) -> AsyncIterator[TokenRow]:
        """A row for every assistant turn that follows a question."""
        for number, turn in enumerate(conversation.turns):
            if turn.role != "assistant" or number == 0:
                continue
            prompt = await self._client.tokens(conversation.turns[:number], ask=True)
            whole = await self._client.tokens(conversation.turns[: number + 1], ask=False)
            if whole[: len(prompt)] != prompt:
                raise RequestRefusedError(
                    "the chat template writes a question differently once it is answered"
                )
            yield make_row(
                _turn_id(conversation, number),
                prompt,
                whole[len(prompt) :],
                self._settings.seq_length,
            )


def make_row(
    name: str,
    prompt: Sequence[int],
    answer: Sequence[int],
    seq_length: int,
    finish_reason: str | None = None,
) -> TokenRow:
    """Prompt and answer as one row, cut off at ``seq_length``; only the answer is trained on."""
    ids = (*prompt, *answer)[:seq_length]
    mask = (*(0 for _ in prompt), *(1 for _ in answer))[:seq_length]
    return TokenRow(name, tuple(ids), tuple(mask), finish_reason)


def read_rows(path: Path) -> Iterator[TokenRow]:
    """Rows of the file, each once; a line that was cut off by a kill is left out.

    Raises:
        SpecpanelError: the file cannot be read.
    """
    seen: set[str] = set()
    try:
        lines = path.read_bytes().splitlines()
    except FileNotFoundError:
        return
    except OSError as error:
        raise SpecpanelError(f"{path} cannot be read: {error.strerror or error}") from None
    for line in lines:
        try:
            entry = json.loads(line)
            row = TokenRow(
                str(entry["id"]),
                tuple(entry["input_ids"]),
                tuple(entry["loss_mask"]),
                entry.get("finish_reason"),
            )
        except (ValueError, KeyError, TypeError):
            continue
        if row.id not in seen and len(row.input_ids) == len(row.loss_mask):
            seen.add(row.id)
            yield row


def _line(row: TokenRow) -> str:
    content = {
        "id": row.id,
        "input_ids": row.input_ids,
        "loss_mask": row.loss_mask,
        "finish_reason": row.finish_reason,
    }
    return json.dumps(content) + "\n"


def _turn_id(conversation: Conversation, number: int) -> str:
    return f"{conversation.id}#{number}"


def _first_id(conversation: Conversation, settings: Data) -> str:
    """The id of the first row that the conversation becomes."""
    if settings.answers == "target":
        return conversation.id
    turns = enumerate(conversation.turns)
    first = next((n for n, turn in turns if turn.role == "assistant" and n), 0)
    return _turn_id(conversation, first)
