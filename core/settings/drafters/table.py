"""What each drafter needs and where it runs, as data. Pure.

Read from vLLM 0.32.0 and Speculators 0.9.0; files in ``source`` lie below the package ``vllm``. "yes" is
read from the source or was run, "part" holds with the note beside it, "unknown" was neither read nor run.
"""

from dataclasses import dataclass
from typing import Literal

Support = Literal["yes", "part", "no", "unknown"]
Runner = Literal["v1", "v2"]
Device = Literal["cuda", "rocm", "cpu"]
WeightsFrom = Literal["none", "own", "target", "either"]

READ_FROM = "0.32.0"
RUNNERS: tuple[Runner, ...] = ("v1", "v2")
DEVICES: tuple[Device, ...] = ("cuda", "rocm", "cpu")


@dataclass(frozen=True, slots=True)
class Cell:
    """Whether something works, and what must be said of it."""

    support: Support
    note: str = ""


YES, NO = Cell("yes"), Cell("no")


@dataclass(frozen=True, slots=True)
class DrafterFacts:
    """One drafter. ``needs`` fits a column, ``about`` is a sentence. ``v1`` and ``v2``: model runners."""

    method: str
    title: str
    vllm_method: str | None
    weights: WeightsFrom
    needs: str
    about: str
    v1: Cell
    v2: Cell
    cuda: Cell
    rocm: Cell
    cpu: Cell
    lora: Cell
    pipeline_parallel: Cell
    data_parallel: Cell
    prefix_caching: Cell
    structured_output: Cell
    trainable: Cell
    hot_swap: Cell
    source: tuple[str, ...]


_LORA = Cell("yes", "max_num_batched_tokens must reach max_num_seqs times K+1")
_PIPELINE = Cell(
    "part",
    "the last rank drafts; wrong text was reported with several methods (vllm#49355, #52069)",
)
_DATA = Cell("yes", "K by batch size is switched off")
_STRUCTURED = Cell("yes", "drafts that break the grammar are dropped before they are verified")
_BLOCK = Cell(
    "part", "the last block of a cached prefix is computed again, unless that is switched off"
)
_NO_V2 = Cell("no", "vLLM takes runner V1 by itself, and refuses where V2 is forced")
_ROCM_HEAD = Cell("yes", "with K above 1 runner V1 takes only the attention backends that it lists")
_TRAINED = Cell("yes", "speculators train")
_NOT_TRAINED = Cell("no", "Speculators 0.9 does not train it")
_NOTHING_TO_SWAP = Cell("no", "there are no weights to swap")
_SWAP_UNTRIED = Cell("unknown", "vLLM hands the drafter out, but swapping this one was not tried")
_SWAPPED_IN_A_WORKER = Cell(
    "yes", "exchanged and brought back in a worker on a CPU; not under load"
)
_CONFIG = "config/speculative.py"
_V2_LIST = "config/vllm.py:2914"
_V1_LIST = "config/vllm.py:2955"
_GPU_RUNNER = "v1/worker/gpu_model_runner.py:596"


def _free(
    method: str, title: str, needs: str, about: str, *, v1: Cell = YES, v2: Cell, **other: Cell
) -> DrafterFacts:
    """A drafter without weights."""
    return DrafterFacts(
        method=method,
        title=title,
        vllm_method={"none": None, "custom": "custom_class"}.get(method, method),
        weights="none",
        needs=needs,
        about=about,
        v1=v1,
        v2=v2,
        cuda=other.get("cuda", YES),
        rocm=other.get("rocm", YES),
        cpu=other.get("cpu", YES),
        lora=other.get("lora", _LORA),
        pipeline_parallel=other.get("pipeline_parallel", _PIPELINE),
        data_parallel=other.get("data_parallel", _DATA),
        prefix_caching=YES,
        structured_output=other.get("structured_output", _STRUCTURED),
        trainable=Cell("no", "there is nothing to train"),
        hot_swap=_NOTHING_TO_SWAP,
        source=(_CONFIG, _V2_LIST, _GPU_RUNNER),
    )


