"""The server that drafts with a chosen acceptance: its profile, its control file, what it has recorded."""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from specpanel.core.errors import LaunchError
from specpanel.core.inside import proposers
from specpanel.core.inside.proposers.chosen_acceptance import CONTROL_VARIABLE
from specpanel.core.lab.asking import prompt_token_ids
from specpanel.core.lab.servers import Serving, Stop
from specpanel.core.settings.drafters import CustomDrafter
from specpanel.core.settings.profile import Profile
from specpanel.core.traffic.records import Prompt

PROPOSER = "chosen_acceptance.ChosenAcceptanceProposer"
_FOLDER = Path(proposers.__file__).parent


@dataclass(frozen=True, slots=True)
class Pricing:
    """Files of one pricing server, in a folder of the experiment's own."""

    folder: Path

    @property
    def control(self) -> Path:
        return self.folder / "control.json"

    @property
    def table(self) -> Path:
        return self.folder / "texts.jsonl"

    def profile(self, profile: Profile, most_k: int) -> Profile:
        """``profile`` with the proposer in place of its drafter; writes the first control file."""
        self.draft(k=0)
        inherited = os.environ.get("PYTHONPATH", "")
        given = profile.engine.environment.get("PYTHONPATH", inherited)
        environment = {
            **profile.engine.environment,
            "PYTHONPATH": os.pathsep.join(part for part in (str(_FOLDER), given) if part),
            CONTROL_VARIABLE: str(self.control),
        }
        engine = profile.engine.model_copy(update={"environment": environment})
        drafter = CustomDrafter(proposer=PROPOSER, k=most_k)
        return profile.model_copy(update={"engine": engine, "drafter": drafter})

    def draft(self, *, k: int, rate: float = 0.0, seed: int = 0) -> None:
        """From the server's next step on, draft ``k`` tokens that are accepted with ``rate`` each."""
        table = str(self.table) if self.table.exists() else None
        partial = self.control.with_suffix(".new")
        partial.write_text(json.dumps({"table": table, "k": k, "rate": rate, "seed": seed}))
        os.replace(partial, self.control)

    async def record(self, server: Serving, prompts: Sequence[Prompt], stop: Stop) -> int:
        """Have the target answer every prompt by itself, and keep the answers; how many there are.

        Raises:
            LaunchError: the server tells no token ids.
        """
        self.draft(k=0)
        done = await server.send(prompts, server.arm.profile.traffic, stop)
        answers = {record.prompt_id: record.token_ids for record in done.records if record.ok}
        rows: list[str] = []
        for prompt in prompts:
            answer = answers.get(prompt.id)
            if not answer:
                continue
            ids = await prompt_token_ids(server.url, server.endpoint.model, prompt)
            rows.append(json.dumps({"prompt": list(ids), "completion": list(answer)}))
        if not rows:
            raise LaunchError("no answer came with its token ids, so none can be drafted from")
        self.table.write_text("\n".join(rows) + "\n")
        return len(rows)
