"""Why Gantry's servers do not answer some codes, in a sentence for whoever asked.

The sentence goes out with the refusal, and stands beside the code in the reference. A code that a
server answers, or that is merely meant for the other kind of server, needs none.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from gantrymq.wire.codes import RequestCode

_RETIRED: Final = "no release of RocketMQ answers it any more"
_CLIENTS: Final = "brokers ask it of clients"
_NAME_SERVERS: Final = "name servers answer it"
_OLD_ACCESS: Final = (
    "there are no users and access rules yet, neither these of RocketMQ 4 nor those of 5: keep the "
    "broker on a network that you trust, or behind TLS with client certificates"
)
_ACCESS: Final = (
    "there are no users and access rules yet: keep the broker on a network that you trust, or "
    "behind TLS with client certificates"
)
_ALONE: Final = "brokers have no replicas, so there is nothing to keep in step"
_CONTROLLER: Final = (
    "there is no controller: brokers have no replicas among which a master would be elected"
)
_CONTAINER: Final = "a broker is a process of its own (gantry broker), there are no containers"
_ROCKSDB: Final = "nothing is kept in RocksDB: queues are files, settings are JSON files already"
_COLD: Final = "reads of old messages are not throttled: they do not hold up other requests"
_POP: Final = "what is popped is noted in the log, there is no other place to move it from"
_LITE: Final = "lite topics are not offered yet"

_BY_REASON: Final[dict[str, tuple[int, ...]]] = {
    _RETIRED: (13, 22, 23, 27, 47, 209, 210, 211, 212, 213, 214, 301, 302),
    _CLIENTS: (39, 40, 220, 221, 326),
    _NAME_SERVERS: (
        *(100, 101, 102, 103, 104, 105, 106, 205, 206, 216, 217, 219, 224, 304, 311, 312, 313, 318),
        *(319, 322, 327, 901, 904),
    ),
    _OLD_ACCESS: (50, 51, 52, 53, 54),
    _ACCESS: tuple(range(3001, 3011)),
    _ALONE: (60, 61, 905, 906),
    _CONTROLLER: (*range(1001, 1014),),
    _CONTAINER: (902, 903),
    _ROCKSDB: (354, 355),
    _COLD: (2001, 2002, 2003),
    "the system reads ahead as it sees fit: files are not mapped for reading with advice": (2004,),
    "topics have as many queues as their brokers give them; moving queues between brokers under "
    "fixed numbers is not offered": (513,),
    _POP: (200056,),
    _LITE: (200070, 200071, 200072, 200073, 200075, 200076, 200077, 200078, 200079),
}

REASONS: Final = MappingProxyType(
    {RequestCode(code): why for why, codes in _BY_REASON.items() for code in codes}
)
"""Why a code is not answered, for those that no server or not every server answers."""


def remark(code: int) -> str:
    """What a refusal says."""
    text = f" request type {code} not supported"
    known = RequestCode(code)
    if known.known:
        text += f": {known.name}"
        why = REASONS.get(known)
        text += f" ({why})" if why else ""
    return text
