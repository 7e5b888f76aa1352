/** Being told of notices while no page of the console is open: Web Push. */

import { push } from "../api.js";
import { announce } from "./announcer.js";
import { useDoing } from "./doing.js";
import { html, useEffect, useState } from "../view.js";

const WORKER = "/sw.js";
/** The only script that a page of this server may name by a string. */
const policy = /** @type {any} */ (window).trustedTypes?.createPolicy("oxydra", { createScriptURL: () => WORKER });

/** @returns {Promise<PushSubscription | null | undefined>} this browser's, if there is one */
const subscription = async () => (await navigator.serviceWorker?.getRegistration())?.pushManager?.getSubscription();

/** End what this browser is told; the server ends it with the login. */
export const endPush = async () => void (await subscription().catch(() => null))?.unsubscribe().catch(() => {});

/** @returns {string} why this browser cannot be told; empty: it can */
function hindrance() {
  if (!window.isSecureContext)
    return "To be told while this page is closed, open it by HTTPS: browsers allow that at no other address but localhost. " +
      "Whoever runs this server finds how in its guide on runner serve.";
  if (!("PushManager" in window && "Notification" in window))
    return "This browser cannot be told while this page is closed. On an iPhone or iPad, add the console to the home screen, and open it there.";
  if (Notification.permission === "denied")
    return "This browser refuses notifications of this address. To be told while this page is closed, allow them in its settings for this site.";
  return "";
}

/** @param {string} user @returns {Promise<boolean>} whether this browser is told now */
async function subscribe(user) {
  if ((await Notification.requestPermission()) !== "granted") return false;
  await navigator.serviceWorker.register(policy ? policy.createScriptURL(WORKER) : WORKER);
  const { pushManager } = await navigator.serviceWorker.ready;
  const { key } = await push(user, "POST", {});
  const ask = () => pushManager.subscribe({ userVisibleOnly: true, applicationServerKey: key });
  const made = await ask().catch(async (error) => {
    if (error.name !== "InvalidStateError") throw error;
    await endPush(); // it was for another key
    return ask();
  });
  return (await push(user, "PUT", made.toJSON())).told;
}

/** @param {{user: string}} props */
export function Push({ user }) {
  const [told, setTold] = useState(/** @type {boolean | null} */ (null));
  const { busy, failure, run } = useDoing();
  const look = async (/** @type {"POST" | "DELETE"} */ method) => {
    const endpoint = (await subscription())?.endpoint || "";
    setTold(Boolean(endpoint) && (await push(user, method, { endpoint })).told);
  };
  useEffect(() => void run(() => look("POST")), [user]);
  const begin = async () => {
    const is = await subscribe(user);
    setTold(is);
    if (is) announce("This browser is told.");
  };
  const why = hindrance();
  return html`${why && html`<p class="muted">${why}</p>`}
    ${!why && told !== null && html`<p class="actions">
      <button type="button" disabled=${busy} onClick=${() => run(told ? () => look("DELETE") : begin)}>${
        told ? "Do not tell this browser any more" : "Tell this browser, also while this page is closed"}</button></p>`}
    ${failure}`;
}
