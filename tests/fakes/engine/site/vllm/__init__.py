"""A small program with the outside of vLLM 0.32.0, for tests: flags, log, processes, HTTP, metrics.

It computes nothing: tokens and accepted drafts follow a pattern. Standard library only.
"""

__version__ = "0.32.0"
