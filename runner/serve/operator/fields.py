"""Fields of the operator's requests."""

from collections.abc import Mapping
from typing import Any

from wire.errors import Code, WireError

from runner.config.models import Config
from runner.config.user_id import DEFAULT_USER_ID, check_user_id
from runner.config.users import check_known

Asked = Mapping[str, Any]
"""The fields of one request."""


def text_in(asked: Asked, name: str) -> str:
    """A text; empty if the request has none. Raises `WireError` for anything else."""
    value = asked.get(name, "")
    if not isinstance(value, str):
        raise WireError(Code.INVALID_ARGUMENT, f"{name} must be a string")
    return value


def number_in(asked: Asked, name: str, otherwise: int) -> int:
    """A whole number that is not negative. Raises `WireError` for anything else."""
    value = asked.get(name, otherwise)
    if type(value) is not int or value < 0:
        raise WireError(Code.INVALID_ARGUMENT, f"{name} must be a whole number, not below 0")
    return value


def user_in(asked: Asked, config: Config) -> str:
    """The user that `user_id` names; that of commands which name none is known before the first
    start. Raises `WireError` for a bad id and an unknown user."""
    user_id = check_user_id(text_in(asked, "user_id"))
    if user_id != DEFAULT_USER_ID:
        check_known(config, user_id)
    return user_id
