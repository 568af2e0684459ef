"""What one request did, as the client saw it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Prompt:
    """A user message with the class of work it stands for (chat, code, maths, story, repetition)."""

    id: str
    kind: str
    text: str
    system: str | None = None


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """One finished or failed request.

    Times are the client's, in milliseconds. ``tpot_ms`` is the time from the first chunk with tokens to
    the last, divided by the tokens that came after the first chunk: ``first_chunk_tokens`` of them came
    at once with it and took no time of their own. Where the server does not tell how many (``None``), one
    is taken. ``None`` where no token came after the first chunk.

    ``waited_ms`` is set in the open loop: how long the request, once due, waited for a free slot. It is
    part of ``ttft_ms`` and ``end_to_end_ms``, which count from the moment a request was due, so that a
    server that falls behind cannot look fast by being asked later. ``started_s`` is when it was sent.

    A failed request has neither ``tpot_ms`` nor ``end_to_end_ms``; ``error`` says in a few words why.
    ``drafted`` and ``accepted`` hold one entry a step, where vLLM reports them
    (``--per-request-spec-decode-metrics detailed``). ``text`` and ``token_ids`` are the answer;
    ``token_ids`` is ``None`` unless it is complete.
    """

    index: int
    prompt_id: str
    kind: str
    started_unix: float
    started_s: float  # monotonic, since the load began
    ttft_ms: float | None
    tpot_ms: float | None
    end_to_end_ms: float | None
    prompt_tokens: int | None
    output_tokens: int | None
    finish_reason: str | None
    error: str | None = None
    text: str = ""
    token_ids: tuple[int, ...] | None = None
    drafted: tuple[int, ...] | None = None
    accepted: tuple[int, ...] | None = None
    warmup: bool = False
    first_chunk_tokens: int | None = None
    waited_ms: float | None = None

    @property
    def ok(self) -> bool:
        return self.error is None
