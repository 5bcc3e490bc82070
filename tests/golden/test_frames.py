"""Frames that Apache RocketMQ 5.5.0 wrote, read and written back to the byte.

Taken from `RemotingCommand.encode` with both serialize types; the order inside `extFields` is what
Java's map gave, and ours keeps the order it was handed.
"""

from __future__ import annotations

import pytest

from gantrymq.wire.codes import Language, RequestCode, ResponseCode
from gantrymq.wire.command import ONEWAY, RESPONSE, Command, HeaderType
from gantrymq.wire.connection import Connection

UNIQUE_KEY = "0A01020312347B2A9C0E0001E2400007"

ROUTE = Command(
    RequestCode.GET_ROUTEINFO_BY_TOPIC,
    opaque=7,
    fields={"topic": "TopicTest"},
    language=Language.JAVA,
)
SEND = Command(
    RequestCode.SEND_MESSAGE_V2,
    opaque=9,
    fields={
        "a": "PG", "b": "TopicTest", "c": "TBW102", "d": "4", "e": "1", "f": "0",
        "g": "1700000000000", "h": "0",
        "i": f"UNIQ_KEY\x01{UNIQUE_KEY}\x02WAIT\x01true\x02TAGS\x01TagA\x02",
        "j": "0", "k": "false", "m": "false", "n": "broker-a",
    },
    body=b"hello",
    language=Language.JAVA,
)  # fmt: skip
IDS_CHANGED = Command(
    RequestCode.NOTIFY_CONSUMER_IDS_CHANGED,
    opaque=11,
    flag=ONEWAY,
    fields={"consumerGroup": "CG"},
    language=Language.JAVA,
)


def not_found(*order: str) -> Command:
    values = {
        "suggestWhichBrokerId": "0", "nextBeginOffset": "5", "minOffset": "0", "maxOffset": "5",
        "topicSysFlag": "0", "groupSysFlag": "0",
    }  # fmt: skip
    return Command(
        ResponseCode.PULL_NOT_FOUND,
        opaque=8,
        flag=RESPONSE,
        remark="OFFSET_OVERFLOW_ONE",
        fields={name: values[name] for name in order},
        language=Language.JAVA,
    )


VECTORS = {
    "route-json": (HeaderType.JSON, ROUTE, (
            "00000087000000837b22636f6465223a3130352c226578744669656c6473223a7b22746f706963223a22"
            "546f70696354657374227d2c22666c6167223a302c226c616e6775616765223a224a415641222c226f70"
            "61717565223a372c2273657269616c697a655479706543757272656e74525043223a224a534f4e222c22"
            "76657273696f6e223a3531337d"
        )),
    "route-binary": (HeaderType.BINARY, ROUTE, (
            "0000002d010000290069000201000000070000000000000000000000140005746f70696300000009546f"
            "70696354657374"
        )),
    "not-found-json": (
        HeaderType.JSON,
        not_found(
            "suggestWhichBrokerId", "groupSysFlag", "nextBeginOffset", "maxOffset", "minOffset",
            "topicSysFlag",
        ),
        (
            "00000108000001047b22636f6465223a31392c226578744669656c6473223a7b22737567676573745768"
            "69636842726f6b65724964223a2230222c2267726f7570537973466c6167223a2230222c226e65787442"
            "6567696e4f6666736574223a2235222c226d61784f6666736574223a2235222c226d696e4f6666736574"
            "223a2230222c22746f706963537973466c6167223a2230227d2c22666c6167223a312c226c616e677561"
            "6765223a224a415641222c226f7061717565223a382c2272656d61726b223a224f46465345545f4f5645"
            "52464c4f575f4f4e45222c2273657269616c697a655479706543757272656e74525043223a224a534f4e"
            "222c2276657273696f6e223a3531337d"
        ),
    ),
    "not-found-binary": (
        HeaderType.BINARY,
        not_found(
            "suggestWhichBrokerId", "nextBeginOffset", "minOffset", "maxOffset", "topicSysFlag",
            "groupSysFlag",
        ),
        (
            "000000a30100009f00130002010000000800000001000000134f46465345545f4f564552464c4f575f4f"
            "4e4500000077001473756767657374576869636842726f6b657249640000000130000f6e657874426567"
            "696e4f6666736574000000013500096d696e4f6666736574000000013000096d61784f66667365740000"
            "000135000c746f706963537973466c61670000000130000c67726f7570537973466c61670000000130"
        ),
    ),
    "send-json": (HeaderType.JSON, SEND, (
            "000001640000015b7b22636f6465223a3331302c226578744669656c6473223a7b2261223a225047222c"
            "2262223a22546f70696354657374222c2263223a22544257313032222c2264223a2234222c2265223a22"
            "31222c2266223a2230222c2267223a2231373030303030303030303030222c2268223a2230222c226922"
            "3a22554e49515f4b45595c75303030313041303130323033313233343742324139433045303030314532"
            "3430303030375c7530303032574149545c7530303031747275655c7530303032544147535c7530303031"
            "546167415c7530303032222c226a223a2230222c226b223a2266616c7365222c226d223a2266616c7365"
            "222c226e223a2262726f6b65722d61227d2c22666c6167223a302c226c616e6775616765223a224a4156"
            "41222c226f7061717565223a392c2273657269616c697a655479706543757272656e74525043223a224a"
            "534f4e222c2276657273696f6e223a3531337d68656c6c6f"
        )),
    "send-binary": (HeaderType.BINARY, SEND, (
            "000000ec010000e30136000201000000090000000000000000000000ce00016100000002504700016200"
            "000009546f70696354657374000163000000065442573130320001640000000134000165000000013100"
            "016600000001300001670000000d3137303030303030303030303000016800000001300001690000003e"
            "554e49515f4b455901304130313032303331323334374232413943304530303031453234303030303702"
            "574149540174727565025441475301546167410200016a000000013000016b0000000566616c73650001"
            "6d0000000566616c736500016e0000000862726f6b65722d6168656c6c6f"
        )),
    "ids-changed": (HeaderType.JSON, IDS_CHANGED, (
            "00000088000000847b22636f6465223a34302c226578744669656c6473223a7b22636f6e73756d657247"
            "726f7570223a224347227d2c22666c6167223a322c226c616e6775616765223a224a415641222c226f70"
            "61717565223a31312c2273657269616c697a655479706543757272656e74525043223a224a534f4e222c"
            "2276657273696f6e223a3531337d"
        )),
}  # fmt: skip


@pytest.mark.parametrize(("header_type", "command", "hexes"), VECTORS.values(), ids=VECTORS)
def test_frame(header_type: HeaderType, command: Command, hexes: str) -> None:
    data = bytes.fromhex(hexes)
    assert list(Connection().feed(data)) == [command]
    assert b"".join(Connection(header_type=header_type).encode(command)) == data


def test_a_binary_header_cuts_the_code_of_pop_to_sixteen_bits() -> None:
    data = bytes.fromhex("00000019010000150d7200020100000001000000000000000000000000")
    (command,) = Connection().feed(data)
    assert command.code == RequestCode.POP_MESSAGE & 0xFFFF == 3442


def test_a_command_without_fields() -> None:
    command = Command(RequestCode.UNREGISTER_CLIENT, opaque=1, remark="", language=Language.JAVA)
    text = (
        b'{"code":35,"flag":0,"language":"JAVA","opaque":1,"remark":"",'
        b'"serializeTypeCurrentRPC":"JSON","version":513}'
    )
    assert Connection().encode(command)[0][8:] == text
