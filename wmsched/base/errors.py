"""The few kinds of error wmsched raises. Each message names the value, the place and the remedy."""


class WmschedError(Exception):
    """Base of everything wmsched raises on purpose."""


class LogError(WmschedError):
    """A line of a tuning log cannot be read.

    Attributes
    ----------
    place : str
        ``file:line`` of the bad line, or "" when it came from memory.
    reason : str
        What is wrong with it, in one sentence.
    """

    def __init__(self, reason: str, *, place: str = "") -> None:
        super().__init__(f"{place}: {reason}" if place else reason)
        self.place = place
        self.reason = reason


def shown(value: object) -> str:
    """The beginning of a value that somebody else wrote, for the message of an error."""
    try:
        return str(value)[:60]
    except RecursionError:  # Python writes no list that is nested a thousand deep, though it reads one
        return "[[[[..."


class BundleError(WmschedError):
    """A bundle is missing, broken, or was written for other features or another format version."""


class DatasetError(WmschedError):
    """A dataset directory is missing, incomplete, or has another schema version."""


class EnvironmentProblem(WmschedError):
    """What the command needs (a TVM with AutoScheduler, say) is not installed or is in the way."""


class UnknownName(WmschedError):
    """A task, model or bundle name that nothing answers to."""
