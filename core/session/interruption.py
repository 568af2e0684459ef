"""What is raised where the user asked to stop before the end."""


class InterruptedRunError(Exception):
    """The user asked to stop; what was started is ended on the way out."""
