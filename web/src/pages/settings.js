/** Which model answers, with which key, what it may cost, and what it may do. For the operator. */

import { host } from "../api.js";
import { announce } from "../components/announcer.js";
import { FailureNotice, Loading } from "../components/notices.js";
import { html, useCallback, useEffect, useState } from "../view.js";

/** @typedef {import("../api.js").Message} Message */
/** @typedef {import("../api.js").Failure} Failure */
/** @typedef {Record<string, any>} Values by the names of settings; only what is to be changed */

const DEMO = "offline";
const REACH = "egress.host_loopback";
const LOOPBACK = /^http:\/\/(localhost|[^/:]+\.localhost|127\.[\d.]+|\[::1\])[:/]/;
const BUDGETS = [
  { name: "agent.budget.day_usd", says: "US dollars a day", step: "any" },
  { name: "agent.budget.month_usd", says: "US dollars a month", step: "any" },
  { name: "agent.budget.day_tokens", says: "Tokens a day", step: "1" },
  { name: "agent.budget.month_tokens", says: "Tokens a month", step: "1" },
];

/** @type {Record<string, string>} */
const FAMILIES = {
  memory: "Memory",
  files: "Files",
  shell: "Commands",
  typed_memory: "Memory, kind by kind",
  reminders: "Reminders",
  working_memory: "Working memory",
  web: "Web",
  delegation: "Sub-agents",
  schedules: "Schedules",
  egress: "Network",
};

