"""Programs that run inside another interpreter (vLLM's or the trainer's), never in the panel."""
