"""Addresses of notices: what is accepted, what each may reach, and that no secret is told."""

import asyncio
from collections.abc import AsyncIterator

import apprise
import pytest
from wire.egress.rules import Rule
from wire.settings import NoticesSettings

from runner.errors import ConfigError
from runner.notices import addresses
from runner.notices.addresses import KINDS, Address
from runner.notices.sending import without_secrets

_TOKEN = "a" * 26
EXAMPLES = {
    "apprises": f"apprises://h.example/{_TOKEN}",
    "barks": "barks://h.example/device",
    "discord": "discord://4174216298/JHMHI8qBe7bk2ZwO5U711o3dV_js",
    "forms": "forms://u:p@h.example/path",
    "gchat": "gchat://workspace/key/token",
    "gotifys": f"gotifys://h.example/{'A' * 15}",
    "jsons": "jsons://h.example/path",
    "matrixs": "matrixs://u:p@h.example/#room",
    "mmosts": f"mmosts://h.example/{_TOKEN}",
    "nctalks": "nctalks://u:p@h.example/room",
    "ntfys": "ntfys://u:p@h.example/topic",
    "pbul": f"pbul://{'a' * 34}",
    "pover": f"pover://{'u' * 30}@{'t' * 30}",
    "rockets": "rockets://u:p@h.example/#c",
    "signals": "signals://h.example/+15555555555/+15555555556",
    "slack": "slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ",
    "synologys": "synologys://h.example/token",
    "tgram": "tgram://123456789:abcdefg_hijklmnop/12315544/",
    "webex": f"webex://{'a' * 80}",
}
SPECIAL = (
    "ntfy://topic",
    "ntfys://topic",
    "ntfys://ntfy.sh/topic",
    "slack://xoxb-1234-1234-abc124/#room",
)


@pytest.fixture
async def asked(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[list[str]]:
    """What was asked of a proxy that lets nothing out."""
    lines: list[str] = []

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lines.append((await reader.readline()).decode())
        writer.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        for name in ("http_proxy", "https_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{port}")
        monkeypatch.delenv("no_proxy", raising=False)
        yield lines


def test_every_kind_has_an_example() -> None:
    secure = {kind.replace("[s]", "s") for kind in KINDS}
    assert secure == {*EXAMPLES, "mailtos"}


@pytest.mark.parametrize("url", [*EXAMPLES.values(), *SPECIAL])
async def test_the_library_asks_for_no_host_but_those_of_the_rules(
    url: str, asked: list[str]
) -> None:
    kind, _, rest = url.partition("://")
    plain = f"{kind.removesuffix('s')}://{rest}" if f"{kind.removesuffix('s')}[s]" in KINDS else url
    for each in dict.fromkeys((url, plain)):
        asked.clear()
        service = apprise.Apprise.instantiate(each)
        assert service is not None
        await asyncio.to_thread(service.notify, body="b", title="t")
        assert asked
        rules = [Rule.parse(rule) for rule in Address.of("X", each).rules]
        for line in asked:
            method, target, _ = line.split()
            scheme, where = ("tunnel", target) if method == "CONNECT" else ("http", target)
            host, _, port = where.removeprefix("http://").split("/")[0].partition(":")
            number = int(port or 80)
            assert any(rule.names(host) and rule.opens(scheme, number) for rule in rules), line


@pytest.mark.parametrize(
    ("url", "rule"),
    [
        ("ntfy://h.example:8080/topic", "http://h.example:8080"),
        ("NTFYS://topic?priority=high", "https://ntfy.sh"),
        ("json://[::1]:81/x", "http://[::1]:81"),
        ("mailtos://u:p@x.example?mode=ssl&smtp=smtp.x.example", "https://smtp.x.example:465"),
        ("mailtos://u:p@x.example:1465?mode=ssl&smtp=S.x.example", "https://s.x.example:1465"),
    ],
)
def test_an_address_may_reach_its_own_server_alone(url: str, rule: str) -> None:
    assert Address.of("X", url).rules == (rule,)


@pytest.mark.parametrize(
    "url",
    [
        *("syslog://secret", "rsyslog://secret", "dbus://secret", "gnome://secret", "irc://secret"),
        *("windows://secret", "macosx://secret", "file:///secret", "exec:///secret", "secret"),
        *("mqtts://secret/x", "mailto://u:secret@x.example", "mailtos://u:secret@x.example"),
        *("mailtos://u:secret@x.example?mode=ssl", "mailtos://u@x.example?smtp=secret"),
        *("ntfys://u:p/secret@x.example/t", "ntfys://x.example:secret/t", "json:///secret"),
        *("json://[secret/x", "json://secret℀/x"),
    ],
)
def test_what_is_refused_is_refused_without_a_word_of_the_address(url: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Address.of("NTFY_URL", url)
    told = f"{refused.value.brief} {refused.value.details} {refused.value.resolution}"
    assert "NTFY_URL" in told
    assert "secret" not in told.lower()


def test_the_variables_are_read_and_another_address_is_another_surface() -> None:
    settings = NoticesSettings(urls_env=("A", "B"))
    with pytest.raises(ConfigError, match="B is not set"):
        addresses.read(settings, {"A": "ntfys://one"})
    first, second = addresses.read(settings, {"A": "ntfys://one", "B": "ntfys://two"})
    assert first.surface != second.surface
    assert "one" not in repr(first) + first.surface


def test_without_the_library_the_command_that_installs_it_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(addresses, "find_spec", lambda _: None)
    assert addresses.read(NoticesSettings(), {}) == []
    with pytest.raises(ConfigError) as refused:
        addresses.read(NoticesSettings(urls_env=("A",)), {"A": "ntfys://one"})
    assert "notices" in refused.value.resolution


def test_what_the_library_says_is_told_without_the_parts_of_the_address() -> None:
    said = "POST https://api.telegram.org/bot123456789:abc_def/send failed: p%40ss p@ss"
    url = "tgram://123456789:abc_def/p%40ss-word/"
    assert "abc_def" not in without_secrets(said, url)
    assert "123456789" not in without_secrets(said, url)