/** @param {import("../pages.js").PageProps} props */
export default function Settings({ me }) {
  const [userId, setUserId] = useState("");
  const [held, setHeld] = useState(/** @type {Message | null} */ (null));
  const [values, setValues] = useState(/** @type {Values} */ ({}));
  const [key, setKey] = useState("");
  const [failed, setFailed] = useState(/** @type {Failure | null} */ (null));
  const [busy, setBusy] = useState("");
  const [done, setDone] = useState("");
  const [about, setAbout] = useState("all");
  const [old, setOld] = useState(/** @type {string[]} */ ([]));
  const look = useCallback(async () => {
    setHeld(null);
    setValues({});
    setKey("");
    await host("GetSettings", { user_id: userId }).then(setHeld, setFailed);
  }, [userId]);
  useEffect(() => void look(), [look]);

  const set = (/** @type {Values} */ more) => {
    setDone("");
    setValues((all) => ({ ...all, ...more }));
  };
  /** @param {string} what @param {() => Promise<void>} act @param {string} [part] where it is said how it ends */
  const doing = async (what, act, part = "all") => {
    setAbout(part);
    setBusy(what);
    setFailed(null);
    setDone("");
    try {
      await act();
    } catch (error) {
      setFailed(/** @type {any} */ (error));
    }
    setBusy("");
  };
  const restart = async (/** @type {string[]} */ users) => {
    for (const user_id of users) await host("Restart", { user_id });
    setOld([]);
    setDone(users.length ? "Saved. The agent answers with the new settings." : "Saved.");
    announce("Saved.");
  };
  const save = (/** @type {boolean} */ now, changed = values) =>
    doing(now ? "Saving, and restarting the agent; this can take a minute" : "Saving", async () => {
      const { restart: users = [] } = await host("SetSettings", { user_id: userId, values: changed, key });
      setOld(users);
      await look();
      if (now) await restart(users);
      else setDone(users.length ? "" : "Saved.");
    });
  const asking = (/** @type {string} */ what, /** @type {() => Promise<void>} */ act) => doing(what, act, "model");
  const attempt = () =>
    asking("Asking the model", async () => {
      const { took_s, why_from_here } = await host("TryModel", { user_id: userId, values, key });
      const how = why_from_here && ` The server of this page asked it, and not the agent’s own egress: ${why_from_here}.`;
      setDone(`It answered in ${took_s} seconds.${how} Nothing is saved yet.`);
    });
  const outcome = [
    failed && html`<${FailureNotice} failure=${failed} />`,
    done && html`<p class="notice" role="status">${done}</p>`,
    busy && html`<${Loading} what=${busy} />`,
  ];
  const own = userId && Object.values(held?.values || {}).some((each) => each.source === "file");
  return html`<div class="page">
    <h1>Settings</h1>
    ${me.users.length > 1 &&
    html`<p class="fields"><label>For <select value=${userId} onChange=${(/** @type {any} */ event) => setUserId(event.target.value)}>
      <option value="">everybody</option>
      ${me.users.map((each) => html`<option key=${each} value=${each}>${each} only</option>`)}
    </select></label></p>`}
    ${!held && (failed ? html`<${FailureNotice} failure=${failed} onRetry=${look} />` : html`<${Loading} />`)}
    ${held &&
    html`<form class="fields" aria-label="Settings" onSubmit=${(/** @type {Event} */ event) => {
      event.preventDefault();
      void save(true);
    }}>
      <${Model} userId=${userId} held=${held} values=${values} set=${set} secret=${key} setSecret=${setKey}
        busy=${Boolean(busy)} onTry=${attempt} doing=${asking}>${about === "model" && outcome}<//>
      <fieldset class="fields"><legend>Budget</legend>
        <p>A request that could go over a limit is not sent. 0 means no limit.</p>
        ${BUDGETS.map(
          (each) => html`<${Field} key=${each.name} name=${each.name} says=${each.says} held=${held} values=${values}
            type="number" min="0" step=${each.step} onValue=${(/** @type {string} */ typed) => set({ [each.name]: Number(typed) })} />`,
        )}
      </fieldset>
      <fieldset class="fields"><legend>Tools</legend>
        ${[
          ["auto", "The agent uses all its tools without asking."],
          ["ask", "The agent asks you before it runs a command or uses another powerful tool."],
        ].map(
          ([value, says]) => html`<label class="check" key=${value}><input type="radio" name="approval"
            checked=${now(held, values, "tools.approval") === value} disabled=${held.values["tools.approval"].fixed}
            onChange=${() => set({ "tools.approval": value })} /> ${says}</label>`,
        )}
        <p>Tools that the agent has:</p>
        <${Tools} families=${held.families} off=${now(held, values, "tools.off")} disabled=${held.values["tools.off"].fixed}
          onOff=${(/** @type {string[]} */ off) => set({ "tools.off": off })} />
        <${ToolServer} userId=${userId} busy=${Boolean(busy)} restart=${restart}
          doing=${(/** @type {string} */ what, /** @type {() => Promise<void>} */ act) => doing(what, act, "tools")}>
          ${about === "tools" && outcome}<//>
      </fieldset>
      ${about === "all" && outcome}
      ${old.length > 0 && !busy &&
      html`<p class="notice">Saved. ${old.join(", ")}: the agent still runs with the old settings.
        ${" "}<button type="button" onClick=${() => doing("Restarting the agent", () => restart(old))}>Restart now</button></p>`}
      <p class="muted">A restart cuts off what an agent is doing. Nothing that was saved is lost.</p>
      <p class="actions">
        ${own && html`<button type="button" disabled=${Boolean(busy)} onClick=${() =>
          save(true, Object.fromEntries(Object.keys(held.values).map((name) => [name, null])))}>Use everybody’s settings</button>`}
        <button type="button" disabled=${Boolean(busy)} onClick=${() => save(false)}>Save only</button>
        <button type="submit" class="primary" disabled=${Boolean(busy)}>Save and restart</button>
      </p>
    </form>`}
  </div>`;
}

/** What a setting is now: as it was changed here, or as it holds.
 *
 * @param {Message} held @param {Values} values @param {string} name */
const now = (held, values, name) => (name in values ? values[name] : held.values[name].value);

/**
 * A field for one setting, which says where its value comes from if it cannot be changed here.
 *
 * @param {{name: string, says: string, held: Message, values: Values, onValue: (typed: string) => void,
 *   type?: string, list?: string, placeholder?: string, min?: string, step?: string}} props
 */
