"""The page of all rules, from the rules themselves: ``python -m specpanel.core.preflight.listing``."""

import sys

from specpanel.core.preflight.rule import Rule
from specpanel.core.preflight.rules import GROUPS, RULES
from specpanel.core.settings.attention_backends import BACKENDS_VERSION

HEAD = """# Preflight

Before anything is started, `specpanel check`, `specpanel run` and the Launch screen ask {count} rules
whether the launch will work. They look at the profile, at `config.json` and the safetensors headers of
target and drafter, at the port, memory, devices, disk and the environment, and at what the server's
interpreter has installed. Nothing is imported from vLLM, no code of a checkpoint is run, no tensor is read.
What they know of vLLM was read from {version}.

- An **error** means that vLLM would not start or not do what was asked. `run` and Launch refuse;
  `--force` (in Launch: F) starts nevertheless, and the recording and the state file say so.
- A **warning** means that it may disappoint. `specpanel check --strict` ends with 1 on one.
- A **note** is good to know.

`specpanel check PROFILE` ends with 0, with 1 on warnings under `--strict`, and with 2 on errors. Where
settings can end a finding, the key f in Launch sets them, and `--json` has them as `mend`. A rule that lacks
a fact (a model of the hub, an unknown device) stays silent.

The memory table is an estimate of one rank: weights from the safetensors headers in the type they are
served in, KV cache by kind of layer. On a CPU, where vLLM is told the size of the cache, tokens and
concurrency are what vLLM itself reports (SmolLM2-135M with 1 GiB: 23,296 tokens; a small MLA model with 1 GiB
and max_model_len 1000: 231,158; both to the token, `pytest -m engine tests/engine/test_memory_estimate.py`);
on a GPU activations are a guess of 2 GiB, and what fails only by that guess is a warning.
"""


def rules_page() -> str:
    """The whole page as Markdown."""
    parts = [HEAD.format(count=len(RULES), version=BACKENDS_VERSION)]
    for title, rules in GROUPS:
        parts.append(
            f"## {title}\n\n| id | severity | what it means | what to do |\n|---|---|---|---|"
        )
        parts[-1] += "".join(f"\n{_row(rule)}" for rule in rules) + "\n"
    return "\n".join(parts)


def _row(rule: Rule) -> str:
    severity = " or ".join((rule.severity, *rule.also))
    cells = (f"`{rule.id}`", severity, rule.says, rule.fix)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


if __name__ == "__main__":
    sys.stdout.write(rules_page())
