"""Prompts, and load against any OpenAI-compatible endpoint."""
