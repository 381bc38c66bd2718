"""Exceptions that wmsched raises. Each message names the value, the place and the remedy."""


class WmschedError(Exception):
    """Base of every exception that wmsched raises on purpose."""


class LogError(WmschedError):
    """A line of a tuning log cannot be read.

    Attributes
    ----------
    place : str
        ``file:line`` of the bad line; "" when the line came from memory.
    reason : str
        What is wrong with the line, in one sentence.

    Examples
    --------
    >>> str(LogError("not JSON", place="log.json:3"))
    'log.json:3: not JSON'
    """

    def __init__(self, reason: str, *, place: str = "") -> None:
        super().__init__(f"{place}: {reason}" if place else reason)
        self.place = place
        self.reason = reason


def shown(value: object) -> str:
    """Return the first 60 characters of a foreign value, for an error message."""
    try:
        return str(value)[:60]
    except RecursionError:  # str() fails on a list nested a thousand deep, which the JSON reader accepts
        return "[[[[..."


class BundleError(WmschedError):
    """A bundle is missing, damaged, or made for other features or another format version."""


class DatasetError(WmschedError):
    """A dataset directory is missing, incomplete, or has another schema version."""


class EnvironmentProblem(WmschedError):
    """Something the command needs is not installed or gets in the way, such as a TVM with AutoScheduler."""


class UnknownName(WmschedError):
    """No task, model or bundle has the given name."""
