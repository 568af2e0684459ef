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

    Times are the client's, in milliseconds. ``tpot_ms`` is (last token - first token) / (tokens - 1) and
    ``None`` below two tokens. ``drafted`` and ``accepted`` hold one entry a step, where vLLM reports them
    (``--per-request-spec-decode-metrics detailed``). ``text`` and ``token_ids`` are the answer.
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

    @property
    def ok(self) -> bool:
        return self.error is None
