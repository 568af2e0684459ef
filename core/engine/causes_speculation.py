"""Known failures of drafters. Pure data."""

from specpanel.core.engine.cause import Cause, cause
from specpanel.core.engine.causes_drafter_settings import CHECKPOINTS, REFUSED

WRONG_WEIGHTS = (
    "Check that the folder holds what the method asks for, trained for this target, "
    "and that this vLLM knows its architecture"
)


# Rooms in a step and pieces of a target that drafters need.
_NEEDS: tuple[Cause, ...] = (
    cause(
        "draft-budget",
        r"based on the speculative decoding settings, which does not allow any tokens"
        r"|does not have enough slots to schedule a token and support the speculative decoding",
        "A step has no room for the drafts: max_num_batched_tokens is too small for max_num_seqs and K",
        "Raise --max-num-batched-tokens in engine.arguments, or lower max_num_seqs or K",
        setting="engine.max_num_seqs",
    ),
    cause(
        "speculation-and-pipeline",
        r"does not support \S+ with pipeline parallelism|unavailable on this PP stage",
        "This drafter does not work with pipeline parallelism",
        "Leave --pipeline-parallel-size out, or choose another drafter",
        setting="engine.arguments",
    ),
    cause(
        "target-embedding-missing",
        r"Target model does not have (?:a |an )?'\w+'(?: or '\w+')? attribute",
        "vLLM's class for this target does not hand out the embedding that the drafter shares",
        "Use another drafter (ngram, suffix) or a newer vLLM",
        setting="drafter.method",
    ),
    cause(
        "method-not-on-cpu",
        r"ngram_gpu speculative decoding requires Triton",
        "The drafter ngram_gpu needs a GPU with Triton",
        "Use the drafter ngram",
        setting="drafter.method",
    ),
    cause(
        "synthetic-settings",
        r"Block verification is incompatible with synthetic",
        "The rejection methods block and synthetic exclude each other",
        "Choose one of them",
        setting="drafter.rejection_sample_method",
    ),
    cause(
        "not-parallel",
        r"Model config must specify `dflash_config\.mask_token_id`",
        "The drafter was not trained to draft all positions at once: its config.json names no mask token",
        "Use it as eagle3 or draft_model, or a drafter trained for parallel drafting",
        setting="drafter.method",
    ),
    cause(
        "drafter-config",
        r"(?P<reason>LiLiCorr [^\n]{5,120}|sample_from_anchor=True is not supported for DFlash"
        r"|eagle_aux_hidden_state_layer_ids must be set|'transformer_layer_config' must be a dictionary)",
        "The drafter's checkpoint is not one that this vLLM can run: {reason}",
        "Use a checkpoint made for this method and target",
        setting="drafter.model",
    ),
    cause(
        "mtp-settings",
        r"index_share_for_mtp_iteration is only supported",
        "index_share_for_mtp_iteration belongs to the drafter mtp alone",
        "Leave it out",
        setting="drafter.index_share_for_mtp_iteration",
    ),
    cause(
        "metrics-without-drafter",
        r"--per-request-spec-decode-metrics requires speculative decoding",
        "Acceptance by request was asked for, and there is no drafter",
        "Choose a drafter, or take the argument out",
        setting="drafter.method",
    ),
    cause(
        "watermarking",
        r"(?P<reason>[^\n:]{0,80}watermarking[^\n]{0,100})",
        "Watermarking and this way of drafting exclude each other: {reason}",
        "Switch one of the two off",
        where=r"[Ss]peculative|draft",
        setting="drafter.method",
    ),
)

