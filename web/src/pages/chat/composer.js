/** Where a message is written: its text, its files, and which model is to answer. */

import { call } from "../../api.js";
import { Dialog } from "../../components/dialog.js";
import { FailureNotice } from "../../components/notices.js";
import { useShortcuts } from "../../components/shortcuts.js";
import { html, useEffect, useLayoutEffect, useRef, useState } from "../../view.js";
import { SharedFiles, Uploads, sendFile, virtualPath } from "./files.js";

const MOST_CHARS = 100_000;

/**
 * What is written and not sent, for as long as the tab is there.
 *
 * @param {string} user
 * @param {string} session
 */
const draftKey = (user, session) => `oxydra.draft.${user}.${session}`;

/**
 * @param {{user: string, session: string, running: boolean, replaced: {text: string} | null,
 *   onSend: (text: string, how: {model: string, attachments: string[]}, started: () => void) => void,
 *   onStop: () => void}} props `replaced`: a text to write in the place of what is there
 */
export function Composer({ user, session, running, replaced, onSend, onStop }) {
  const key = draftKey(user, session);
  const [text, setText] = useState(sessionStorage.getItem(key) || "");
  const [uploads, setUploads] = useState(/** @type {import("./files.js").Upload[]} */ ([]));
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
    sessionStorage.setItem(key, written);
  };
  const sending = uploads.some((each) => !each.path && !each.problem);
  const ready = !running && !sending && (text.trim() !== "" || uploads.some((each) => each.path));
  const send = () => {
    if (!ready || text.length > MOST_CHARS) return;
    const attachments = uploads.filter((each) => each.path).map((each) => virtualPath(each.path));
    const asked = text.trim() || "See the attached files.";
    setText("");
    setUploads([]);
    onSend(asked, { model, attachments }, () => {
      if (sessionStorage.getItem(key)?.trim() === text.trim()) sessionStorage.removeItem(key);
    });
  };
  const changed = (/** @type {import("./files.js").Upload} */ state) =>
    setUploads((all) =>
      all.some((each) => each.id === state.id)
        ? all.map((each) => (each.id === state.id ? state : each))
        : [...all, state],
    );
  const take = (/** @type {Iterable<File>} */ files) => {
    for (const file of files) sendFile(user, file, changed);
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
    <${Uploads} uploads=${uploads}
      onRemove=${(/** @type {string} */ id) => setUploads(uploads.filter((each) => each.id !== id))} />
    <label class="unseen" for="message">Message</label>
    <textarea id="message" ref=${field} rows="2" value=${text} placeholder="Write a message"
      onInput=${(/** @type {any} */ event) => write(event.target.value)}
      onPaste=${(/** @type {ClipboardEvent} */ event) => {
        const files = event.clipboardData?.files;
        if (files?.length) {
          event.preventDefault();
          take(files);
        }
      }}
      onKeyDown=${(/** @type {KeyboardEvent} */ event) => {
        if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
        event.preventDefault();
        send();
      }}></textarea>
    ${text.length > MOST_CHARS &&
    html`<p class="bad">Too long: ${text.length} of at most ${MOST_CHARS} characters.</p>`}
    <div class="actions">
      <input type="file" multiple hidden ref=${picker} data-picker
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
      onAttach=${(/** @type {string} */ path) => {
        changed({ id: path, name: path, path, progress: 1, problem: null });
        setOpen("");
      }} />`}
    ${open === "model" &&
    html`<${ModelChoice} user=${user} model=${model} onClose=${() => setOpen("")}
      onChosen=${(/** @type {string} */ chosen) => {
        sessionStorage.setItem(`oxydra.model.${user}`, chosen);
        setModel(chosen);
        setOpen("");
      }} />`}
  </form>`;
}

/**
 * @param {{user: string, model: string, onChosen: (model: string) => void, onClose: () => void}} props
 */
function ModelChoice({ user, model, onChosen, onClose }) {
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
    <form onSubmit=${choose}>
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
          (/** @type {any} */ each) => html`<li key=${each.name}>
            <strong>${each.name}</strong>: ${each.unusable || each.failure || "can answer"}
          </li>`,
        )}
      </ul>
      <p class="actions"><button type="submit" class="primary">Use it</button></p>
    </form>
  <//>`;
}
