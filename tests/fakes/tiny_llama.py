"""A target to train against within minutes: a random Llama of four layers with SmolLM2's tokenizer.

Random weights answer with nonsense, but always the same nonsense for the same prompt, so that there is
something to learn.
"""

from pathlib import Path

from fakes.tiny_model import HIDDEN, Weights, ones, vocabulary_of, write_model

LAYERS = 4


def write_tiny_llama(folder: Path, tokenizer: Path) -> Path:
    """Write the model into ``folder``; ``tokenizer`` is the folder of a model that has one."""
    vocabulary = vocabulary_of(tokenizer)
    weights = Weights()
    tensors = {
        "model.embed_tokens.weight": weights.matrix(vocabulary, HIDDEN, 4.0),
        "model.norm.weight": ones(HIDDEN),
        "lm_head.weight": weights.matrix(vocabulary, HIDDEN, 2.0),
    }
    for number in range(LAYERS):
        tensors |= weights.layer(f"model.layers.{number}.")
    config = {
        "architectures": ["LlamaForCausalLM"],
        "initializer_range": 0.02,
        "mlp_bias": False,
        "model_type": "llama",
        "num_hidden_layers": LAYERS,
        "rms_norm_eps": 1e-05,
        "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"},
    }
    return write_model(folder, tokenizer, tensors, config)
