"""Web Push in a real browser: the page asks, and the service worker shows what it is sent.

A browser without a screen knows no push service, and permits and shows no notification: these are
played here. What is sent, the worker, its events and the policy are real.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser as Chromium
from playwright.async_api import BrowserContext, ConsoleMessage, Page, async_playwright, expect
from wire.v1 import gateway_pb2 as pb

from runner.serve.login.links import Links
from runner.serve.server import HttpServer
from tests.support.browser import apart
from tests.support.gateway.front import Front, open_front
from tests.support.gateway.http_front import open_http
from tests.support.servers.push_service import Browser, PushService, push_service

pytestmark = pytest.mark.browser

TELL = "Tell this browser, also while this page is closed"
TOLD = "Do not tell this browser any more"
PERMITTED = """
Object.defineProperty(Notification, "permission", { configurable: true, get: () => %s });
"""
PLAYED = """
const made = Object.assign(Object.create(PushSubscription.prototype), {});
const given = %s;
Object.defineProperty(made, "endpoint", { value: given.endpoint });
made.toJSON = () => given;
made.unsubscribe = async () => localStorage.removeItem("played") || true;
PushManager.prototype.getSubscription = async () => (localStorage.getItem("played") ? made : null);
PushManager.prototype.subscribe = async ({ userVisibleOnly, applicationServerKey }) => {
  if (!userVisibleOnly || applicationServerKey.length !== 87) throw new Error("a bad key");
  localStorage.setItem("played", "1");
  return made;
};
"""


@pytest_asyncio.fixture
async def service(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> AsyncIterator[PushService]:
    async with push_service(monkeypatch, tmp_path) as made:
        yield made


@pytest_asyncio.fixture
async def front(service: PushService) -> AsyncIterator[Front]:
    async with open_front() as made:
        (made.config.workspace_root / "alice").mkdir(mode=0o700)
        yield made


@pytest_asyncio.fixture
async def server(front: Front) -> AsyncIterator[HttpServer]:
    async with open_http(front) as made:
        yield made


@pytest_asyncio.fixture
async def chromium() -> AsyncIterator[Chromium]:
    with apart.options() as options:
        async with async_playwright() as driver:
            running = await driver.chromium.launch(**options)
            yield running
            await running.close()


async def entered(front: Front, server: HttpServer, context: BrowserContext) -> Page:
    page = await context.new_page()
    await page.goto(f"{server.url}/#link={Links.locate(front.config).make('alice')}")
    await page.get_by_role("banner").wait_for()
    await page.goto(f"{server.url}/#/notices")
    return page


SHOWING = """
self.shown = {};
self.registration.showNotification = async (title, { body, tag }) => {
  self.delivered = (self.delivered || 0) + 1;
  self.shown[tag] = { title, body, tag };
};
self.clicked = (tag) => new Promise((opened) => {
  self.clients.openWindow = async (url) => opened(url);
  const close = () => delete self.shown[tag];
  const event = new ExtendableEvent("notificationclick");
  self.dispatchEvent(Object.assign(event, { notification: { close } }));
});
null;
"""


async def test_a_notice_is_shown_though_no_page_is_open_and_opens_the_notices(
    front: Front, server: HttpServer, service: PushService, chromium: Chromium
) -> None:
    browser = Browser()
    problems: list[str] = []

    def said(message: ConsoleMessage) -> None:
        if message.type == "error":
            problems.append(message.text)

    context = await chromium.new_context()
    context.on("console", said)
    await context.grant_permissions(["notifications"], origin=server.url)
    await context.add_init_script(PERMITTED % "'granted'")
    await context.add_init_script(PLAYED % json.dumps(browser.subscription()))
    page = await entered(front, server, context)
    await page.get_by_role("button", name=TELL).click()
    await expect(page.get_by_role("button", name=TOLD)).to_be_visible()
    await page.reload()
    await expect(page.get_by_role("button", name=TOLD)).to_be_visible()
    assert await page.evaluate("fetch('/assets/styles/console.webmanifest').then((r) => r.ok)")

    (worker,) = context.service_workers
    await worker.evaluate(SHOWING)
    elsewhere = await context.new_page()
    session = await context.new_cdp_session(elsewhere)
    registered: asyncio.Queue[str] = asyncio.Queue()

    def updated(event: dict[str, Any]) -> None:
        for each in event["registrations"]:
            registered.put_nowait(each["registrationId"])

    session.on("ServiceWorker.workerRegistrationUpdated", updated)
    await session.send("ServiceWorker.enable")
    registration = await asyncio.wait_for(registered.get(), 20)
    await page.close()
    front.alice.stored.append(pb.StoredNotice(number=1, kind="reminder", text="call Ada", key="k"))
    async with asyncio.timeout(60):
        while not service.sent:
            await asyncio.sleep(0.05)
    (told,) = service.to(browser)
    for _ in range(2):  # at least once, and shown once
        message = {"origin": server.url, "registrationId": registration, "data": json.dumps(told)}
        await session.send("ServiceWorker.deliverPushMessage", message)
    async with asyncio.timeout(60):
        while not await worker.evaluate("self.delivered === 2"):
            await asyncio.sleep(0.05)
    shown = {"title": "Oxydra: alice", "body": "call Ada", "tag": "alice 1"}
    assert await worker.evaluate("self.shown") == {"alice 1": shown}
    opened = await worker.evaluate("self.clicked('alice 1')")
    assert await worker.evaluate("self.shown") == {}
    await elsewhere.goto(f"{server.url}{opened}")
    await expect(elsewhere.get_by_text("call Ada")).to_be_visible()
    await elsewhere.get_by_role("button", name=TOLD).click()
    await expect(elsewhere.get_by_role("button", name=TELL)).to_be_visible()
    reports = await context.request.get(f"{server.url}/api/csp-report")
    assert (await reports.json(), problems) == ({"reports": 0}, [])


async def test_a_browser_that_refuses_and_a_page_without_https_are_told_why(
    front: Front, server: HttpServer, chromium: Chromium
) -> None:
    context = await chromium.new_context()
    await context.add_init_script(PERMITTED % "Notification.asked ? 'denied' : 'default'")
    await context.add_init_script(
        "Notification.requestPermission = async function () { this.asked = true; return 'denied'; }"
    )
    page = await entered(front, server, context)
    await page.get_by_role("button", name=TELL).click()
    await expect(page.get_by_text("This browser refuses notifications")).to_be_visible()
    await context.add_init_script(
        "Object.defineProperty(window, 'isSecureContext', { value: false })"
    )
    await page.reload()
    await expect(page.get_by_text("open it by HTTPS")).to_be_visible()
    await expect(page.get_by_role("button", name=TELL)).to_have_count(0)
