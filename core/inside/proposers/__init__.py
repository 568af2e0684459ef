"""Proposers that vLLM loads by name; this folder alone stands on its workers' PYTHONPATH."""