SPECULATION: tuple[Cause, ...] = (
    *REFUSED,
    *CHECKPOINTS,
    *_NEEDS,
    cause(
        "eagle3-interface-missing",
        r"not support (?:the )?EAGLE-?3 interface",
        "vLLM's class for this target does not hand out the hidden states that EAGLE-3 drafters need",
        "Use another drafter (ngram, suffix or draft_model work with any target) or a newer vLLM",
        setting="drafter.method",
    ),
    cause(
        "vocabulary-mismatch",
        r"same vocabulary size.*?Target model vocab_size=(?P<target>\d+).*?"
        r"Draft model vocab_size=(?P<draft>\d+)",
        "The draft model's vocabulary ({draft}) is not the target's ({target})",
        "Use a draft model of the same family with the same tokenizer",
        setting="drafter.model",
    ),
    cause(
        "method-not-on-cpu",
        r"pin_memory=True requires|no pinned memory allocator",
        "The drafter ngram_gpu needs a GPU",
        "Use the drafter ngram, which is the same on a CPU",
        where=r"_ngram_pinned|ngram_gpu",
        setting="drafter.method",
    ),
    cause(
        "method-not-on-cpu",
        r"pin_memory=True requires|no pinned memory allocator",
        "A part of this launch needs a GPU, and vLLM runs on a CPU",
        "Choose a drafter that runs on a CPU, such as ngram",
        setting="drafter.method",
    ),
    cause(
        "runner",
        r"Model Runner V1 does not support: (?:[^\n]*, )?adaptive draft verification",
        "Adaptive verification needs vLLM's model runner V2, and this machine or setting has V1",
        "Switch enable_adaptive_verification off; V2 needs a GPU with Triton",
        setting="drafter.enable_adaptive_verification",
    ),
    cause(
        "runner",
        r"Model Runner V1 does not support: (?:[^\n]*, )?prefill context parallel",
        "Prefill context parallelism needs vLLM's model runner V2, and this machine or setting has V1",
        "Leave mla.prefill_context_parallel_size out; V2 needs a GPU with Triton",
        setting="mla.prefill_context_parallel_size",
    ),
    cause(
        "runner",
        r"Model Runner V1 does not support: (?P<what>pipeline parallelism with async scheduling)",
        "vLLM's model runner V1 cannot do {what}",
        "Pass --no-async-scheduling in engine.arguments",
        setting="engine.arguments",
    ),
    cause(
        "runner",
        r"Model Runner V1 does not support: (?P<what>[^\n]+)",
        "vLLM's model runner V1, which this machine or setting chose, cannot do: {what}",
        "Choose another drafter; V2 needs a GPU with Triton",
        setting="drafter.method",
    ),
    cause(
        "runner",
        r"Model Runner V2 (?:does not support|does not yet support):? (?P<what>[^\n]+)",
        "vLLM's model runner V2, which was asked for, cannot do: {what}",
        "Unset VLLM_USE_V2_MODEL_RUNNER: vLLM then takes the runner that can",
        setting="engine.environment",
    ),
    cause(
        "runner",
        r"Model Runner V2 requires Triton",
        "vLLM's model runner V2 needs Triton, which is not there",
        "Unset VLLM_USE_V2_MODEL_RUNNER",
        setting="engine.environment",
    ),
    cause(
        "mtp-not-in-checkpoint",
        r"Unsupported speculative method: '?mtp\b",
        "The target's checkpoint has no MTP layers that this vLLM knows",
        "Use a checkpoint that has them, or another drafter",
        setting="drafter.method",
    ),
    cause(
        "method-unknown",
        r"NotImplementedError: (?P<method>\w+) is not supported yet",
        "vLLM's model runner has no drafter {method}",
        "Choose another method",
        where=r"spec_decode",
        setting="drafter.method",
    ),
    cause(
        "method-unknown",
        r"(?:Unsupported speculative method|Unknown speculative decoding method): '?(?P<method>\w+)",
        "vLLM does not know the drafter method {method}, or not for this checkpoint",
        "Choose another method",
        setting="drafter.method",
    ),
    cause(
        "synthetic-on-cpu",
        r"Synthetic acceptance not supported",
        "Forced (synthetic) acceptance does not run on a CPU",
        "Use the standard rejection sampling",
        setting="drafter.rejection_sample_method",
    ),
    cause(
        "draft-tokens",
        r"num_speculative_tokens[:= ]*(?P<k>\d+)? must be divisible by n_predict[= ]*(?P<n>\d+)",
        "K must be a multiple of the checkpoint's {n} draft layers",
        "Set K to a multiple of {n}",
        setting="drafter.k",
    ),
    cause(
        "draft-tokens",
        r"num_speculative_tokens.{0,4}(?:was not|must be) provided",
        "This drafter's checkpoint does not say how many tokens to draft",
        "Set K (drafter.k)",
        setting="drafter.k",
    ),
    cause(
        "drafter-parallel-size",
        r"cannot be other value than 1 or target model tensor_parallel_size",
        "The drafter can be split over one device or over as many as the target",
        "Set draft_tensor_parallel_size to 1 or to tensor_parallel_size",
        setting="drafter.draft_tensor_parallel_size",
    ),
    cause(
        "drafter-weights",
        r"no module or parameter named '(?P<name>[^']+)'",
        "The drafter's checkpoint holds a tensor that its architecture has no place for ({name})",
        WRONG_WEIGHTS,
        where=r"drafter\.load_model|spec_decode|speculator",
        setting="drafter.model",
    ),
    cause(
        "drafter-weights",
        r"^KeyError: '(?P<name>[\w.]*(?:weight|scale|bias|norm|fc|embed|d2t|t2d)[\w.]*)'",
        "The drafter's checkpoint and its class in vLLM name their tensors otherwise ({name})",
        WRONG_WEIGHTS,
        where=r"drafter\.load_model|spec_decode|speculator|eagle|load_draft",
        setting="drafter.model",
    ),
    cause(
        "weights",
        r"^KeyError: '(?P<name>[\w.]*(?:weight|scale|bias|norm|embed)[\w.]*)'",
        "The checkpoint and its class in vLLM name their tensors otherwise ({name})",
        "Check that this vLLM knows the checkpoint's architecture and quantisation",
        where=r"load_weights",
        setting="target.model",
    ),
    cause(
        "weights",
        r"no module or parameter named '(?P<name>[^']+)'",
        "The checkpoint holds a tensor that its architecture has no place for ({name})",
        "Check that the folder is whole and that this vLLM knows its architecture and quantisation",
        setting="target.model",
    ),
    cause(
        "drafter-shapes",
        r"shapes cannot be multiplied|size mismatch|must match the size|shape mismatch"
        r"|sizes? of tensor|Attempted to load weight|AssertionError$",
        "The drafter's sizes do not fit the target's",
        WRONG_WEIGHTS,
        where=r"drafter\.|spec_decode|speculator|eagle",
        setting="drafter.model",
    ),
)
