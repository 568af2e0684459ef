"""Why a checkpoint is not taken."""


class RefusedError(Exception):
    """The checkpoint does not fit the running drafter. Nothing was changed."""
