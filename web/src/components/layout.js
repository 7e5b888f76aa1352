/** What stands around every page: navigation, whose agent it is, and whether the server answers. */

import { call, logout } from "../api.js";
import { Start, useStopped } from "./agent.js";
import { useRead } from "./doing.js";
import { endPush } from "./push.js";
import { connection, marked, signedOut } from "../connection.js";
import { href, go } from "../router.js";
import { useStore } from "../store.js";
import { nextTheme, theme } from "../theme.js";
import { ShortcutList, useShortcuts } from "./shortcuts.js";
import { html, useRef, useState } from "../view.js";

const UNREAD_EVERY_MS = 30000;
const THEME_TEXT = { auto: "Theme: device", dark: "Theme: dark", light: "Theme: light" };

/**
 * @param {{me: import("../api.js").Me, user: string, onUser: (user: string) => void,
 *   pages: import("../pages.js").Page[], page?: import("../pages.js").Page,
 *   children?: import("../view.js").Children}} props
 */
export function Layout({ me, user, onUser, pages, page, children }) {
  const away = useStore(connection);
  const shown = useStore(theme);
  const [stopped, look] = useStopped(user, me.operator);
  const [open, setOpen] = useState(false);
  const main = useRef(/** @type {HTMLElement | null} */ (null));
  useShortcuts(
    pages.map((each) => ({
      keys: `g ${each.key || each.name[0]}`,
      does: `Go to ${each.title}`,
      act: () => go(each.name),
    })),
  );
  const unread = useUnread(user, pages);
  const leave = () => logout().finally(endPush).finally(() => signedOut.set(true));
  return html`<a class="skip" href="#main" onClick=${(/** @type {Event} */ event) => {
      event.preventDefault();
      main.current?.focus();
    }}>Skip to the content</a>
    <header class="bar">
      <button type="button" class="plain menu" aria-expanded=${open} aria-controls="menu"
        onClick=${() => setOpen(!open)}>☰<span class="unseen"> Menu</span></button>
      <span class="brand">Oxydra</span>
      ${me.users.length > 1
        ? html`<label><span class="unseen">User</span>
            <select value=${user} onChange=${(/** @type {any} */ event) => onUser(event.target.value)}>
              ${me.users.map((each) => html`<option key=${each} value=${each}>${each}</option>`)}
            </select></label>`
        : html`<span class="user">${user}</span>`}
      <div id="menu" data-open=${open}>
        <nav aria-label="Pages">
          ${pages.map(
            (each) => html`<a key=${each.name} href=${href(each.name)} onClick=${() => setOpen(false)}
              aria-current=${each === page ? "page" : undefined}>${each.title}${
                each.name === "notices" && unread > 0 && html` <span class="badge warn">${unread}<span class="unseen"> unread</span></span>`}</a>`,
          )}
        </nav>
        <button type="button" class="plain" onClick=${nextTheme}>${THEME_TEXT[shown]}</button>
        <button type="button" class="plain" onClick=${leave}>Log out</button>
      </div>
    </header>
    ${away &&
    html`<p class="banner" role="alert">
      The server cannot be reached. What runs goes on there; this page comes back by itself.
    </p>`}
    <main id="main" tabindex="-1" ref=${main}>
      ${stopped && page?.name !== "users" &&
      html`<div class="page above"><${Start} user=${user} tier=${stopped.tier} onStarted=${look} /></div>`}
      ${!(stopped && page?.scope) && children}
    </main>
    <${ShortcutList} />`;
}

/**
 * @param {string} user @param {import("../pages.js").Page[]} pages
 * @returns {number} how many notices are unread, as far as the page of them may be seen
 */
function useUnread(user, pages) {
  const may = pages.some((each) => each.name === "notices");
  const ask = () => (may ? call(user, "ListNotices", { limit: 1, unread_only: true }) : Promise.resolve({}));
  const { found } = useRead(ask, [user, may, useStore(marked)], UNREAD_EVERY_MS);
  return Number(found?.unread || 0);
}
