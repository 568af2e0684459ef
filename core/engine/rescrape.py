"""The metrics of one server, scraped again and again: only the lines that changed are read. Pure."""

from specpanel.core.engine.exposition import PREFIX, Sample, sample_of, samples_of
from specpanel.core.engine.metrics import Exposition, exposition_of, refuse_or_explain

MOST_CHARACTERS = 1 << 20
"""Of a part of a body that is remembered; vLLM's is about 50,000, and 64 engines have 4 million."""


class ExpositionReader:
    """Reads what ``parse_exposition`` reads. The same counters come back as the same object."""

    def __init__(self) -> None:
        self._part = ""
        self._found: Exposition | None = None
        self._read: dict[str, Sample | None] = {}  # by line, None where it has no role

    def read(self, text: str) -> Exposition:
        """Read the next body.

        Raises:
            ExpositionError: the body ends in the middle of a line, or a line that is needed is malformed.
        """
        explained = refuse_or_explain(text)
        if explained is not None:
            return explained
        part = _part_of_vllm(text)
        if self._found is not None and part == self._part:
            return self._found
        if len(part) > MOST_CHARACTERS:
            self._found, self._part, self._read = None, "", {}
            return exposition_of(samples_of(part))
        read: dict[str, Sample | None] = {}
        samples: list[Sample] = []
        for line in part.split("\n"):
            sample = self._read[line] if line in self._read else sample_of(line)
            read[line] = sample
            if sample is not None:
                samples.append(sample)
        found = exposition_of(samples)
        self._part, self._found, self._read = part, found, read
        return found


def _part_of_vllm(text: str) -> str:
    """From the first line that names a metric of vLLM to the last; what other lines say has no role."""
    first, last = text.find(PREFIX), text.rfind(PREFIX)
    end = text.find("\n", last)
    return text[text.rfind("\n", 0, first) + 1 : len(text) if end < 0 else end]
