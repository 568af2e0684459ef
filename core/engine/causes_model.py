"""Known failures of the model, its attention and the settings. Pure data."""

from specpanel.core.engine.cause import Cause, cause

MODEL: tuple[Cause, ...] = (
    cause(
        "model-gated",
        r"gated repo|GatedRepoError|401 Client Error|403 Client Error",
        "The hub gives this model to signed-in users only",
        "Ask for access on the model's page and set HF_TOKEN, or use a local folder",
        setting="target.model",
    ),
    cause(
        "hub-offline",
        r"outgoing traffic has been disabled|OfflineModeIsEnabled|LocalEntryNotFound"
        r"|cannot find the requested files in the (?:disk|local) cache"
        r"|couldn't connect to 'https?://|Failed to resolve '|Network is unreachable",
        "The model is not on this machine and the hub cannot be reached",
        "Give a local folder, download the model first, or unset HF_HUB_OFFLINE",
        setting="target.model",
    ),
    cause(
        "model-file",
        r"JSONDecodeError|is not a valid JSON file|MetadataIncompleteBuffer|HeaderTooLarge"
        r"|InvalidHeaderDeserialization|Error while deserializing header",
        "A file of the model is broken or not what its name says",
        "Fetch it again: a download that was cut off, or a Git LFS pointer, looks like this",
        setting="target.model",
    ),
    cause(
        "model-not-found",
        r"RepositoryNotFound|404 Client Error|is not a valid model identifier|HFValidationError"
        r"|Repo id must|is not a local folder|Can't load the configuration of"
        r"|does not appear to have a file named config\.json|Invalid repository ID or local directory",
        "There is no such model: neither a folder with config.json nor a model of the hub",
        "Check the folder's path or the hub id of target.model and drafter.model",
        setting="target.model",
    ),
    cause(
        "remote-code",
        r"trust_remote_code=True|contains custom code which must be executed",
        "The checkpoint needs code of its own to be run",
        "Set target.trust_remote_code if you trust it",
        setting="target.trust_remote_code",
    ),
    cause(
        "max-model-len",
        r"User-specified max_model_len \((?P<asked>\d+)\) is greater than the derived max_model_len "
        r"\((?P<key>\w+)=(?P<length>\d+)",
        "max_model_len {asked} is above what the model was made for ({length})",
        "Set max_model_len to {length} or less",
        setting="target.max_model_len",
    ),
    cause(
        "architecture-unknown",
        r"Model architectures (?P<names>\[.*?\]) (?:are not supported|failed to be inspected)",
        "This vLLM does not know the architecture {names}",
        "Use a vLLM that does, or another checkpoint",
        setting="target.model",
    ),
    cause(
        "quantisation",
        r"(?P<what>\S+ quantization is currently not supported in \S+|The quantization method \S+ is not "
        r"supported for the current GPU|\S+ is not supported for quantization method \S+?\.)",
        "The target's quantisation does not run here: {what}",
        "Use another checkpoint, or another target.dtype",
        setting="target.quantization",
    ),
    cause(
        "architecture-unknown",
        r"Model architecture '(?P<names>[^']+)' is not supported by ROCm",
        "This vLLM does not run the architecture {names} on ROCm",
        "Use another checkpoint or another device",
        setting="target.model",
    ),
    cause(
        "dtype-unsupported",
        r"Bfloat16 is only supported on GPUs with compute capability",
        "This GPU has no bfloat16",
        "Set target.dtype to float16",
        setting="target.dtype",
    ),
)

