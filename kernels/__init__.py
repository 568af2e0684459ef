"""Sparse multi-head latent attention (MLA): three ways to compute it, their cost, and which one vLLM takes.

Importing this package, and everything that only explains (``dims``, ``gpus``, ``cost``, ``vllm_rules``,
``vllm_backends``, ``vllm_source``, ``dispatch``, ``explain``), needs neither torch nor Triton. What computes
(``problem``, ``reference``, ``portable``, ``masks``, ``measure``) needs torch; ``triton_mha`` and
``triton_mqa`` need Triton, too. Nothing here knows of ``specpanel.core`` or ``specpanel.app``.
"""
