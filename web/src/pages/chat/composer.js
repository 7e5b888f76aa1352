/** Where a message is written: its text, its files, and which model is to answer. */

import { call } from "../../api.js";
import { Dialog } from "../../components/dialog.js";
import { FailureNotice } from "../../components/notices.js";
import { useShortcuts } from "../../components/shortcuts.js";
import { href } from "../../router.js";
import { nameOf, send as sendFile } from "../../shared-files.js";
import { html, useEffect, useLayoutEffect, useRef, useState } from "../../view.js";
import { Attachments, SharedFiles } from "./files.js";

const MOST_CHARS = 100_000;

/**
 * What is written and not sent, for as long as the tab is there.
 *
 * @param {string} user
 * @param {string} session
 */
const draftKey = (user, session) => `oxydra.draft.${user}.${session}`;

/** @typedef {import("./files.js").Attachment} Attachment */

/**
 * @param {{user: string, session: string, kept?: boolean, running: boolean, operator: boolean, replaced: {text: string} | null,
 *   onSend: (text: string, how: {model: string, attachments: string[]}, started: () => void) => void,
 *   onStop: () => void}} props `replaced`: a text to write in the place of what is there;
 *   `kept`: whether the browser may keep what is written and not sent
 */
export function Composer({ user, session, kept = true, running, operator, replaced, onSend, onStop }) {
  const key = draftKey(user, session);
  const [text, setText] = useState(sessionStorage.getItem(key) || "");
  const [files, setFiles] = useState(/** @type {Attachment[]} */ ([]));
  const [model, setModel] = useState(sessionStorage.getItem(`oxydra.model.${user}`) || "");
  const [open, setOpen] = useState("");
  const [over, setOver] = useState(false);
  const field = useRef(/** @type {HTMLTextAreaElement | null} */ (null));
  const picker = useRef(/** @type {HTMLInputElement | null} */ (null));
  useShortcuts([
    { keys: "i", does: "Write a message", act: () => field.current?.focus() },
    { keys: "f", does: "Shared files", act: () => setOpen("files") },
    { keys: "m", does: "Choose the model", act: () => setOpen("model") },
    { keys: "x", does: "Stop the answer", act: () => running && onStop() },
  ]);

  useEffect(() => setText(sessionStorage.getItem(key) || ""), [key]);
  useEffect(() => {
    if (!replaced) return;
    write(replaced.text);
    field.current?.focus();
  }, [replaced]);
  useLayoutEffect(() => {
    const area = /** @type {HTMLTextAreaElement} */ (field.current);
    area.style.height = "auto";
    area.style.height = `${Math.min(area.scrollHeight + 2, window.innerHeight * 0.4)}px`;
  }, [text]);

  const write = (/** @type {string} */ written) => {
    setText(written);
    if (kept) sessionStorage.setItem(key, written);
  };
  const sending = files.some((each) => !each.path && !each.problem);
  const ready = !running && !sending && (text.trim() !== "" || files.some((each) => each.path));
  const send = () => {
    if (!ready || text.length > MOST_CHARS) return;
    const attachments = files.filter((each) => each.path).map((each) => each.path);
    const asked = text.trim() || "See the attached files.";
    setText("");
    setFiles([]);
    onSend(asked, { model, attachments }, () => {
      if (sessionStorage.getItem(key)?.trim() === text.trim()) sessionStorage.removeItem(key);
    });
  };
  const changed = (/** @type {string} */ id, /** @type {Partial<Attachment>} */ what) =>
    setFiles((all) => all.map((each) => (each.id === id ? { ...each, ...what } : each)));
  const add = (/** @type {Partial<Attachment>} */ known) => {
    const id = `${performance.now()} ${Math.random()}`;
    const added = { id, name: "", path: "", progress: 0, problem: "", ...known };
    setFiles((all) => [...all, added]);
    return id;
  };
  const take = (/** @type {Iterable<File>} */ given) => {
    for (const file of given) {
      const sending = new AbortController();
      const id = add({ name: file.name, sending });
      sendFile(user, file, (progress) => changed(id, { progress }), sending.signal).then(
        (path) => changed(id, { path, name: nameOf(path) }),
        (error) => changed(id, { problem: error.message }),
      );
    }
  };
  const leaveOut = (/** @type {Attachment} */ file) => {
    file.sending?.abort();
    setFiles((all) => all.filter((each) => each.id !== file.id));
  };

  return html`<form class="composer ${over ? "over" : ""}" aria-label="Ask"
    onSubmit=${(/** @type {Event} */ event) => {
      event.preventDefault();
      send();
    }}
    onDragOver=${(/** @type {DragEvent} */ event) => {
      event.preventDefault();
      setOver(true);
    }}
    onDragLeave=${() => setOver(false)}
    onDrop=${(/** @type {DragEvent} */ event) => {
      event.preventDefault();
      setOver(false);
      take(event.dataTransfer?.files || []);
    }}>
    <${Attachments} attachments=${files} onRemove=${leaveOut} />
    <label class="unseen" for="message">Message</label>
    <textarea id="message" ref=${field} rows="2" value=${text} placeholder="Write a message"
      onInput=${(/** @type {any} */ event) => write(event.target.value)}
      onPaste=${(/** @type {ClipboardEvent} */ event) => {
        const pasted = event.clipboardData?.files;
        if (!pasted?.length) return;
        event.preventDefault();
        take(pasted);
      }}
      onKeyDown=${(/** @type {KeyboardEvent} */ event) => {
        if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
        event.preventDefault();
        send();
      }}></textarea>
    ${text.length > MOST_CHARS &&
    html`<p class="bad">Too long: ${text.length} of at most ${MOST_CHARS} characters.</p>`}
    <div class="actions">
      <input type="file" multiple hidden ref=${picker}
        onChange=${(/** @type {any} */ event) => {
          take([...event.target.files]);
          event.target.value = "";
        }} />
      <button type="button" onClick=${() => picker.current?.click()}>Add files</button>
      <button type="button" onClick=${() => setOpen("files")}>Shared files</button>
      <button type="button" onClick=${() => setOpen("model")}>${model || "Model"}</button>
      <span class="space"></span>
      ${running
        ? html`<button type="button" class="danger" onClick=${onStop}>Stop</button>`
        : html`<button type="submit" class="primary" disabled=${!ready}>Send</button>`}
    </div>
    ${open === "files" &&
    html`<${SharedFiles} user=${user} onClose=${() => setOpen("")}
      onAttach=${(/** @type {{name: string, path: string}} */ { name, path }) => {
        add({ name, path });
        setOpen("");
      }} />`}
    ${open === "model" &&
    html`<${ModelChoice} user=${user} model=${model} operator=${operator} onClose=${() => setOpen("")}
      onChosen=${(/** @type {string} */ chosen) => {
        sessionStorage.setItem(`oxydra.model.${user}`, chosen);
        setModel(chosen);
        setOpen("");
      }} />`}
  </form>`;
}