ATTENTION: tuple[Cause, ...] = (
    cause(
        "attention-backend",
        r"No valid attention backend found for (?P<device>.+?) with .*?Reasons: (?P<reasons>\{.*?\}\.?|.+)",
        "No attention backend fits these settings on {device}: {reasons}",
        "Leave mla.attention_backend, mla.kv_cache_dtype and mla.block_size to vLLM, or mend the "
        "one that is named",
        setting="mla.attention_backend",
    ),
    cause(
        "attention-backend",
        r"Selected backend (?P<backend>\S+) is not valid for this configuration\. "
        r"Reason: (?P<reasons>\[.*?\]|.+)",
        "The attention backend {backend} cannot do this: {reasons}",
        "Choose another mla.attention_backend, or leave it to vLLM",
        setting="mla.attention_backend",
    ),
    cause(
        "attention-backend",
        r"Unknown attention backend: '?(?P<backend>[^'.]+)'?",
        "vLLM has no attention backend {backend}",
        "Choose another mla.attention_backend, or leave it to vLLM",
        setting="mla.attention_backend",
    ),
    cause(
        "mla-prefill-backend",
        r"Selected MLA prefill backend (?P<backend>\S+) is not valid for this configuration\. "
        r"Reason: (?P<reasons>\[.*?\]|.+)",
        "The MLA prefill backend {backend} cannot do this: {reasons}",
        "Choose another mla.mla_prefill_backend, or leave it to vLLM",
        setting="mla.mla_prefill_backend",
    ),
    cause(
        "mla-prefill-backend",
        r"Unknown MLA prefill backend: '?(?P<backend>[^'.]+)'?",
        "vLLM has no MLA prefill backend {backend}",
        "Choose another mla.mla_prefill_backend, or leave it to vLLM",
        setting="mla.mla_prefill_backend",
    ),
    cause(
        "kv-cache-type",
        r"(?P<what>FP8|bfloat16) KV cache is not supported by the Triton MLA backend on (?P<device>.+?) "
        r"\(.*?--kv-cache-dtype (?P<better>\w+)",
        "A KV cache of the type {what} does not work with Triton MLA on {device}",
        "Set mla.kv_cache_dtype to {better}",
        setting="mla.kv_cache_dtype",
    ),
    cause(
        "kv-cache-type",
        r"(?P<what>nvfp4 KV cache is not supported with MLA|only supports an unquantized \(bf16\) KV cache"
        r"|supports only FP16/BF16 KV cache|kv.cache.dtype \S+ (?:is )?not supported|"
        r"Unsupported (?:kv.cache.dtype|data type for kv cache)[^\n]{0,60})",
        "This model, device or attention backend does not take that type of KV cache: {what}",
        "Leave mla.kv_cache_dtype out, or choose another",
        setting="mla.kv_cache_dtype",
    ),
    cause(
        "block-size",
        r"Block_size\((?P<size>\d+)\) should be greater than or equal to and divisible by "
        r"cp_kv_cache_interleave_size \((?P<step>\d+)\)",
        "The block size {size} is no multiple of the interleaving of context parallelism ({step})",
        "Leave mla.block_size out, or choose a multiple of {step}",
        setting="mla.block_size",
    ),
    cause(
        "block-size",
        r"shape '[^']*' is invalid for input of size|view size is not compatible"
        r"|block_size[^\n]{0,40}(?:must be|not supported|should be)",
        "The attention backend does not take this block size",
        "Leave mla.block_size out: vLLM then takes what the backend needs",
        where=r"attention|mla|kv_cache",
        setting="mla.block_size",
    ),
    cause(
        "context-parallel",
        r"tp_size=(?P<tp>\d+) must be divisible by dcp_size=(?P<dcp>\d+)",
        "The tensor parallel size {tp} is not divisible by the decode context parallel size {dcp}",
        "Set mla.decode_context_parallel_size to a divisor of {tp}",
        setting="mla.decode_context_parallel_size",
    ),
    cause(
        "context-parallel",
        r"When PCP is enabled, DCP must be disabled.*?valid DCP sizes are (?P<sizes>\[[^\]]*\])",
        "With prefill context parallelism the decode context parallel size must be one of {sizes}",
        "Set mla.decode_context_parallel_size to one of {sizes}",
        setting="mla.decode_context_parallel_size",
    ),
    cause(
        "context-parallel",
        r"(?P<reason>[^\n:]{0,80}(?:not supported with DCP|native DCP requires|DCP and adaptive|DCP "
        r"multi-token verify requires|DCP-gathered heads)[^\n]{0,80})",
        "Decode context parallelism does not work with these settings: {reason}",
        "Leave mla.decode_context_parallel_size out, or choose no drafter",
        setting="mla.decode_context_parallel_size",
    ),
    cause(
        "rocm-heads",
        r"ROCM?_?\s?AITER[ _]MLA requires (?P<reason>[^\n]{5,160})",
        "AITER's MLA does not take this number of heads: it requires {reason}",
        "Change engine.tensor_parallel_size, or choose mla.attention_backend TRITON_MLA",
        setting="engine.tensor_parallel_size",
    ),
    cause(
        "mla-prefill-backend",
        r"No valid (?:CPU )?MLA prefill backend found(?: with .*?Reasons: (?P<reasons>.+))?",
        "No MLA prefill backend fits this model and device {reasons}",
        "Leave mla.mla_prefill_backend and mla.kv_cache_dtype to vLLM",
        setting="mla.mla_prefill_backend",
    ),
    cause(
        "indexer-type",
        r"(?P<reason>indexer_kv_dtype=\S+ [^\n]{5,160})",
        "The type of the sparse indexer's cache does not work here: {reason}",
        "Leave mla.indexer_kv_dtype out",
        setting="mla.indexer_kv_dtype",
    ),
    cause(
        "kv-cache-type",
        r"(?P<what>\S+ requires (?:the packed fp8_ds_mla KV cache layout|an FP8 KV cache)"
        r"|FP8 (?:KV cache|FlashAttention MLA) (?:is )?not yet supported|only supports the \S+ quantized "
        r"kv-cache dtypes|Invalid kv_cache_dtype: \S+)",
        "This model, device or attention backend does not take that type of KV cache: {what}",
        "Leave mla.kv_cache_dtype out, or choose another",
        setting="mla.kv_cache_dtype",
    ),
    cause(
        "block-size",
        r"share no supported KV cache block size|Aligned KV cache block size \S+ is not supported"
        r"|No common block size for|-token kernel blocks, which packed",
        "Target and drafter, or two kinds of layers, have no block size in common",
        "Leave mla.block_size out, or choose other attention backends (drafter.attention_backend is "
        "chosen apart)",
        setting="mla.block_size",
    ),
    cause(
        "head-size",
        r"Head dimension (?P<size>\S+) is not supported by MLA",
        "MLA does not run with the head dimension {size}",
        "Set mla.disable_mla, at the price of a far larger KV cache",
        setting="mla.disable_mla",
    ),
    cause(
        "context-parallel",
        r"(?P<reason>[^\n:]{0,80}(?:DCP for FlashMLA sparse|PCP\+DCP|decode/prefill context parallel"
        r"|DCP query replication|Decode Context Parallelism \(DCP\) requires|does not support PCP"
        r"|cp_kv_cache_interleave_size|with decode context parallelism|DCP with sparse indexer)[^\n]{0,120})",
        "Context parallelism does not work with these settings: {reason}",
        "Leave mla.decode_context_parallel_size and mla.prefill_context_parallel_size out, or choose "
        "another backend",
        setting="mla.decode_context_parallel_size",
    ),
    cause(
        "layer-kind",
        r"Unknown KV cache group kind '(?P<kind>[^']*)' in backend_per_kind",
        "backend_per_kind names a kind of layer that there is not: {kind}",
        "Correct mla.backend_per_kind",
        setting="mla.backend_per_kind",
    ),
    cause(
        "sparse-attention-on-cpu",
        r"Sparse Attention is not supported on CPU",
        "Models with sparse attention do not run on a CPU",
        "Use a GPU, or a model without it",
        setting="target.model",
    ),
)

