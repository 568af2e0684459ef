"""The one error of this room."""


class MLAError(ValueError):
    """A model, table or question that has no answer here.

    Args:
        message: one sentence, without a full stop at its end, that says what is wrong.
        fix: what to do about it, as an instruction; empty when there is nothing to do.
    """

    def __init__(self, message: str, fix: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.fix = fix
