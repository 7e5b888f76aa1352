/**
 * Fetches again what did not arrive: a browser drops what it is fetching when the machine's
 * networks change, as they do when a container starts.
 *
 * Not a module, because it has to be there before any of them. A part of the program that is
 * missing takes a new start, and the address is as it was; a style sheet is fetched alone. The
 * program tells when a page of it is `oxydra:missing`, and when all has `oxydra:arrived`.
 */
(() => {
  const KEY = "oxydra.reloads";
  const TRIES_MAX = 4;
  const WAIT_MS = 300;
  let missing = false;

  /** @returns {boolean} whether the console starts anew; not if it has done so often enough */
  const reload = () => {
    if (missing) return true;
    const tries = Number(sessionStorage.getItem(KEY)) || 0;
    if (tries >= TRIES_MAX) {
      arrived();
      return false;
    }
    missing = true;
    sessionStorage.setItem(KEY, String(tries + 1));
    setTimeout(() => location.reload(), WAIT_MS * 2 ** tries);
    return true;
  };

  const arrived = () => sessionStorage.removeItem(KEY);

  const tell = () => {
    const said = "Parts of the console did not arrive. Reload this page to try again.";
    const show = () => {
      const place = document.getElementById("app");
      if (place) place.textContent = said;
    };
    if (document.readyState === "loading") addEventListener("DOMContentLoaded", show);
    else show();
  };

  /** @param {HTMLLinkElement} sheet */
  const fetchAgain = (sheet) => {
    const tries = Number(sheet.dataset.tries || 0);
    if (tries >= TRIES_MAX) return;
    const again = /** @type {HTMLLinkElement} */ (sheet.cloneNode());
    again.dataset.tries = String(tries + 1);
    setTimeout(() => sheet.replaceWith(again), WAIT_MS * 2 ** tries);
  };

  addEventListener(
    "error",
    ({ target }) => {
      if (target instanceof HTMLScriptElement) reload() || tell();
      else if (target instanceof HTMLLinkElement && target.rel === "stylesheet") fetchAgain(target);
    },
    true,
  );
  addEventListener("oxydra:missing", reload);
  addEventListener("oxydra:arrived", arrived);
})();
