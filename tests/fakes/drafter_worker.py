"""A worker of real vLLM by itself, without engine or server, whose drafter is exchanged and brought back.

Run by vLLM's interpreter: ``drafter_worker.py METHOD TARGET DRAFTER OTHER K [PARALLEL]``. Prints a line of
JSON a step.
"""

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ.update(
    VLLM_CPU_KVCACHE_SPACE="1",
    VLLM_CPU_OMP_THREADS_BIND="nobind",
    OMP_NUM_THREADS="1",
    HF_HUB_OFFLINE="1",
    VLLM_NO_USAGE_STATS="1",
    VLLM_LOGGING_LEVEL="ERROR",
)


def worker(method: str, target: str, drafter: str, k: int, parallel: bool) -> Any:
    """A worker with both models loaded, that has gained the extension as vLLM gives it."""
    from drafter_reload.extension import DrafterReload
    from vllm.config import set_current_vllm_config
    from vllm.engine.arg_utils import EngineArgs
    from vllm.v1.worker.cpu_worker import CPUWorker

    class Worker(DrafterReload, CPUWorker):
        pass

    speculation = {"method": method, "model": drafter, "num_speculative_tokens": k}
    if parallel:
        speculation["parallel_drafting"] = True
    config = EngineArgs(
        model=target,
        dtype="float32",
        enforce_eager=True,
        max_model_len=512,
        max_num_seqs=2,
        speculative_config=speculation,
    ).create_engine_config()
    with set_current_vllm_config(config), tempfile.TemporaryDirectory() as folder:
        made = Worker(
            vllm_config=config,
            local_rank=0,
            rank=0,
            distributed_init_method=f"file://{folder}/store",
            is_driver_worker=True,
        )
        made.init_device()
        made.load_model()
    return made


def told(step: str, answer: dict[str, Any]) -> dict[str, Any]:
    sys.stdout.write(json.dumps({"step": step, **answer}) + "\n")
    sys.stdout.flush()
    return answer


def main(method: str, target: str, drafter: str, other: str, k: str, parallel: str = "") -> None:
    one = worker(method, target, drafter, int(k), bool(parallel))
    told("start", one.specpanel_drafter_status())
    prepared = told("prepare", one.specpanel_prepare_drafter(other))
    told("prepared", one.specpanel_drafter_status())
    told("commit", one.specpanel_commit_drafter(prepared["digest"]))
    told("committed", one.specpanel_drafter_status())
    told("undo", one.specpanel_undo_drafter())
    told("undone", one.specpanel_drafter_status())
    for name in (other, drafter):
        prepared = one.specpanel_prepare_drafter(name)
        one.specpanel_commit_drafter(prepared["digest"])
    told("swapped back", one.specpanel_drafter_status())


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2] / "core" / "inside"))
    main(*sys.argv[1:])
    os._exit(0)  # vLLM's own threads outlive the worker