SETTINGS: tuple[Cause, ...] = (
    cause(
        "batch-budget",
        r"max_num_batched_tokens \((?P<tokens>\d+)\) (?:is smaller than|must be greater than or equal to) "
        r"(?P<other>\w+) \((?P<least>\d+)\)",
        "max_num_batched_tokens is {tokens}, below {other} ({least})",
        "Raise --max-num-batched-tokens to {least} in engine.arguments, or lower {other}",
        setting="engine.arguments",
    ),
    cause(
        "variable-unknown",
        r"Unknown vLLM environment variable detected: (?P<name>\S+)",
        "This vLLM knows no variable {name}",
        "Take it out of engine.environment and of the environment",
        setting="engine.environment",
    ),
    cause(
        "bad-argument",
        r"error: (?:argument )?(?P<flag>--[\w./-]+): (?P<reason>.+?)(?: to <function .*>)?\.?$",
        "vLLM does not take {flag}: {reason}",
        "Correct the setting behind {flag}; arguments after -- go to vLLM as they are",
    ),
    cause(
        "bad-argument",
        r"error: unrecognized arguments: (?P<flags>.+)",
        "This vLLM does not know the arguments {flags}",
        "Correct or remove them; arguments after -- and engine.arguments go to vLLM as they are",
    ),
    cause(
        "bad-setting",
        r"\d+ validation errors? for (?P<what>\w+)\s+(?:\w+\s+)?(?:(?:Value|Assertion) error, )?"
        r"(?P<reason>.+?)\s*(?:\[type=|For further information|$)",
        "vLLM refuses the settings ({what}): {reason}",
        "Change the setting that the sentence names",
    ),
)
