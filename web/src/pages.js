/** The console's pages, in the order of the navigation. */

/**
 * @typedef {object} PageProps
 * @property {string} user who is acted for
 * @property {import("./router.js").Route} route
 * @property {import("./api.js").Me} me
 */
/** @typedef {(props: PageProps) => import("./view.js").Node} PageComponent */
/**
 * @typedef {object} Page
 * @property {string} name in the address
 * @property {string} title
 * @property {string} [key] pressed after g to go there; none: the first letter of its name
 * @property {string} [scope] that the session must have; none: any session will do
 * @property {boolean} [operator] for the account that runs the agents
 * @property {boolean} [own] for the user and the operator; it needs no agent that runs
 * @property {() => Promise<{default: PageComponent}>} load
 */

/** @type {Page[]} */
export const PAGES = [
  { name: "chat", title: "Chat", scope: "chat", load: () => import("./pages/chat/page.js") },
  { name: "memory", title: "Memory", scope: "memory", load: () => import("./pages/memory/page.js") },
  { name: "notices", title: "Notices", scope: "chat", load: () => import("./pages/notices.js") },
  { name: "schedules", title: "Schedules", key: "w", scope: "chat", load: () => import("./pages/schedules.js") },
  { name: "usage", title: "Usage", key: "u", scope: "chat", load: () => import("./pages/usage.js") },
  { name: "activity", title: "Activity", operator: true, load: () => import("./pages/activity.js") },
  { name: "users", title: "Users", key: "p", operator: true, load: () => import("./pages/users/page.js") },
  { name: "safe", title: "Is it safe?", own: true, load: () => import("./pages/safe.js") },
  { name: "settings", title: "Settings", key: "t", operator: true, load: () => import("./pages/settings.js") },
  { name: "doctor", title: "Doctor", operator: true, load: () => import("./pages/doctor.js") },
];

/**
 * @param {import("./api.js").Me} me
 * @returns {Page[]} that this session may see
 */
export const pagesOf = (me) =>
  PAGES.filter(
    ({ operator, own, scope }) =>
      (!operator || me.operator) && [...(own ? ["chat", "memory"] : []), ...(scope ? [scope] : [])].every((each) => me.scopes.includes(each)),
  );
