"""Known refusals of a drafter's settings and of its checkpoint. Pure data."""

from specpanel.core.engine.cause import Cause, cause

# Settings that vLLM refuses as it reads them (config/speculative.py, config/vllm.py, engine/arg_utils.py).
REFUSED: tuple[Cause, ...] = (
    cause(
        "synthetic-settings",
        r"(?P<reason>(?:rejection_sample_method='synthetic' requires|synthetic_acceptance_\w+)[^.\n]*)",
        "Forced (synthetic) acceptance is not set right: {reason}",
        "Give either rates that never rise, one a position, or a length from 1 to K+1, and no other "
        "rejection method",
        setting="drafter.rejection_sample_method",
    ),
    cause(
        "lookup-window",
        r"prompt_lookup_min=(?P<low>\d+) must be <= prompt_lookup_max=(?P<high>\d+)",
        "prompt_lookup_min ({low}) is above prompt_lookup_max ({high})",
        "Lower prompt_lookup_min to {high} or less",
        setting="drafter.prompt_lookup_min",
    ),
    cause(
        "lookup-window",
        r"Either prompt_lookup_max or prompt_lookup_min must be",
        "The n-gram drafter was given no length to look up",
        "Set prompt_lookup_min and prompt_lookup_max, both of them",
        setting="drafter.prompt_lookup_max",
    ),
    cause(
        "suffix-settings",
        r"(?P<field>suffix_decoding_\w+)=(?P<value>\S+) must be (?P<rule>[^\n]+)",
        "{field} is {value} and must be {rule}",
        "Correct it, or leave it to vLLM",
        setting="drafter.{field}",
    ),
    cause(
        "k-schedule",
        r"(?P<reason>(?:The first batch-size range must|Batch-size range|num_speculative_tokens_per_batch"
        r"_size (?:must|values|is)|Each num_speculative_tokens_per_batch_size)[^\n]*)",
        "The schedule of K by batch size is not one: {reason}",
        "Begin at 1, let ranges not overlap, and give each a K of 0 or more",
        setting="drafter.k_by_batch_size",
    ),
    cause(
        "adaptive-verification",
        r"(?P<reason>Adaptive verification (?:is not currently compatible with [\w ]+|requires full CUDA "
        r"graphs|trims verification requests on device, which the \S+ attention backend does not support"
        r"|could not profile step costs|estimates per-position acceptance|replays decode cudagraphs"
        r"|without a confidence head))",
        "Adaptive verification does not work with these settings: {reason}",
        "Switch enable_adaptive_verification off, or mend what is named: it needs full CUDA graphs, no "
        "LoRA, no pipeline parallelism and a backend that takes drafts of any length",
        setting="drafter.enable_adaptive_verification",
    ),
    cause(
        "mtp-not-in-checkpoint",
        r"DeepSeek V4\.1 has no classic-MTP draft",
        "This checkpoint has no MTP layers, it has DSpark stages",
        "Choose the drafter dspark",
        setting="drafter.method",
    ),
    cause(
        "mtp-not-in-checkpoint",
        r"checkpoint does not contain MTP weights|mtp_layer_types must have one entry per MTP layer",
        "This checkpoint has no whole MTP layers to draft with",
        "Use a checkpoint that has them, or another drafter",
        setting="drafter.method",
    ),
    cause(
        "dspark-checkpoint",
        r"(?P<reason>Qwen3-Omni DSpark [^\n]{5,200})",
        "The DSpark drafter does not fit the target: {reason}",
        "Use the drafter that was trained for this target, with K equal to its block_size",
        setting="drafter.model",
    ),
    cause(
        "dspark-settings",
        r"(?P<reason>dspark_draft_topk [^\n]{5,120})",
        "A setting of DSpark does not fit: {reason}",
        "Leave dspark_draft_topk out",
        setting="drafter.dspark_draft_topk",
    ),
    cause(
        "drafter-length",
        r"speculative_max_model_len=(?P<asked>\d+) cannot be larger than "
        r"(?P<whose>draft|target)_max_model_len=(?P<most>\d+)",
        "The drafter's max_model_len ({asked}) is above the {whose} model's ({most})",
        "Set drafter.max_model_len to {most} or less",
        setting="drafter.max_model_len",
    ),
    cause(
        "drafter-parallel-size",
        r"'draft_tensor_parallel_size' and 'tensor_parallel_size' must be the same\. Got (?P<draft>\d+) "
        r"and (?P<target>\d+)",
        "A draft model must be split over as many devices as the target ({target}), not {draft}",
        "Set draft_tensor_parallel_size to {target}",
        setting="drafter.draft_tensor_parallel_size",
    ),
    cause(
        "drafter-parallel-size",
        r"'tensor_parallel_size' is not a valid argument in the speculative_config",
        "tensor_parallel_size does not belong into the drafter's settings",
        "Use draft_tensor_parallel_size",
        setting="drafter.draft_tensor_parallel_size",
    ),
    cause(
        "draft-tokens",
        r"Expected num_speculative_tokens to be greater than zero|"
        r"num_speculative_tokens\s+Input should be greater than 0",
        "K must be at least 1",
        "Set K to 1 or more, or choose no drafter",
        setting="drafter.k",
    ),
    cause(
        "drafter-missing",
        r"num_speculative_tokens was provided but without speculative model",
        "K is set and no drafter is",
        "Choose a drafter",
        setting="drafter.method",
    ),
    cause(
        "heterogeneous-vocabulary",
        r"use_heterogeneous_vocab (?:only works with|currently only supports)|VocabMapping:|not supported "
        r"with use_heterogeneous_vocab",
        "A draft model of another vocabulary works with the method draft_model and greedy drafting only, "
        "and its tokenizer needs an unknown or an end token",
        "Set draft_sample_method to greedy, or use a draft model of the same tokenizer",
        setting="drafter.use_heterogeneous_vocab",
    ),
    cause(
        "custom-class",
        r"(?P<reason>(?:Invalid custom proposer module path|Cannot import module '[^']*' for custom proposer"
        r"|Module '[^']*' has no attribute|Failed to instantiate custom proposer class|Custom proposer class "
        r"'[^']*'|method='custom_class' requires)[^\n]{0,160})",
        "The drafter class cannot be used: {reason}",
        "Give package.module.Class that vLLM's workers can import (PYTHONPATH), with __init__(vllm_config), "
        "propose and load_model",
        setting="drafter.proposer",
    ),
    cause(
        "padded-batch",
        r"disable_padded_drafter_batch",
        "This drafter needs the padded batch, and disable_padded_drafter_batch is set",
        "Unset it",
        setting="drafter.disable_padded_drafter_batch",
    ),
    cause(
        "argmax-reduction",
        r"use_local_argmax_reduction (?:is enabled but draft model|is not compatible with)",
        "use_local_argmax_reduction does not work with this drafter or this sampling",
        "Unset it, or draft greedily",
        setting="drafter.use_local_argmax_reduction",
    ),
    cause(
        "async-scheduling",
        r"async scheduling is only supported with EAGLE|Async scheduling is not compatible with",
        "This drafter does not work with asynchronous scheduling, which was asked for",
        "Leave --async-scheduling out: vLLM then decides by itself",
        setting="engine.arguments",
    ),
    cause(
        "lora-budget",
        r"max_num_batched_tokens.{0,80}max_num_seqs.{0,40}num_speculative_tokens",
        "With LoRA a step must have room for every request's draft: max_num_seqs times K+1 tokens",
        "Raise --max-num-batched-tokens, or lower max_num_seqs or K",
        setting="engine.max_num_seqs",
    ),
    cause(
        "speculation-and-pipeline",
        r"(?:speculative decoding|spec\w* decode|eagle|mtp)[^\n]{0,60}pipeline parallel"
        r"|pipeline parallel\w*[^\n]{0,60}(?:speculative|spec decode)",
        "Speculation does not work with pipeline parallelism here",
        "Leave --pipeline-parallel-size out, or choose no drafter",
        setting="engine.arguments",
    ),
)

