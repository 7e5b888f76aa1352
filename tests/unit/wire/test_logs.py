import io
import json
import logging

from pydantic import TypeAdapter
from wire import logs
from wire.errors import Code, WireError


def lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_each_record_is_one_json_line_with_role_and_user() -> None:
    stream = io.StringIO()
    logs.configure("agent", "alice", "info", stream)
    logger = logging.getLogger("test")
    logger.info("two\nlines", extra={"turn": "t1", "unknown": "dropped"})
    logger.debug("not at this level")
    try:
        TypeAdapter(int).validate_python("what was, input_type=" + "said")
    except ValueError:
        logger.exception("failed")
    first, second = lines(stream)
    assert first["message"] == "two\nlines"
    assert (first["role"], first["user"], first["turn"]) == ("agent", "alice", "t1")
    assert "unknown" not in first
    assert "ValidationError: 1 validation error" in str(second["traceback"])
    assert "input_type=said" not in str(second)


def test_a_message_that_only_looks_like_quotes_is_logged_in_no_time() -> None:
    stream = io.StringIO()
    logs.configure("agent", "alice", "info", stream=stream)
    logging.getLogger("test").info("input_value= " * 20_000)  # it took two minutes
    assert len(str(lines(stream)[0]["message"])) == 260_000


def test_a_startup_failure_is_found_among_other_lines() -> None:
    stream = io.StringIO()
    logs.configure("agent", "alice", "info", stream)
    error = WireError(Code.DATA_LOSS, "corrupt", details="why", resolution="restore")
    logs.log_startup_failure(logging.getLogger("test"), error)
    found = logs.find_startup_failure("no json\n[1]\n" + stream.getvalue() + '{"event": 1}\n')
    assert found is not None
    assert (found.code, found.brief, found.details, found.resolution) == (
        Code.DATA_LOSS,
        "corrupt",
        "why",
        "restore",
    )


def test_no_failure_is_found_where_there_is_none() -> None:
    nested = "[" * 5000
    told = f'{{"event": "startup_failed"}}\n{{}}\nplain\n{nested}'
    assert logs.find_startup_failure(told) is None
