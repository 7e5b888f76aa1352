"""Content that is written twice: with the default values, and as a template of the chart.

A node is what JSON can hold, with `Value`, `Either`, `Names` and `If` in it. `plain` gives it with
values filled in; `lines` writes either kind as YAML.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

Node = Any
Values = Mapping[str, Any]

OMITTED: Final = object()
"""As a node: an entry that is not there."""

_PLAIN: Final = re.compile(r"[A-Za-z/][A-Za-z0-9_./-]*")
_WORDS: Final = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})


@dataclass(frozen=True)
class Value:
    """What the values hold at `path`, of whatever type."""

    path: str

    @property
    def template(self) -> str:
        return f"{{{{ $.Values.{self.path} | toJson }}}}"

    def of(self, values: Values) -> Any:
        found: Any = values
        for name in self.path.split("."):
            found = found[name]
        return found


@dataclass(frozen=True)
class Names:
    """The list of names at `path` as references to objects of these names."""

    path: str

    @property
    def template(self) -> str:
        each = '{{ if $i }}, {{ end }}{"name": {{ $name | toJson }}}'
        return f"[{{{{ range $i, $name := $.Values.{self.path} }}}}{each}{{{{ end }}}}]"

    def of(self, values: Values) -> Any:
        return [{"name": name} for name in Value(self.path).of(values)]


@dataclass(frozen=True)
class Either:
    """What differs: a node in the manifests, and the text of a template in the chart. With `block`,
    that text gives several lines."""

    plain: Node
    chart: str
    block: bool = False


@dataclass(frozen=True)
class Set:
    """The condition that the value at `path` is there: not empty and not false; with `equal`, that
    it is just this; with `wanted` False, that it is not so."""

    path: str
    equal: str = ""
    wanted: bool = True

    @property
    def template(self) -> str:
        found = f"$.Values.{self.path}"
        if self.equal:
            found = f"eq {found} {json.dumps(self.equal)}"
        return found if self.wanted else f"not ({found})"

    def holds(self, values: Values) -> bool:
        found = Value(self.path).of(values)
        return (found == self.equal if self.equal else bool(found)) is self.wanted


@dataclass(frozen=True)
class If:
    """An entry of a table or an item of a list that is there only under a condition."""

    condition: Set
    then: Node


@dataclass(frozen=True)
class Each:
    """A whole object for each text in the list at `path`. `made` gets what stands for the text."""

    path: str
    made: Any

    def of(self, values: Values) -> list[Node]:
        return [self.made(text) for text in Value(self.path).of(values)]

    @property
    def template(self) -> Node:
        return self.made(Either("", "{{ . | toJson }}"))


def plain(node: Node, values: Values) -> Any:
    """The node with `values` in the place of what stands for them."""
    match node:
        case Value() | Names():
            return node.of(values)
        case Either():
            return plain(node.plain, values)
        case If():
            return plain(node.then, values) if node.condition.holds(values) else OMITTED
        case Mapping():
            made = {key: plain(each, values) for key, each in node.items()}
            return {key: each for key, each in made.items() if each is not OMITTED}
        case list() | tuple():
            items = (plain(each, values) for each in node)
            return [each for each in items if each is not OMITTED]
    return node


def lines(node: Node, indent: int = 0) -> Iterator[str]:
    """A table as lines of YAML, or of a template that gives YAML."""
    for key, value in node.items():
        if value is OMITTED:
            continue
        guarded = isinstance(value, If)
        if guarded:
            yield f"{{{{- if {value.condition.template} }}}}"
        yield from _entry(
            f"{' ' * indent}{_scalar(key)}:", value.then if guarded else value, indent
        )
        if guarded:
            yield "{{- end }}"


def _entry(head: str, value: Node, indent: int) -> Iterator[str]:
    match value:
        case Either(block=True):
            yield f"{head} |"
            yield f"{{{{- {value.chart} | nindent {indent + 2} }}}}"
        case Mapping() if value:
            yield head
            yield from lines(value, indent + 2)
        case list() | tuple() if value:
            yield head
            for item in value:
                yield from _item(item, indent + 2)
        case str() if "\n" in value:
            yield f"{head} |"
            yield from (f"{' ' * (indent + 2)}{line}".rstrip() for line in value.splitlines())
        case _:
            yield f"{head} {_scalar(value)}"


def _item(item: Node, indent: int) -> Iterator[str]:
    if isinstance(item, If):
        yield f"{{{{- if {item.condition.template} }}}}"
        yield from _item(item.then, indent)
        yield "{{- end }}"
    elif isinstance(item, Mapping) and item:
        first, *others = lines(item, indent + 2)
        yield f"{' ' * indent}- {first.lstrip()}"
        yield from others
    else:
        yield f"{' ' * indent}- {_scalar(item)}"


def _scalar(value: Node) -> str:
    match value:
        case Value() | Names():
            return value.template
        case Either():
            return value.chart
        case str() if _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
            return value
    return json.dumps(value, ensure_ascii=False)
