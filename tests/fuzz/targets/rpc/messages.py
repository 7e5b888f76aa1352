"""Messages of any kind, made from the bytes of an input after the descriptor of their kind."""

from collections.abc import Sequence
from typing import Any, Final

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from tests.fuzz.material import Choices

_WORDS: Final = (
    *("s1", "note-1", "note-2", "t1", "alice", "bob", "cli", "../x", "a b", "", " ", "x"),
    *("a\0b", "a\nb", "\u202e", "é" * 70, "/shared", "/etc", "agent", "shell", "fact", "user"),
    *("help", "remember that tea is green", "what do you know about tea", "forget note-1"),
    *("file_read", "memory_save", '{"content": "x"}', '{"path": "/shared/a"}', "{", "[]"),
)
_NUMBERS: Final = (0, 1, 2, 20, 21, 1000, 1001, 2**31, 2**32 - 1, 2**53, 2**63 - 1, 2**64 - 1)
_DEPTH_MAX: Final = 3
_BITS: Final = {
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63),
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64),
}


def fill(
    message: Message, choices: Choices, words: Sequence[str] = (), depth: int = _DEPTH_MAX
) -> None:
    """Set fields of `message`. `words` are further texts that mean something to its receiver."""
    for field in message.DESCRIPTOR.fields:
        if not choices.below(4):
            continue
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            _fill_inner(message, field, choices, words, depth)
        elif field.is_repeated:
            many = choices.one_of((1, 2, 16, 17, 257)) if not choices.below(8) else 1
            getattr(message, field.name).extend([_value(field, choices, words)] * many)
        else:
            setattr(message, field.name, _value(field, choices, words))


def _fill_inner(
    message: Message, field: Any, choices: Choices, words: Sequence[str], depth: int
) -> None:
    if field.message_type.GetOptions().map_entry or not depth:
        return
    inner = getattr(message, field.name)
    fill(inner.add() if field.is_repeated else inner, choices, words, depth - 1)


def _value(field: Any, choices: Choices, words: Sequence[str]) -> Any:
    kind = field.cpp_type
    if kind == FieldDescriptor.CPPTYPE_BOOL:
        return bool(choices.below(2))
    if kind in _BITS:
        first, after = _BITS[kind]
        number = choices.one_of(_NUMBERS) if choices.below(2) else choices.below(2**64)
        return first + (number - first) % (after - first)
    if kind == FieldDescriptor.CPPTYPE_ENUM:
        return choices.below(8)
    if kind in (FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT):
        return choices.one_of((0.0, -1.0, 0.5, 1e300, float("inf"), float("nan")))
    text = choices.text() if choices.below(3) == 2 else choices.one_of((*_WORDS, *words))
    return text.encode() if field.type == FieldDescriptor.TYPE_BYTES else text
