"""What a browser may say of its subscription, where this host sends to, and how many there are."""

import asyncio
import socket
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock, MagicMock

import pytest
from wire.errors import Code, WireError

from runner.egress import configuration
from runner.egress.configuration import public_addresses
from runner.serve.push import sending
from runner.serve.push.subscriptions import (
    SUBSCRIPTIONS_MAX,
    Subscription,
    Subscriptions,
    host_of,
    kept_at,
)
from tests.support.servers.push_service import Browser, spelled

GIVEN = Browser().subscription()


@pytest.mark.parametrize(
    "endpoint",
    [
        "http://push.example.com/x",
        "https://push.example.com:8443/x",
        "https://me@push.example.com/x",
        "https://push.example.com/" + "x" * 1_000,
        "https://127.1/x",
        "https://0x7f000001/x",
        "https://[::ffff:127.0.0.1]/x",
        "https://[fe80::1%25eth0]/x",
        "https://a b/x",
        "file:///etc/passwd",
        "push.example.com",
        "",
    ],
)
def test_a_push_service_has_one_spelling_by_https(endpoint: str) -> None:
    with pytest.raises(ValueError, match="endpoint"):
        host_of(endpoint)


def test_what_browsers_send_is_accepted() -> None:
    made = Subscription.of("alice", "l", GIVEN)
    assert made.endpoint == GIVEN["endpoint"]
    assert host_of("https://fcm.googleapis.com/fcm/send/a:b-c_d") == "fcm.googleapis.com"


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {**GIVEN, "endpoint": 1},
        {**GIVEN, "keys": None},
        {**GIVEN, "keys": {**GIVEN["keys"], "auth": spelled(b"short")}},
        {**GIVEN, "keys": {**GIVEN["keys"], "auth": "$" * 22}},
        {**GIVEN, "keys": {**GIVEN["keys"], "p256dh": spelled(b"\4" + bytes(64))}},
        {**GIVEN, "keys": {**GIVEN["keys"], "p256dh": "A" * 10_000}},
    ],
)
def test_anything_else_is_no_subscription(asked: dict[str, Any]) -> None:
    with pytest.raises(WireError) as refused:
        Subscription.of("alice", "l", asked)
    assert refused.value.code is Code.INVALID_ARGUMENT


@pytest.mark.parametrize(
    "host",
    ["localhost", "127.0.0.1", "10.1.2.3", "169.254.169.254", "100.64.0.1", "::1", "fd00::1"],
)
async def test_nothing_is_sent_to_what_is_not_public(host: str) -> None:
    with pytest.raises(PermissionError):
        await public_addresses(host)


async def test_a_public_address_is_one_of_another_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await public_addresses("93.184.215.14") == ["93.184.215.14"]
    monkeypatch.setattr(configuration, "own_addresses", lambda: ["93.184.215.14"])
    with pytest.raises(PermissionError, match="this machine's own"):
        await public_addresses("93.184.215.14")


async def test_name_servers_that_are_slow_hold_up_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answered = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: answered.wait(30) and [])
    asking = [asyncio.create_task(public_addresses("slow.example")) for _ in range(64)]
    try:
        await asyncio.sleep(0.01)
        async with asyncio.timeout(60):
            await asyncio.to_thread(int)
    finally:
        answered.set()
        await asyncio.gather(*asking)


def test_each_user_has_so_many_and_they_end(tmp_path: Path) -> None:
    kept = Subscriptions(tmp_path)
    bob = kept.add(Subscription.of("bob", "l", GIVEN))
    kept.key.write_bytes(b"the host's")
    made = [
        replace(Subscription.of("alice", "l", GIVEN), endpoint=f"https://push.example.com/{each}")
        for each in range(SUBSCRIPTIONS_MAX + 1)
    ]
    paths = [kept.add(each) for each in (*made, made[-1])]
    assert kept_at(paths[0]) is None
    assert [kept_at(path) for path in paths[1:-1]] == made[1:]
    assert {path.stat().st_mode & 0o777 for path in paths[1:]} == {0o600}
    kept.end_user("alice")
    assert kept.all() == [bob]
    assert kept.key.exists()


async def test_a_server_that_starts_reads_no_subscription_for_each_other_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Subscriptions(tmp_path)
    for number in range(SUBSCRIPTIONS_MAX):
        kept.add(Subscription.of("alice", "l", Browser(str(number)).subscription()))
    reads = MagicMock(wraps=kept_at)
    monkeypatch.setattr(sending, "kept_at", reads)
    async with sending.Push(MagicMock(), MagicMock(), kept, "https://me.example"):
        assert not reads.called  # each browser's own task reads its own


async def test_a_browser_is_told_again_after_what_nobody_expected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "PAUSE_S", 0.001)
    monkeypatch.setattr(sending, "public_addresses", AsyncMock(side_effect=OSError("away")))
    kept = Subscriptions(tmp_path)
    path = kept.add(Subscription.of("alice", "l", GIVEN))
    over = WireError(Code.UNAUTHENTICATED, "the login has ended")
    logins = MagicMock(of_login=MagicMock(side_effect=[ZeroDivisionError, KeyError, over]))
    async with (
        asyncio.timeout(60),
        sending.Push(logins, MagicMock(), kept, "https://me.example"),
    ):
        while kept_at(path) is not None:
            await asyncio.sleep(0.001)