function Field({ name, says, held, values, onValue, ...more }) {
  const { fixed, source } = held.values[name];
  return html`<label>${says} <input ...${more} value=${now(held, values, name)} disabled=${fixed} autocomplete="off"
      spellcheck=${false} onInput=${(/** @type {any} */ event) => onValue(event.target.value)} />
    ${fixed && html`<span class="hint">set by the ${source}</span>`}</label>`;
}

/**
 * Provider, address, key and model, with lists from the provider and from this machine.
 *
 * @param {{userId: string, held: Message, values: Values, set: (more: Values) => void, secret: string,
 *   setSecret: (key: string) => void, busy: boolean, onTry: () => void,
 *   doing: (what: string, act: () => Promise<void>) => void, children?: import("../view.js").Children}} props
 *   `children`: how the last question to the provider ended
 */
function Model({ userId, held, values, set, secret, setSecret, busy, onTry, doing, children }) {
  const [here, setHere] = useState(/** @type {Message[] | null} */ (null));
  const [models, setModels] = useState(/** @type {Message[] | null} */ (null));
  useEffect(() => {
    host("ListModels", {}).then((reply) => setHere(reply.servers), () => setHere([]));
  }, []);
  const provider = now(held, values, "agent.provider");
  const base_url = now(held, values, "agent.base_url");
  /** @type {string[]} */
  const reach = now(held, values, REACH);
  const row = held.providers.find((/** @type {Message} */ each) => each.name === provider);
  const address = base_url || row?.url || "";
  const choose = (/** @type {string} */ name, url = "", model = "") => {
    setModels(null);
    setSecret(""); // it was typed for another address
    const known = held.providers.find((/** @type {Message} */ each) => each.name === name);
    const asked = url || known?.url || "";
    const lets = held.hands_loopback && LOOPBACK.test(asked) && !reach.includes(asked);
    set({
      "agent.provider": name, "agent.base_url": url === known?.url ? "" : url, "agent.model": model,
      ...(lets && { [REACH]: [...reach, asked] }),
    });
  };
  const list = () =>
    doing("Asking the provider", async () => {
      const [server] = (await host("ListModels", { user_id: userId, provider, base_url, key: secret })).servers;
      setModels(server.models.filter((/** @type {Message} */ each) => each.chats));
      if (server.base_url !== row?.url) set({ "agent.base_url": server.base_url });
    });
  const found = (here || []).filter((each) => !each.is_foreign).flatMap((server) =>
    server.models
      .filter((/** @type {Message} */ each) => each.chats && !each.runs_at)
      .map((/** @type {Message} */ model) => ({ server, model })),
  );
  const fixed = held.values["agent.provider"].fixed;
  const stored = !("agent.provider" in values || "agent.base_url" in values) && held.key;
  return html`<fieldset class="fields"><legend>Model</legend>
    ${found.length > 0 && !fixed &&
    html`<p>Models on the machine that runs Oxydra:</p><p class="actions">
      ${found.slice(0, 12).map(
        ({ server, model }) => html`<button type="button" key=${`${server.base_url} ${model.name}`}
          aria-pressed=${provider === server.provider && now(held, values, "agent.model") === model.name}
          onClick=${() => choose(server.provider, server.base_url, model.name)}>${model.name}
          <span class="muted"> ${server.program}${model.tools === false ? ", calls no tools" : ""}</span></button>`,
      )}</p>`}
    ${!here && html`<${Loading} what="Looking for model servers on this machine" />`}
    ${here && !found.length && html`<p class="muted">No model server, such as Ollama, was found on the machine that runs Oxydra.</p>`}
    <label>Provider <select value=${provider} disabled=${fixed}
        onChange=${(/** @type {any} */ event) => choose(event.target.value)}>
        <option value=${DEMO}>demo: no real model</option>
        ${held.providers.map((/** @type {Message} */ each) => html`<option key=${each.name} value=${each.name}>${each.name}</option>`)}
      </select></label>
    ${provider !== DEMO &&
    html`<${Field} name="agent.base_url" says="Address (leave it empty for the provider’s own)" held=${held} values=${values}
        placeholder=${row?.url || "https://models.example.com/v1"} onValue=${(/** @type {string} */ url) => {
          setSecret("");
          set({ "agent.base_url": url.trim() });
        }} />
      <label>Key <input type="password" autocomplete="new-password" value=${secret}
          placeholder=${stored ? "stays as it is" : row?.needs_key ? "the key of this provider" : "most servers of this kind need none"}
          onInput=${(/** @type {any} */ event) => setSecret(event.target.value)} />
        <span class="hint">${stored && `Now from ${held.key}. `}It is stored for this address alone, and never shown again.</span></label>
      <${Field} name="agent.model" says="Model" held=${held} values=${values} list="models"
        placeholder="as the provider calls it" onValue=${(/** @type {string} */ name) => set({ "agent.model": name.trim() })} />
      <datalist id="models">${(models || []).map((each) => html`<option key=${each.name} value=${each.name}></option>`)}</datalist>
      ${models && html`<p class="muted" role="status">${models.length === 1 ? "1 model" : `${models.length} models`} found: choose in the field above.</p>`}
      ${held.hands_loopback && LOOPBACK.test(address) &&
      html`<label class="check"><input type="checkbox" checked=${reach.includes(address)} disabled=${held.values[REACH].fixed}
        onChange=${(/** @type {any} */ event) =>
          set({ [REACH]: event.target.checked ? [...reach, address] : reach.filter((each) => each !== address) })} />
        ${" "}Let the agent reach ${address} on the machine that runs Oxydra, and nothing else there.</label>`}
      <p class="actions">
        <button type="button" disabled=${busy} onClick=${list}>List the models</button>
        <button type="button" disabled=${busy} onClick=${onTry}>Try it</button>
      </p>
      ${children}`}
  </fieldset>`;
}

