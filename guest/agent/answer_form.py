"""What a client's program demands of an answer: JSON that a schema allows, or a call of its own.

A schema comes from a program, and may be made to take years. So its patterns are matched in linear
time, its references lead nowhere else, and a check ends after some seconds. A reference can make a
schema of any value in it, so what cannot be checked is refused once more where it is met.
"""

import functools
import json
import re
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Final

from pydantic import StringConstraints, TypeAdapter, ValidationError
from pydantic_core import SchemaError
from wire.v1 import gateway_pb2 as pb

CHECK_S: Final = 5.0
_SHOWN_CHARS: Final = 300
_FENCE: Final = re.compile(r"\A\s*```(?:json)?[ \t]*\n(.*)\n\s*```\s*\Z", re.DOTALL)
_UNCHECKED: Final = frozenset(
    ("patternProperties", "unevaluatedProperties", "unevaluatedItems", "$dynamicRef")
)
_NAMED: Final = frozenset(("properties", "$defs", "definitions", "dependentSchemas"))
"""Keywords whose values are schemas by name."""


@dataclass(frozen=True)
class AnswerForm:
    """What an answer must be: JSON that `schema` allows, if there is one; a call of one of the
    client's tools `must_call`, if there are any."""

    schema: dict[str, Any] | None = None
    must_call: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.schema is not None or bool(self.must_call)

    @classmethod
    def read(cls, given: pb.AnswerForm) -> "AnswerForm":
        """What a request demands. Raises `ValueError` for a schema that cannot be checked."""
        if not given.schema_json:
            return cls(None, tuple(given.must_call))
        schema = json.loads(given.schema_json)
        if not isinstance(schema, dict):
            raise ValueError("it is not a JSON object")
        from jsonschema import Draft202012Validator
        from jsonschema.exceptions import SchemaError as BadSchema

        try:
            Draft202012Validator.check_schema(schema)
        except BadSchema as error:
            raise ValueError(f"{error.json_path}: {error.message}"[:_SHOWN_CHARS]) from None
        _must_be_checkable(schema)
        return cls(schema, tuple(given.must_call))

    def fault(self, text: str, called: Collection[str]) -> str:
        """What is wrong with an answer of `text` that has `called` tools; empty if nothing is."""
        if self.must_call and not set(self.must_call).intersection(called):
            return f"it is no call of {' or '.join(self.must_call)}"
        if self.schema is None or called:
            return ""
        try:
            value = json.loads(bare(text))
        except (ValueError, RecursionError):
            return "it is not JSON alone"
        return _fault_of(value, self.schema)


NO_FORM: Final = AnswerForm()


def bare(text: str) -> str:
    """The text of an answer without the fence that some models cannot leave out."""
    fenced = _FENCE.match(text)
    return fenced[1] if fenced else text.strip()


def _must_be_checkable(schema: Any) -> None:
    """Raises `ValueError` for what of a schema cannot be checked here."""
    for each in schema if isinstance(schema, list) else ():
        _must_be_checkable(each)
    for keyword, value in schema.items() if isinstance(schema, dict) else ():
        if keyword in ("enum", "const", "default", "examples"):
            continue
        if keyword in _NAMED and isinstance(value, dict):
            value = list(value.values())
        if keyword in _UNCHECKED:
            raise ValueError(f"{keyword} cannot be checked")
        if keyword == "$ref" and not str(value).startswith("#"):
            raise ValueError(f"$ref must name a definition of the schema itself: {value}")
        if keyword == "pattern":
            try:
                _matcher(value)
            except SchemaError as error:
                raise ValueError(f"the pattern {value} cannot be checked: {error}") from None
        _must_be_checkable(value)


@functools.lru_cache(maxsize=256)
def _matcher(pattern: str) -> TypeAdapter[str]:
    """What matches texts with `pattern`, in linear time. Raises `SchemaError` of pydantic."""
    return TypeAdapter(Annotated[str, StringConstraints(pattern=pattern)])


def _fault_of(value: Any, schema: dict[str, Any]) -> str:
    """What of `value` the schema does not allow; empty if it allows it."""
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import ValidationError as Problem
    from jsonschema.validators import extend
    from referencing import Registry
    from referencing.exceptions import Unresolvable

    until = time.monotonic() + CHECK_S

    def pattern(validator: Any, wanted: Any, instance: Any, inside: Any) -> Iterator[Any]:  # noqa: ARG001
        if isinstance(instance, str):
            try:
                _matcher(wanted).validate_python(instance)
            except ValidationError:
                yield Problem(f"{instance!r} does not match {wanted!r}")

    def evolve(validator: Any, *, schema: Any, _resolver: Any = None) -> Any:
        """The validator of a part. The library's own method would take another one for a part that
        names its own "$schema"."""
        if time.monotonic() > until:
            raise RecursionError
        if found := _UNCHECKED.intersection(schema if isinstance(schema, dict) else ()):
            raise _UncheckableError(f"a reference leads to {min(found)}")
        resolver = _resolver or validator._resolver
        return checked(schema, registry=Registry(), _resolver=resolver)

    checked: Any = extend(Draft202012Validator, {"pattern": pattern})
    checked.evolve = evolve
    try:
        for error in checked(schema, registry=Registry()).iter_errors(value):
            return f"{error.json_path}: {error.message}"[:_SHOWN_CHARS]
    except RecursionError:
        return "it takes too long to check"
    except Unresolvable as error:
        return f"the schema names no definition {error}"[:_SHOWN_CHARS]
    except (_UncheckableError, SchemaError, ArithmeticError, AttributeError, TypeError) as error:
        return f"the schema cannot be checked: {error}"[:_SHOWN_CHARS]
    return ""


class _UncheckableError(Exception):
    """A reference leads to what cannot be checked."""