# What a checkpoint says of itself (transformers_utils/configs/speculators, v1/spec_decode).
CHECKPOINTS: tuple[Cause, ...] = (
    cause(
        "drafter-config",
        r"Invalid speculators config structure|Must provide transformer_layer_config|No proposal methods "
        r"found in speculators config|Missing 'speculative_tokens' in proposal method",
        "The drafter's config.json is not the whole of a Speculators checkpoint",
        "Convert it again, or take the checkpoint that Speculators wrote",
        setting="drafter.model",
    ),
    cause(
        "drafter-config",
        r"Expected one of: \{?(?P<types>[^}.]*)\}?\. Please ensure you're loading a speculators-format",
        "The drafter's speculators_model_type is none that this vLLM knows ({types})",
        "Use a vLLM that knows it, or another drafter",
        setting="drafter.model",
    ),
    cause(
        "drafter-config",
        r"Unsupported model_type (?P<type>\S+) for (?P<kind>\w+) speculator",
        "This vLLM runs no {kind} drafter whose layers are of the type {type}",
        "Train it with layers of the type llama or qwen3",
        setting="drafter.model",
    ),
    cause(
        "not-parallel",
        r"For parallel drafting, the draft model config must have",
        "The drafter was not trained to draft all positions at once: its config.json names no mask token",
        "Use it as eagle3 or draft_model, or a drafter trained for parallel drafting",
        setting="drafter.method",
    ),
    cause(
        "multimodal-positions",
        r"does not support M-RoPE",
        "Draft models and parallel drafting do not work with targets of multimodal rope (M-RoPE)",
        "Use an EAGLE-3 head or n-gram",
        setting="drafter.method",
    ),
    cause(
        "drafter-attention",
        r"Unsupported attention metadata type for speculative decoding"
        r"|does not have non-causal support, which is required"
        r"|no non-causal fp8 MLA kernel",
        "The drafter's attention backend cannot do what the drafter needs",
        "Choose another drafter.attention_backend (it is never the target's), such as FLASH_ATTN or "
        "TRITON_MLA",
        setting="drafter.attention_backend",
    ),
)
