"""A server in the background of a user's pair: it outlives its turn, is listed, and ends with the
shell guest, which is told."""

import time

from runner.testing import UserPair

SERVER = (
    "mkdir -p served && echo hello from behind > served/index.html && "
    "exec python3 -m http.server 8123 --bind 127.0.0.1 --directory served"
)
ASKED = (
    "run python3 -c \"import urllib.request as r; print(r.urlopen('http://127.0.0.1:8123')"
    '.read().decode())"'
)
WITHIN_S = 60.0


def server_outlives_its_turn_and_ends_with_its_guest(pair: UserPair) -> None:
    session = pair.turn("help").session_id
    command = {"command": SERVER, "background": True}
    assert not pair.call_tool("shell_exec", command, session).is_error
    deadline = time.monotonic() + WITHIN_S
    while "hello from behind" not in pair.turn(ASKED, session).text:
        assert time.monotonic() < deadline
    while not any("http.server" in each for each in pair.status().notices):
        assert time.monotonic() < deadline  # a busy agent may not have answered the status in time
        time.sleep(0.2)
    assert '"running": true' in pair.call_tool("shell_output", {"id": "1"}, session).text
    pair.restart("shell")
    while '"running": true' in (told := pair.call_tool("shell_output", {"id": "1"}, session)).text:
        assert time.monotonic() < deadline, told
        time.sleep(0.2)
    assert "the shell guest started anew" in told.text, told
    assert not [each for each in pair.status().notices if "http.server" in each]
    assert "hello from behind" not in pair.turn(ASKED, session).text
