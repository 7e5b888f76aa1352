"""`[memory]`: where notes live, how they are kept and how search weighs its two sides."""

import re
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from runner.config_fields import EnvName, Fraction, OptionalPath, Section, Text, count

TypedScope = Literal["user", "session"]


class EncryptionSection(Section):
    """`[memory.encryption]`: where the key of the database files comes from, if they
    are encrypted. The key itself is in no configuration."""

    key_env: EnvName = ""
    key_file: Annotated[OptionalPath, Field(description="a path of a file that holds the key")] = (
        None
    )

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if self.key_env and self.key_file:
            raise PydanticCustomError("key", "key_env and key_file are both set; keep one of them")
        return self


class MemorySection(Section):
    """`[memory]`: where notes live, how many there may be, how search weighs its two sides
    and how much of them comes into a prompt by itself."""

    db_path: Annotated[Text, Field(min_length=1, description='"auto" or a path of a file')] = "auto"
    vector_weight: Fraction = 0.5
    keyword_weight: Fraction = 0.5
    min_similarity: Fraction = 0.2
    embed_wait_ms: Annotated[int, count(0, 10_000)] = 500
    recency_weight: Fraction = 0.05
    retention_days: Annotated[int, count(0, 36_500)] = 0
    remote_url: Annotated[
        Text,
        Field(
            description="libsql://…, https://… or http://…, with {user_id} where it belongs and "
            "without credentials or options"
        ),
    ] = ""
    auth_token_env: EnvName = ""
    ca_file: Annotated[OptionalPath, Field(description="a path of a PEM file")] = None
    remote_timeout_s: Annotated[
        float, Field(strict=True, ge=1, le=300, description="a number of seconds from 1 to 300")
    ] = 10.0
    max_notes: Annotated[int, count(1, 10_000_000)] = 100_000
    max_text_mb: Annotated[int, count(1, 1024 * 1024)] = 256
    typed_scope: TypedScope = "user"
    context_tokens: Annotated[int, count(0, 16_000)] = 1000
    encryption: EncryptionSection = EncryptionSection()

    @field_validator("remote_url")
    @classmethod
    def _is_store(cls, value: str) -> str:
        if value and not re.match(r"(libsql|https?)://[^/\s]+", value):
            raise PydanticCustomError("url", "is not a URL of a libSQL server")
        rest = value.replace("{user_id}", "")
        if "{" in rest or "}" in rest:
            raise PydanticCustomError("url", "may hold no braces but {{user_id}}")
        if "@" in value or "?" in value:
            raise PydanticCustomError("secret_in_url", "may hold no credentials and no options")
        return value

    @model_validator(mode="after")
    def _some_weight(self) -> Self:
        if self.vector_weight + self.keyword_weight == 0:
            raise PydanticCustomError(
                "weights",
                "vector_weight and keyword_weight are both 0; at least one must be above 0",
            )
        return self
