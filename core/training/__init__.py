"""Training a drafter with Speculators: data, hidden states, trainer, and what came of it."""
