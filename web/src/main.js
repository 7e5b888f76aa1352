/** Starts the console: who is logged in, and then the page that the address names. */

import { AWAY, Failure, login, me as askMe } from "./api.js";
import { Layout } from "./components/layout.js";
import { Login } from "./components/login.js";
import { FailureNotice, Loading } from "./components/notices.js";
import "./components/server-login.js";
import { backOff, here, people, signedOut } from "./connection.js";
import { pagesOf } from "./pages.js";
import { go, route } from "./router.js";
import { useStore } from "./store.js";
import "./theme.js";
import { html, render, useCallback, useEffect, useState } from "./view.js";

/** @typedef {import("./api.js").Me} Me */

const USER_KEY = "oxydra.user";

/**
 * The secret of the one-time link, which leaves the address and the browser's history at once.
 *
 * @returns {string} empty: the address has none
 */
function takeLink() {
  const link = new URLSearchParams(location.hash.replace(/^#/, "")).get("link") || "";
  if (link) history.replaceState(null, "", location.pathname);
  return link;
}

const link = takeLink();
window.addEventListener("hashchange", () => {
  if (/^#link=/.test(location.hash)) location.reload(); // opened in a tab that was here already
});

function App() {
  const [me, setMe] = useState(/** @type {Me | null} */ (null));
  const [problem, setProblem] = useState(/** @type {Failure | null} */ (null));
  const [ready, setReady] = useState(false);
  const over = useStore(signedOut);

  const begin = useCallback(async () => {
    for (let tries = 1, away = true; away; tries += 1) {
      const failure = await askMe().then(setMe, (error) => error);
      setProblem((known) => failure || known); // why a link was refused stays
      if (!failure) signedOut.set(false);
      setReady(true);
      away = failure?.code === AWAY;
      if (away) await backOff(tries);
    }
  }, []);

  useEffect(() => {
    (async () => {
      if (link) {
        sessionStorage.removeItem(USER_KEY); // the link says whose agent it is
        await login({ link }).catch((error) => setProblem(error));
      }
      await begin();
    })();
  }, []);

  useEffect(() => people.watch(() => void begin()), []);

  if (!ready) return html`<${Loading} />`;
  if (!me || over) return html`<${Login} problem=${problem} onLogin=${begin} over=${over} />`;
  return html`<${Console} me=${me} />`;
}

/** @param {{me: Me}} props */
function Console({ me }) {
  const kept = sessionStorage.getItem(USER_KEY) || "";
  const [chosen, setUser] = useState(kept);
  const user = me.users.includes(chosen) ? chosen : me.user_id || me.users[0];
  const current = useStore(route);
  useEffect(() => here.set({ operator: me.operator, program: me.program, user }), [me, user]);
  const pages = pagesOf(me);
  const page = pages.find((each) => each.name === current.page) || pages[0];
  const choose = (/** @type {string} */ other) => {
    sessionStorage.setItem(USER_KEY, other);
    setUser(other);
    go(current.page); // what was open of it is another user's
  };
  return html`<${Layout} me=${me} user=${user} onUser=${choose} pages=${pages} page=${page}>
    ${page
      ? html`<${PageView} key=${`${page.name} ${user}`} page=${page} user=${user} me=${me}
          route=${page.name === current.page ? current : { page: page.name, id: "", query: {} }} />`
      : html`<p>This access has no scope that the console has a page for.</p>`}
  <//>`;
}

/** @param {{page: import("./pages.js").Page} & import("./pages.js").PageProps} props */
function PageView({ page, user, me, route: current }) {
  const [loaded, setLoaded] = useState(
    /** @type {{show: import("./pages.js").PageComponent} | null} */ (null),
  );
  const [problem, setProblem] = useState(/** @type {Error | null} */ (null));
  useEffect(() => {
    document.title = `${page.title} · Oxydra`;
    page.load().then(
      (module) => {
        setLoaded({ show: module.default });
        window.dispatchEvent(new Event("oxydra:arrived"));
      },
      (error) => {
        setProblem(error);
        window.dispatchEvent(new Event("oxydra:missing"));
      },
    );
  }, [page]);
  if (problem) return html`<${FailureNotice} failure=${problem} />`;
  if (!loaded) return html`<${Loading} />`;
  return html`<${loaded.show} user=${user} me=${me} route=${current} />`;
}

render(html`<${App} />`, /** @type {HTMLElement} */ (document.getElementById("app")));