def _head(
    method: str,
    title: str,
    vllm_method: str,
    needs: str,
    about: str,
    *,
    weights: WeightsFrom = "own",
    v1: Cell = YES,
    v2: Cell = YES,
    cpu: Cell = YES,
    trainable: Cell = _NOT_TRAINED,
    hot_swap: Cell = _SWAP_UNTRIED,
    prefix_caching: Cell = _BLOCK,
    data_parallel: Cell = _DATA,
    rocm: Cell = _ROCM_HEAD,
    source: tuple[str, ...] = (),
) -> DrafterFacts:
    """A drafter with weights."""
    return DrafterFacts(
        method=method,
        title=title,
        vllm_method=vllm_method,
        weights=weights,
        needs=needs,
        about=about,
        v1=v1,
        v2=v2,
        cuda=YES,
        rocm=rocm,
        cpu=cpu,
        lora=_LORA,
        pipeline_parallel=_PIPELINE,
        data_parallel=data_parallel,
        prefix_caching=prefix_caching,
        structured_output=_STRUCTURED,
        trainable=trainable,
        hot_swap=hot_swap,
        source=(_CONFIG, _V2_LIST, _V1_LIST, *source),
    )


_ALL: tuple[DrafterFacts, ...] = (
    _free(
        *("none", "plain decoding", "nothing", "One token a step; the baseline."),
        v2=YES,
        lora=YES,
        pipeline_parallel=YES,
        data_parallel=YES,
        structured_output=YES,
    ),
    _free(
        *("ngram", "n-gram", "nothing", "Repeats what followed the same tokens in this request."),
        v2=Cell("yes", "drafts on the GPU there"),
        cpu=Cell("yes", "numba"),
    ),
    _free(
        *("ngram_gpu", "n-gram on the GPU", "nothing", "N-gram with asynchronous scheduling."),
        v2=YES,
        data_parallel=YES,
        cpu=Cell("no", "needs pinned memory and CUDA streams"),
    ),
    _free(
        "suffix",
        "suffix decoding",
        "arctic-inference",
        "A suffix tree over this and earlier answers; K is only the most it drafts.",
        v2=_NO_V2,
        data_parallel=YES,
        cpu=Cell("yes", "with arctic-inference==0.1.1 beside vLLM"),
    ),
    _head(
        "draft_model",
        "draft model",
        "draft_model",
        "a smaller model",
        "A smaller model of the same vocabulary; another vocabulary only on runner V1.",
        prefix_caching=YES,
        hot_swap=_SWAPPED_IN_A_WORKER,
        source=("v1/spec_decode/draft_model.py",),
    ),
    _head(
        "pard",
        "PARD",
        "draft_model",
        "a PARD model",
        "A draft model trained to draft every position at once (parallel_drafting).",
        v2=_NO_V2,
        prefix_caching=YES,
        source=("v1/spec_decode/draft_model.py",),
    ),
    _head(
        *("eagle", "EAGLE", "eagle", "an EAGLE head"),
        "A head over the target's last hidden states.",
        source=("v1/spec_decode/eagle.py",),
    ),
    _head(
        "eagle3",
        "EAGLE-3",
        "eagle3",
        "an EAGLE-3 head",
        "A head over three layers of the target, whose class must hand them out (SupportsEagle3); "
        "EAGLE-3.1 is told by fc_norm in its config.json.",
        trainable=_TRAINED,
        hot_swap=Cell("yes", "run on a CPU: acceptance as after a start with the new weights"),
        source=("v1/spec_decode/eagle.py", "transformers_utils/configs/speculators/algos.py:15"),
    ),
    _head(
        "p_eagle",
        "P-EAGLE",
        "eagle3",
        "a P-EAGLE head",
        "EAGLE-3 trained to draft every position at once (parallel_drafting).",
        v2=_NO_V2,
        trainable=_TRAINED,
        hot_swap=_SWAPPED_IN_A_WORKER,
        source=("transformers_utils/configs/speculators/algos.py:54",),
    ),
    _head(
        "dflash",
        "DFlash",
        "dflash",
        "a DFlash drafter",
        "Drafts a block in one pass; its attention backend must support non-causal attention.",
        v1=Cell("part", "not where sliding-window and full attention are mixed"),
        cpu=Cell("part", "not where sliding-window and full attention are mixed"),
        trainable=_TRAINED,
        hot_swap=Cell("yes", "run on a CPU; all tensors in one go"),
        source=("v1/spec_decode/dflash.py", "config/vllm.py:757"),
    ),
    _head(
        "dflash2",
        "DFlash2",
        "dflash",
        "a DFlash2 drafter",
        "DFlash with a head that chooses among candidates; its architecture tells vLLM.",
        v1=Cell("no", "candidate heads are in runner V2 only"),
        cpu=Cell("no", "needs runner V2, which needs Triton"),
        trainable=_TRAINED,
        source=("config/vllm.py:741", "v1/worker/gpu/spec_decode/dflash2/speculator.py"),
    ),
    _head(
        "dspark",
        "DSpark",
        "dspark",
        "a DSpark drafter",
        "A semi-autoregressive block; of its own, or in the checkpoint of DeepSeek V4.",
        weights="either",
        v1=Cell("no", "DSpark is in runner V2 only"),
        cpu=Cell("no", "needs runner V2, which needs Triton"),
        rocm=Cell("part", "the one for Kimi K3 is for NVIDIA only"),
        trainable=_TRAINED,
        source=("v1/worker/gpu/spec_decode/dspark/speculator.py",),
    ),
    _head(
        "mtp",
        "MTP",
        "mtp",
        "MTP layers",
        "The multi-token-prediction layers of the target's own checkpoint (FastMTP is one trained "
        "for several tokens).",
        weights="either",
        trainable=Cell(
            "part", "Qwen3, Qwen3-Next and Qwen3.5 with MTP layers; speculators stitch-mtp"
        ),
        source=("config/speculative.py:660",),
    ),
    _head(
        "medusa",
        "Medusa",
        "medusa",
        "Medusa heads",
        "Several heads on the last hidden state, a token each; K is their number.",
        v2=_NO_V2,
        prefix_caching=YES,
        data_parallel=YES,
        rocm=YES,
        source=("v1/spec_decode/medusa.py",),
    ),
    _free(
        "custom",
        "your own class",
        "a Python class",
        "A proposer class of yours (vLLM's custom_class); the interface may change.",
        v2=_NO_V2,
        cpu=Cell("yes", "the class needs a load_model method there"),
    ),
)
FACTS: dict[str, DrafterFacts] = {facts.method: facts for facts in _ALL}

_RANK: dict[Support, int] = {"no": 0, "unknown": 1, "part": 2, "yes": 3}
_NO_TRITON = Cell("no", "runner V2 needs Triton, which has no CPU backend in vLLM's CPU builds")


def runs(method: str, device: Device, runner: Runner) -> Cell:
    """Whether a drafter runs there: the weaker of what its device and its runner say."""
    facts = FACTS[method]
    cells = [facts.v1 if runner == "v1" else facts.v2, _on(facts, device)]
    if device == "cpu" and runner == "v2":
        cells.insert(0, _NO_TRITON)
    return min(cells, key=lambda cell: _RANK[cell.support])


def runner_for(method: str, device: Device) -> Runner | None:
    """The runner that vLLM takes by itself where ``VLLM_USE_V2_MODEL_RUNNER`` is not set.

    None where it has none for this drafter. It prefers V2, and does not ask whether V1 will do.
    """
    order: tuple[Runner, ...] = ("v1",) if device == "cpu" else ("v2", "v1")
    return next((one for one in order if runs(method, device, one).support != "no"), None)


def _on(facts: DrafterFacts, device: Device) -> Cell:
    return {"cuda": facts.cuda, "rocm": facts.rocm, "cpu": facts.cpu}[device]