/**
 * @param {{families: Record<string, string[]>, off: string[], disabled: boolean, onOff: (off: string[]) => void}} props
 */
const Tools = ({ families, off, disabled, onOff }) =>
  html`${Object.entries(families).map(
    ([family, tools]) => html`<div key=${family} role="group" aria-label=${FAMILIES[family] || family}>
      <span class="hint">${FAMILIES[family] || family}</span><div class="choices">
      ${tools.map(
        (tool) => html`<label class="check" key=${tool}><input type="checkbox" checked=${!off.includes(tool)} disabled=${disabled}
          onChange=${(/** @type {any} */ event) =>
            onOff(event.target.checked ? off.filter((each) => each !== tool) : [...off, tool])} /> ${tool}</label>`,
      )}</div></div>`,
  )}`;

/**
 * Takes the block that READMEs of MCP servers print, and says what it means before it is added.
 *
 * @param {{userId: string, busy: boolean, restart: (users: string[]) => Promise<void>,
 *   doing: (what: string, act: () => Promise<void>) => void, children?: import("../view.js").Children}} props
 *   `children`: how the last question ended
 */
function ToolServer({ userId, busy, restart, doing, children }) {
  const [block, setBlock] = useState("");
  const [told, setTold] = useState(/** @type {string[] | null} */ (null));
  const type = (/** @type {string} */ text) => {
    setBlock(text);
    setTold(null);
  };
  const plan = () =>
    doing("Reading it", async () => setTold((await host("PlanTools", { user_id: userId, block })).told));
  const add = () =>
    doing("Adding it, and restarting the agent; this can take a minute", async () => {
      const { restart: users = [] } = await host("AddTools", { user_id: userId, block });
      type("");
      await restart(users);
    });
  return html`<label>Add a tool server: paste the block that its README prints, with its keys
      <textarea rows="4" value=${block} placeholder='{"mcpServers": {…}}' autocomplete="off" spellcheck=${false}
        onInput=${(/** @type {any} */ event) => type(event.target.value)}></textarea></label>
    ${told && html`<ul aria-label="What it means">${told.map((line) => html`<li key=${line}>${line}</li>`)}</ul>`}
    ${children}
    <p class="actions">
      <button type="button" disabled=${busy || !block.trim()} onClick=${plan}>What would it reach?</button>
      ${told && html`<button type="button" disabled=${busy} onClick=${add}>Add it and restart</button>`}
    </p>`;
}
