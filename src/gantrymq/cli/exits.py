"""How `gantry` ends: an exit code for each kind of ending, and the error that each stands for.

| Code | Meaning |
|---|---|
| 0 | done |
| 1 | it failed; the line on stderr says why |
| 2 | used wrongly: an option, a name or a value that cannot be right |
| 3 | what was asked for is not there |
| 4 | refused for safety: it needs `--yes`, or `--force`, or the answer was no |
| 5 | no answer in time |
| 6 | done at some servers and not at others; stderr says which |
| 130 | ended by Ctrl-C |
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gantrymq import errors

OK: Final = 0
FAILED: Final = 1
USAGE: Final = 2
NOT_FOUND: Final = 3
REFUSED: Final = 4
TIMEOUT: Final = 5
PARTIAL: Final = 6
INTERRUPTED: Final = 130

_BY_KIND: Final[Mapping[type[Exception], int]] = {
    errors.TopicNotFound: NOT_FOUND,
    errors.GroupNotFound: NOT_FOUND,
    errors.NotFound: NOT_FOUND,
    errors.ConsumerOffline: NOT_FOUND,
    errors.NoRoute: NOT_FOUND,
    errors.PartlyDone: PARTIAL,
    errors.InvalidInput: USAGE,
    TimeoutError: TIMEOUT,
    errors.ReadFailed: TIMEOUT,
}


class Refused(errors.GantryError):
    """Not done, because nobody has said that it is really meant."""


def code_of(error: BaseException) -> int:
    """The exit code that stands for an error."""
    if isinstance(error, Refused):
        return REFUSED
    return next((code for kind, code in _BY_KIND.items() if isinstance(error, kind)), FAILED)