/**
 * @param {{user: string, model: string, operator: boolean, onChosen: (model: string) => void,
 *   onClose: () => void}} props
 */
function ModelChoice({ user, model, operator, onChosen, onClose }) {
  const [known, setKnown] = useState(/** @type {import("../../api.js").Message | null} */ (null));
  const [name, setName] = useState(model);
  const [problem, setProblem] = useState(/** @type {any} */ (null));
  useEffect(() => {
    call(user, "ResolveModel").then(setKnown, setProblem);
  }, []);
  const choose = async (/** @type {Event} */ event) => {
    event.preventDefault();
    setProblem(null);
    try {
      if (name.trim()) await call(user, "ResolveModel", { model: name.trim() });
      onChosen(name.trim());
    } catch (error) {
      setProblem(error);
    }
  };
  return html`<${Dialog} title="Which model answers" onClose=${onClose}>
    ${problem && html`<${FailureNotice} failure=${problem} />`}
    <form class="fields" onSubmit=${choose}>
      <p>
        <label for="model">Model, as provider:name; empty for the configured one</label>
        <input id="model" value=${name} list="providers" placeholder=${known?.configured || ""}
          onInput=${(/** @type {any} */ event) => setName(event.target.value)} />
        <datalist id="providers">
          ${(known?.providers || []).map(
            (/** @type {any} */ each) => html`<option key=${each.name} value=${`${each.name}:`}></option>`,
          )}
        </datalist>
      </p>
      <ul>
        ${(known?.providers || []).map(
          (/** @type {any} */ each) =>
            !each.unusable &&
            html`<li key=${each.name}><strong>${each.name}</strong>: ${each.failure || "can answer"}</li>`,
        )}
      </ul>
      ${operator && html`<p>Other providers are set up in the <a href=${href("settings")}>settings</a>.</p>`}
      <p class="actions"><button type="submit" class="primary">Use it</button></p>
    </form>
  <//>`;
}
