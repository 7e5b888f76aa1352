/** Shows what the server pushes, also while no page is open, and opens the notices. It keeps and asks for nothing. */

const worker = /** @type {any} */ (self);
const PAGE = "/#/notices";

worker.addEventListener("install", () => worker.skipWaiting());
worker.addEventListener("activate", (/** @type {any} */ event) => event.waitUntil(worker.clients.claim()));

worker.addEventListener("push", (/** @type {any} */ event) => {
  const { title, body, tag } = event.data.json();
  event.waitUntil(worker.registration.showNotification(title, { body, tag, icon: "/assets/styles/icon-192.png" }));
});

worker.addEventListener("notificationclick", (/** @type {any} */ event) => {
  event.notification.close();
  const open = async () => {
    const [page] = await worker.clients.matchAll({ type: "window" });
    if (!page) return worker.clients.openWindow(PAGE);
    await page.focus();
    return page.navigate(PAGE);
  };
  event.waitUntil(open());
});
