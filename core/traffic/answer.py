"""One streamed answer: what its chunks have said so far, and when.

Nothing that a server sends is taken at its word: a field of the wrong type counts as absent, and text
that will be shown is one printable line of limited length.
"""

import json
from dataclasses import dataclass, field
from typing import Any

from specpanel.core.printable import one_line
from specpanel.core.traffic.events import Event

DONE = "[DONE]"


def read_object(text: str) -> dict[str, Any] | None:
    """The JSON object in ``text``; None where there is none."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def error_message(body: dict[str, Any]) -> str | None:
    """The message of an error object, in OpenAI's shape or one of its relatives; None where there is none."""
    error = body.get("error")
    if isinstance(error, dict):
        return _text(error.get("message")) or one_line(json.dumps(error))
    if isinstance(error, str) and error:
        return one_line(error)
    if body.get("object") == "error" or "choices" not in body:
        return _text(body.get("message")) or _text(body.get("detail"))
    return None


@dataclass(slots=True)
class Answer:
    """The state of one answer (``n`` = 1). Moments are seconds of one monotonic clock.

    ``sent_s`` and ``end_s`` are set by the one who asks. ``first_s`` and ``last_s`` are the arrivals of
    the first and the last chunk with tokens. Without token ids the chunk with the finish reason counts as
    the last, for the end-of-text token is among the tokens that ``usage`` counts. ``text`` holds what a
    reasoning model thinks, too, in the order of arrival.

    vLLM (0.32) puts ``metrics`` beside ``usage`` in the last chunk, so only with
    ``stream_options.include_usage``; no field of the request asks for them
    (``entrypoints/openai/chat_completion/serving.py``, ``chat_completion_stream_generator``).
    """

    sent_s: float
    end_s: float | None = None
    first_s: float | None = None
    last_s: float | None = None
    first_chunk_tokens: int | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    finish_reason: str | None = None
    drafted: tuple[int, ...] | None = None
    accepted: tuple[int, ...] | None = None
    error: str | None = None
    done: bool = False
    _texts: list[str] = field(default_factory=list)
    _token_ids: list[int] = field(default_factory=list)

    def take(self, event: Event, at_s: float) -> None:
        """Take one event that arrived at ``at_s``."""
        data = event.data.strip()
        if data == DONE:
            self.done = True
            return
        chunk = read_object(data)
        if chunk is None:
            self._fail(f"unreadable chunk: {one_line(data, 60)}")
            return
        message = error_message(chunk)
        if message is not None or event.name == "error":
            self._fail(f"error in the stream: {message or one_line(data)}")
            return
        self._take_choice(chunk.get("choices"), at_s)
        self._take_usage(chunk.get("usage"))
        self._take_metrics(chunk.get("metrics"))

    @property
    def text(self) -> str:
        return "".join(self._texts)

    @property
    def ended(self) -> bool:
        """Whether the server said that the answer is complete."""
        return self.done or self.finish_reason is not None

    @property
    def empty(self) -> bool:
        """Whether nothing of an answer has come: neither token, nor finish reason, nor a count."""
        return (
            self.first_s is None and self.finish_reason is None and self.completion_tokens is None
        )

    @property
    def output_tokens(self) -> int | None:
        """Tokens of the answer: as the server counts them, else as many as it gave ids of."""
        if self.completion_tokens is not None:
            return self.completion_tokens
        return len(self._token_ids) or None

    @property
    def token_ids(self) -> tuple[int, ...] | None:
        """The answer's token ids; None where they are not all there."""
        complete = self._token_ids and len(self._token_ids) == self.output_tokens
        return tuple(self._token_ids) if complete else None

    @property
    def ttft_ms(self) -> float | None:
        """Time from sending to the first chunk with tokens, in milliseconds."""
        return None if self.first_s is None else (self.first_s - self.sent_s) * 1000

    @property
    def end_to_end_ms(self) -> float | None:
        """Time from sending to the end of the stream, in milliseconds."""
        return None if self.end_s is None else (self.end_s - self.sent_s) * 1000

    @property
    def tpot_ms(self) -> float | None:
        """Time per output token after the first chunk, in milliseconds; see ``RequestRecord``."""
        tokens = self.output_tokens
        if self.first_s is None or self.last_s is None or tokens is None:
            return None
        later = tokens - (self.first_chunk_tokens or 1)
        if later < 1 or self.last_s <= self.first_s:
            return None
        return (self.last_s - self.first_s) / later * 1000

    def _fail(self, reason: str) -> None:
        self.error = self.error or reason

    def _take_choice(self, choices: object, at_s: float) -> None:
        choice = choices[0] if isinstance(choices, list) and choices else None
        if not isinstance(choice, dict):
            return
        delta = choice.get("delta")
        ids = _counts(choice.get("token_ids")) or ()
        reason = choice.get("finish_reason")
        self._token_ids += ids
        carries = self._take_delta(delta) if isinstance(delta, dict) else False
        if carries or ids:
            if self.first_s is None:
                self.first_s, self.first_chunk_tokens = at_s, len(ids) or None
            self.last_s = at_s
        if isinstance(reason, str) and reason:
            self.finish_reason = one_line(reason, 40)
            if self.first_s is not None and not self._token_ids:
                self.last_s = at_s

    def _take_delta(self, delta: dict[str, Any]) -> bool:
        """Keep the text of a delta; whether it carries anything that tokens were made for."""
        said = [delta.get(key) for key in ("reasoning", "reasoning_content", "content")]
        if said[0] == said[1]:  # vLLM versions that write the same under both names
            del said[1]
        texts = [text for text in said if isinstance(text, str) and text]
        self._texts += texts
        return bool(texts or delta.get("tool_calls") or delta.get("refusal"))

    def _take_usage(self, usage: object) -> None:
        if isinstance(usage, dict):
            prompt, completion = (
                _count(usage.get("prompt_tokens")),
                _count(usage.get("completion_tokens")),
            )
            self.prompt_tokens = self.prompt_tokens if prompt is None else prompt
            self.completion_tokens = self.completion_tokens if completion is None else completion

    def _take_metrics(self, metrics: object) -> None:
        steps = steps_in(metrics)
        if steps is not None:
            self.drafted, self.accepted = steps


def steps_in(metrics: object) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Tokens drafted and accepted in each step, from the ``metrics`` of an answer; None where not told."""
    steps = metrics.get("speculative_decoding") if isinstance(metrics, dict) else None
    if not isinstance(steps, dict):
        return None
    drafted, accepted = (
        _counts(steps.get("per_step_drafted")),
        _counts(steps.get("per_step_accepted")),
    )
    if drafted is None or accepted is None or len(drafted) != len(accepted):
        return None
    possible = all(kept <= offered for kept, offered in zip(accepted, drafted, strict=True))
    return (drafted, accepted) if possible else None


def _text(value: object) -> str | None:
    return one_line(value) if isinstance(value, str) and value.strip() else None


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _counts(value: object) -> tuple[int, ...] | None:
    if not isinstance(value, list):
        return None
    counts = tuple(count for count in map(_count, value) if count is not None)
    return counts if len(counts) == len(value) else None
