"""Which messages a consumer asked for, by tag.

A tag expression is `*`, or tags with `||` between them. It is matched twice. The broker has only
the tag's hash code at hand, eight bytes in the consume queue, and lets a message through when the
code is among those of the subscription: quick, and wrong whenever two tags share a code (`Aa` and
`BB` do). So the consumer compares the text once more.

A message without a tag has code 0 and matches `*` alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from gantrymq.errors import InvalidInput
from gantrymq.wire.javahash import int32, java_hash

EVERYTHING: Final = "*"

# What Java's String.trim takes off: every character up to the blank. A hash code has to be of the
# very same text that Java would leave.
_TRIMMED: Final = "".join(map(chr, range(0x21)))


@dataclass(frozen=True, slots=True)
class TagFilter:
    """A tag expression, ready to match; for `*`, `tags` and `codes` are empty.

    RocketMQ: SubscriptionData (subString, tagsSet, codeSet).
    """

    expression: str
    tags: frozenset[str]
    codes: frozenset[int]

    def matches_code(self, code: int | None) -> bool:
        """The broker's test: `code` as the consume queue has it, or None where it is unknown."""
        return code is None or self.expression == EVERYTHING or int32(code) in self.codes

    def matches(self, tag: str | None) -> bool:
        """The consumer's test, which is exact."""
        return self.expression == EVERYTHING or tag in self.tags


def parse_tags(expression: str | None) -> TagFilter:
    """Read `*`, `TagA` or `TagA || TagB`; nothing at all means everything.

    RocketMQ: FilterAPI.buildSubscriptionData.
    """
    if not expression or expression == EVERYTHING:
        return TagFilter(EVERYTHING, frozenset(), frozenset())
    tags = frozenset(part.strip(_TRIMMED) for part in expression.split("||")) - {""}
    if not tags:
        raise InvalidInput(
            f"subString split error: {expression!r} names no tag;"
            f" write '*', 'TagA' or 'TagA || TagB'"
        )
    return TagFilter(expression, tags, frozenset(map(tag_code, tags)))


@lru_cache(maxsize=4096)
def tag_code(tag: str | None) -> int:
    """The number that stands for `tag` in the consume queue; 0 for no tag.

    RocketMQ: MessageExtBrokerInner.tagsString2tagsCode.
    """
    return java_hash(tag) if tag else 0
