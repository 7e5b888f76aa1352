/** The sub-agents of a turn: what each was asked, how it ended, and what it took. */

import { call } from "../../api.js";
import { ForeignText } from "../../components/foreign-text.js";
import { href } from "../../router.js";
import { count, money } from "../../text.js";
import { html, useEffect, useState } from "../../view.js";

/** @typedef {import("../../api.js").Message} Message */

const EVERY_MS = 2000;

/** @param {{user: string, turn: string, busy: boolean}} props `turn`: its id; `busy`: it waits for some of them */
export function SubAgents({ user, turn, busy }) {
  const [found, setFound] = useState(/** @type {Message[]} */ ([]));
  useEffect(() => {
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    let timer;
    let closed = false;
    const look = async () => {
      let runs = busy;
      try {
        const { turns = [] } = await call(user, "ListTurns", {});
        const own = turns.filter((/** @type {Message} */ each) => each.parent_turn_id === turn).reverse();
        runs ||= own.some((/** @type {Message} */ each) => !each.ended_at);
        if (!closed) setFound(own);
      } catch {
        // The next look may reach it; that the server is away is said at the top of the page.
      }
      if (!closed && runs) timer = setTimeout(look, EVERY_MS);
    };
    void look();
    return () => {
      closed = true;
      clearTimeout(timer);
    };
  }, [user, turn, busy]);
  return (
    found.length > 0 &&
    html`<ul class="sub-agents" aria-label="Sub-agents of this turn">
      ${found.map((each) => {
        const took = [each.state, Number(each.tokens) ? `${count(each.tokens)} tokens` : "", money(each.cost_usd)];
        return html`<li key=${each.turn_id}>
          <a href=${href("chat", each.session_id)}><${ForeignText} text=${each.text || "sub-agent"} /></a>
          <span class="muted">${took.filter(Boolean).join(" · ")}</span>
        </li>`;
      })}
    </ul>`
  );
}
