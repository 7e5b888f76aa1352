"""The kinds of values that settings have, and what error messages call "accepted"."""

import re
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError
from wire.tools import FAMILIES, NAMES, TOOLS

INT64_MAX: Final = 2**63 - 1


def _plain(value: str) -> str:
    if "\0" in value:
        raise PydanticCustomError("nul", "holds a NUL character")
    if any("\ud800" <= character <= "\udfff" for character in value):
        raise PydanticCustomError("unicode", "is not UTF-8 text")
    return value


def _absolute(value: Path) -> Path:
    if "\0" in str(value) or not value.is_absolute():
        raise PydanticCustomError("path", "is not an absolute path")
    return value


def _env_name(value: str) -> str:
    if value and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", value):
        raise PydanticCustomError("env_name", "is not a name of an environment variable")
    return value


def _tool_name(value: str) -> str:
    if value not in NAMES:
        raise PydanticCustomError("tool_name", "is neither a tool nor a family of tools")
    return value


Text = Annotated[str, AfterValidator(_plain), Field(strict=True)]
EnvName = Annotated[
    Text,
    AfterValidator(_env_name),
    Field(description="the NAME of an environment variable, not the secret itself"),
]
ToolNames = Annotated[
    tuple[Annotated[Text, AfterValidator(_tool_name)], ...],
    Field(
        description=f"a list of tool names ({', '.join(TOOLS)}) or families ({', '.join(FAMILIES)})"
    ),
]
AbsolutePath = Annotated[Path, AfterValidator(_absolute)]
OptionalPath = Annotated[
    AbsolutePath | None, BeforeValidator(lambda value: None if value == "" else value)
]
Fraction = Annotated[
    float,
    Field(strict=True, ge=0, le=1, allow_inf_nan=False, description="a number from 0 to 1"),
]


def count(low: int, high: int) -> Any:
    return Field(strict=True, ge=low, le=high, description=f"a whole number from {low} to {high}")


Cpus = Annotated[
    float,
    Field(strict=True, ge=0.1, le=1024, allow_inf_nan=False, description="a number from 0.1 up"),
]


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
