/** Addresses within the console: `#/page/id?key=value`. */

import { Store } from "./store.js";

/**
 * @typedef {object} Route
 * @property {string} page such as "chat"
 * @property {string} id what is shown of it, such as a session; empty: nothing in particular
 * @property {Record<string, string>} query
 */

/** @param {string} hash @returns {Route} */
function routeOf(hash) {
  const [path, query] = hash.replace(/^#\/?/, "").split("?", 2);
  const [page, ...rest] = path.split("/");
  return {
    page: page || "chat",
    id: decoded(rest.join("/")),
    query: Object.fromEntries(new URLSearchParams(query || "")),
  };
}

/** @param {string} text */
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** Where the console is. */
export const route = new Store(routeOf(location.hash));

window.addEventListener("hashchange", () => route.set(routeOf(location.hash)));

/**
 * The address of a page, for links.
 *
 * @param {string} page
 * @param {string} [id]
 * @param {Record<string, string>} [query]
 */
export function href(page, id = "", query = {}) {
  const asked = new URLSearchParams(query).toString();
  return `#/${page}${id && `/${encodeURIComponent(id)}`}${asked && `?${asked}`}`;
}

/**
 * Go there.
 *
 * @param {string} page
 * @param {string} [id]
 * @param {{query?: Record<string, string>, replace?: boolean}} [how] `replace`: without a new entry
 *   in the history
 */
export function go(page, id = "", { query = {}, replace = false } = {}) {
  const address = href(page, id, query);
  if (replace) history.replaceState(null, "", address);
  else history.pushState(null, "", address);
  route.set(routeOf(location.hash));
}
