"""What may be behind a finding about acceptance, the likeliest first, and how to tell. Pure data.

Gathered from vLLM 0.32.0's source and from public reports; the report stands behind a cause where there is
one.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LikelyCause:
    """``tell`` says how to find out, as an instruction. ``setting`` is the profile's field to change."""

    text: str
    tell: str
    setting: str | None = None
    source: str | None = None


_WRONG_HEAD = LikelyCause(
    "The drafter was trained for another target, or for another version of it",
    "Compare hidden size, vocabulary and verifier path in its config.json: specpanel check does.",
    "drafter.model",
)
_FLAGS_IGNORED = LikelyCause(
    "Its config.json has norm or rope settings that this vLLM does not read, so it runs, and drafts noise",
    "Look for norm_before_fc, norm_output and partial_rotary_factor in it, and try a newer vLLM.",
    "drafter.model",
    "vllm PR#38111, speculators#738",
)
_VOCABULARY = LikelyCause(
    "The map from the draft vocabulary to the target's (d2t) is missing or of another training",
    "Acceptance near 1 % with draft_vocab_size below vocab_size: look for d2t and t2d in its weights.",
    "drafter.model",
    "SpecForge PR#534, vllm-ascend PR#9795",
)
_TOO_LONG = LikelyCause(
    "Contexts are longer than the drafter was made for; vLLM then drafts dummies for the whole batch",
    "Compare the drafter's max_position_embeddings with target.max_model_len, and send short prompts.",
    "target.max_model_len",
    "vllm#58080, vllm#48894",
)
_TRAFFIC = LikelyCause(
    "The traffic changed: other prompts, or sampling at a higher temperature",
    "Send the same prompts as before; mark the moment with m.",
    "traffic.kinds",
)
_SAMPLING = LikelyCause(
    "Sampling is hot: the higher the temperature, the less a draft is accepted",
    "Send the same prompts at temperature 0.",
    "traffic.temperature",
)
_OPT_OUT = LikelyCause(
    "Requests opt out: logprobs, penalties or min_p switch speculation off for a request in some versions",
    "Send one plain greedy request and see whether drafts grow.",
    None,
    "vllm#34497",
)
_DRAFTER_LOST = LikelyCause(
    "The drafter lost its weights: a swap that was not finished, or sleep at level 2 and waking again",
    "Look for start_draft_weight_update or sleep in the log; a restart brings it back.",
    None,
    "vllm#52479",
)

PATHOLOGY_CAUSES: dict[str, tuple[LikelyCause, ...]] = {
    "stalled": (
        LikelyCause(
            "Requests wait for KV cache that never becomes free (running 0, waiting above 0)",
            "Look at the cache's usage; lower target.max_model_len or engine.max_num_seqs and start again.",
            "engine.max_num_seqs",
        ),
        LikelyCause(
            "A worker hangs in a kernel or a collective; the API server cannot tell",
            "Look for 'shared memory broadcast block' in the log, and at the CPU and GPU of the workers.",
            None,
            "vllm#39863, vllm#16259",
        ),
        LikelyCause(
            "One very long prompt is being computed",
            "Wait: the count of prompt tokens moves when it is done.",
            None,
        ),
    ),
    "no-drafts": (
        _OPT_OUT,
        LikelyCause(
            "The schedule of K by batch size says 0 for as many requests as run now",
            "Lower the concurrency; drafts come back below the threshold.",
            "traffic.concurrency",
        ),
        LikelyCause(
            "The server was started without a drafter, or with --disable-log-stats",
            "Look at chosen against wished: vLLM's log names the speculative config it took.",
            "drafter.method",
        ),
        LikelyCause(
            "The address is a router's or another server's, whose counters are not these",
            "Ask /metrics of the engine itself.",
            None,
        ),
    ),
    "nothing-proposed": (
        LikelyCause(
            "The text repeats nothing: new prose and reasoning give a lookup drafter nothing to copy",
            "Send prompts that quote or edit their own text (traffic.kinds = repetition).",
            "traffic.kinds",
        ),
        LikelyCause(
            "The shortest run to look up is too long",
            "Lower it to 2 and see whether drafts come; they are accepted less often then.",
            "drafter.prompt_lookup_min",
            "vllm#16883",
        ),
        _OPT_OUT,
    ),
    "nothing-accepted": (
        _WRONG_HEAD,
        _VOCABULARY,
        _FLAGS_IGNORED,
        _TOO_LONG,
        _DRAFTER_LOST,
    ),
    "sudden-fall": (
        _TOO_LONG,
        _TRAFFIC,
        _DRAFTER_LOST,
        LikelyCause(
            "Another drafter was swapped in that does not fit",
            "Look for a mark at the moment of the fall, and swap back.",
            "drafter.model",
        ),
    ),
    "low-acceptance": (
        LikelyCause(
            "The drafter does not know this kind of text",
            "Compare kinds of prompts: specpanel run --set traffic.kinds=code, then another one.",
            "traffic.kinds",
        ),
        _SAMPLING,
        _FLAGS_IGNORED,
        _VOCABULARY,
        _WRONG_HEAD,
    ),
    "cliff": (
        LikelyCause(
            "K is larger than the depth that the drafter was trained for",
            "Compare K with n_predict, num_nextn_predict_layers or block_size in its config.json; set K to "
            "the position before the break.",
            "drafter.k",
            "vllm PR#12755",
        ),
        LikelyCause(
            "Later draft steps run with wrong positions or hidden states (rope settings not read)",
            "Compare with the acceptance by position of its training: there it is conditional.",
            "drafter.model",
            "speculators#738",
        ),
        LikelyCause(
            "Forced acceptance: synthetic_acceptance_length accepts whole positions and then none",
            "Look for rejection_sample_method in the command.",
            None,
        ),
    ),
    "sums-differ": (
        LikelyCause(
            "Several API servers answer in turn behind one address",
            "Scrape twice in one second: counters that fall say so.",
            None,
            "vllm PR#22227",
        ),
        LikelyCause(
            "What answers counts otherwise than vLLM does (a fork, a proxy that rewrites metrics)",
            "Compare /metrics with the line SpecDecoding metrics in the server's log.",
            None,
        ),
    ),
    "context-decay": (
        _TOO_LONG,
        LikelyCause(
            "Long prompts are of another kind of text than short ones",
            "Send prompts of one kind in several lengths.",
            "traffic.kinds",
        ),
        LikelyCause(
            "The drafter was trained on short sequences",
            "Look at the longest sequence of its training; drafters seldom reach beyond it.",
            "drafter.model",
        ),
    ),
    "itl-misread": (
        LikelyCause(
            "It is observed once a step, and a step yields several tokens: no fault of the server",
            "Read time per output token (TPOT) instead; throughput says the same.",
            None,
            "vllm#50600, vllm PR#47382",
        ),
    ),
}


def likely_causes(code: str) -> tuple[LikelyCause, ...]:
    """The causes for a finding's code; empty for one that is not in the table."""
    return PATHOLOGY_CAUSES.get(code, ())
