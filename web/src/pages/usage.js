/** What requests to models took: tokens and money, by day, model, conversation or kind. */

import { call } from "../api.js";
import { Bars } from "../components/chart.js";
import { useRead } from "../components/doing.js";
import { Empty, FailureNotice, Loading } from "../components/notices.js";
import { Table } from "../components/table.js";
import { go, href } from "../router.js";
import { count, fullTime, money } from "../text.js";
import { html } from "../view.js";

/** @typedef {import("../api.js").Message} Message */

const BY = [
  { name: "day", title: "Day" },
  { name: "model", title: "Model" },
  { name: "session", title: "Conversation" },
  { name: "kind", title: "Kind of request" },
];
const SPANS = [
  { days: "7", title: "the last 7 days" },
  { days: "30", title: "the last 30 days" },
  { days: "365", title: "the last year" },
  { days: "", title: "all time" },
];

/** @param {import("../pages.js").PageProps} props */
export default function Usage({ user, route }) {
  const by = route.query.by || "day";
  const days = route.query.days ?? "30";
  const { found, failed, read } = useRead(() => call(user, "GetUsage", { by, since: dayAgo(days) }), [user, by, days]);

  const choose = (/** @type {string} */ name) => (/** @type {any} */ event) =>
    go("usage", "", { query: { by, days, [name]: event.target.value }, replace: true });
  return html`<div class="page">
    <h1>Usage</h1>
    <p class="choices wide">
      <label>Sum by <select value=${by} onChange=${choose("by")}>
        ${BY.map((each) => html`<option value=${each.name}>${each.title}</option>`)}
      </select></label>
      <label>Time <select value=${days} onChange=${choose("days")}>
        ${SPANS.map((each) => html`<option value=${each.days}>${each.title}</option>`)}
      </select></label>
    </p>
    ${failed && html`<${FailureNotice} failure=${failed} onRetry=${read} />`}
    ${!found && !failed && html`<${Loading} />`}
    ${found && html`<${Budgets} budgets=${found.budgets || []} /><${Sums} found=${found} by=${by} />`}
  </div>`;
}

/** @param {{budgets: Message[]}} props */
const Budgets = ({ budgets }) =>
  html`<section aria-label="Budgets">
    <h2>Budgets</h2>
    ${!budgets.length &&
    html`<${Empty}>There is no limit. <code>[agent.budget]</code> in runner.toml sets some.<//>`}
    ${budgets.map((budget) => {
      const shown = /usd/.test(budget.setting) ? (value = 0) => `$${value.toFixed(2)}` : count;
      return html`<p key=${budget.setting}>
        <code>${budget.setting}</code>${" "}
        <meter min="0" max=${budget.limit} value=${budget.used || 0} high=${budget.limit * 0.9}
          aria-label=${budget.setting}></meter>${" "}
        ${shown(budget.used)} of ${shown(budget.limit)}
        ${budget.resets_at && html`<span class="muted"> · begins anew ${fullTime(budget.resets_at)}</span>`}
      </p>`;
    })}
  </section>`;

/** @param {{found: Message, by: string}} props */
function Sums({ found, by }) {
  const sums = /** @type {Message[]} */ (found.sums || []);
  if (!sums.length) return html`<${Empty}>No model was asked in this time.<//>`;
  const tokens = (/** @type {Message} */ sum) => Number(sum.input_tokens || 0) + Number(sum.output_tokens || 0);
  const bars = sums.map((sum) => ({
    key: sum.key,
    value: tokens(sum),
    text: `${sum.title || sum.key}: ${count(tokens(sum))} tokens ${money(sum.cost_usd)}`,
  }));
  return html`<section aria-label="Sums">
    <h2>Tokens</h2>
    <${Bars} values=${bars} label=${`Tokens by ${by}; the table below has the figures`} />
    <${Table} label="The figures" columns=${[{ title: BY.find((each) => each.name === by)?.title || "" }, ...FIGURES]}
      rows=${sums.map((sum) => ({ key: sum.key, cells: [nameOf(sum, by), ...figuresOf(sum)] }))}
      total=${["All", ...figuresOf(found.total || {})]} />
  </section>`;
}

const FIGURES = ["Requests", "Read", "of it cached", "Written", "Cost"].map((title) => ({ title, number: true }));

/** @param {Message} sum @param {string} by */
const nameOf = (sum, by) =>
  by === "session" && sum.key
    ? html`<a href=${href("chat", sum.key)}>${sum.title || sum.key}</a>`
    : sum.key || "forgotten conversations";

/** @param {Message} sum @returns {any[]} as `FIGURES` names them */
const figuresOf = (sum) => [
  count(sum.requests),
  count(sum.input_tokens),
  count(sum.cached_tokens),
  count(sum.output_tokens),
  html`<span>${money(sum.cost_usd) || "$0"}${
    Number(sum.unpriced_requests || 0) > 0 ? html` <span class="muted">+ ${count(sum.unpriced_requests)} without a price</span>` : ""
  }${Number(sum.uncertain_requests || 0) > 0 ? html` <span class="muted">(${count(sum.uncertain_requests)} uncertain)</span>` : ""}</span>`,
];

/** @param {string} days @returns {string} the day so many days ago, here; empty for all time */
function dayAgo(days) {
  if (!days) return "";
  const day = new Date();
  day.setDate(day.getDate() - Number(days) + 1);
  const two = (/** @type {number} */ number) => String(number).padStart(2, "0");
  return `${day.getFullYear()}-${two(day.getMonth() + 1)}-${two(day.getDate())}`;
}
