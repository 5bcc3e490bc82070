from __future__ import annotations

import pickle

import pytest

from gantrymq.protocol.enums import Boundary, ConsumeType, LanguageName, MessageModel
from gantrymq.protocol.json_shapes import shape
from gantrymq.protocol.scalars import Unreadable
from gantrymq.wire.codes import Language


def test_any_case_will_do() -> None:
    assert MessageModel("clustering") is MessageModel.CLUSTERING


def test_strangers_are_equal_by_name_and_not_kept() -> None:
    stranger = ConsumeType("CONSUME_SOMEHOW")
    assert stranger == ConsumeType("CONSUME_SOMEHOW") == "CONSUME_SOMEHOW"
    assert stranger not in list(ConsumeType)
    assert pickle.loads(pickle.dumps(stranger)) == stranger
    with pytest.raises(ValueError, match="5 is not a valid ConsumeType"):
        ConsumeType(5)


def test_positions() -> None:
    assert shape(ConsumeType).read(1) is ConsumeType.PUSH
    with pytest.raises(Unreadable, match="the name of a ConsumeType, not 9"):
        shape(ConsumeType).read(9)


def test_boundaries() -> None:
    assert [Boundary("Upper"), Boundary("")] == [Boundary.UPPER, Boundary.LOWER]


def test_languages_by_name() -> None:
    form = shape(LanguageName)
    assert form.read("python") is Language.PYTHON
    assert form.read(3) is Language.PYTHON
    assert form.read("COBOL") is None
    assert form.write(Language.GO) == "GO"
    with pytest.raises(Unreadable, match="the name of a language"):
        form.read([])
