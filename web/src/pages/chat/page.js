/** The chat: conversations, and the one that is open. */

import { call } from "../../api.js";
import { FailureNotice, Loading } from "../../components/notices.js";
import { VirtualList } from "../../components/virtual-list.js";
import { go, href } from "../../router.js";
import { Store, useStore } from "../../store.js";
import { html, useEffect, useLayoutEffect, useMemo, useReducer, useState } from "../../view.js";
import { Attention } from "./attention.js";
import { Allowed } from "./allowed.js";
import { Approval } from "./calls.js";
import { Composer } from "./composer.js";
import { Conversation, newId } from "./conversation.js";
import { Sessions } from "./sessions.js";
import { Temporary, isTemporary } from "./temporary.js";
import { TurnView } from "./turn.js";
import { isWaiting } from "./turn-state.js";
import { Welcome } from "./welcome.js";

/** @typedef {import("./turn-state.js").Turn} Turn */
/** @typedef {import("../../api.js").Message} Message */

/** A conversation that this page has just made, so that opening it sends what waits for it. */
let begun = /** @type {Conversation | null} */ (null);

/** @type {Store<any>} */
const NO_TROUBLE = new Store(null);

/** @type {Store<Turn[]>} */
const NO_TURNS = new Store(/** @type {Turn[]} */ ([]));

/** @param {import("../../pages.js").PageProps} props */
export default function Chat({ user, route, me }) {
  const session = route.id;
  const [conversation, setConversation] = useState(/** @type {Conversation | null} */ (null));
  const [problem, setProblem] = useState(/** @type {any} */ (null));
  const [replaced, setReplaced] = useState(/** @type {{text: string} | null} */ (null));
  const [erased, setErased] = useState("");
  const [listing, setListing] = useState(false);
  const [version, changed] = useReducer((/** @type {number} */ n) => n + 1, 0);
  const attention = useMemo(() => new Attention(user), [user]);
  useEffect(() => () => attention.close(), [attention]);
  const running = useStore(attention.running);
  const approvals = useStore(attention.approvals);
  const turns = useStore(conversation?.turns || NO_TURNS);
  const trouble = useStore(conversation?.trouble || NO_TROUBLE);

  useLayoutEffect(() => {
    setProblem(null);
    setListing(false);
    if (session) setErased("");
    if (!session) {
      setConversation(null);
      return undefined;
    }
    const opened = begun?.sessionId === session ? begun : new Conversation(user, session);
    if (opened !== begun)
      opened.open().catch((error) => error.name !== "AbortError" && setProblem(error));
    begun = null;
    setConversation(opened);
    return () => opened.close();
  }, [user, session]);

  // Turns that another client has begun here, and titles that a first turn has given.
  useEffect(() => {
    changed(undefined);
    for (const each of running) if (each.session_id === session) conversation?.attach(each);
  }, [running, conversation]);

  const now = turns.findLast((each) => each.state !== "ended");
  const waits = now && isWaiting(now);
  useEffect(() => {
    attention.look();
    changed(undefined); // a turn that was over before it was looked at has given a title, too
  }, [now?.id, waits]);
  const send = async (
    /** @type {string} */ text,
    /** @type {{model?: string, attachments?: string[], retry?: boolean}} */ how,
    /** @type {() => void} */ started = () => {},
  ) => {
    setProblem(null);
    const onStarted = () => {
      started();
      attention.look();
    };
    if (conversation) return conversation.send(text, how, onStarted);
    try {
      const made = await call(user, "CreateSession", { session_id: `session-${newId()}`, channel: "web" });
      begun = new Conversation(user, made.session_id);
      begun.send(text, how, onStarted);
      go("chat", made.session_id, { replace: true });
    } catch (error) {
      setProblem(error);
      setReplaced({ text });
    }
  };
  const beginTemporary = async () => {
    setErased("");
    try {
      const made = await call(user, "CreateSession", { channel: "web", temporary: true });
      go("chat", made.session_id);
    } catch (error) {
      setProblem(error);
    }
  };
  const retry = (/** @type {Turn} */ turn) =>
    turn.problem?.notSent
      ? send(turn.asked, { attachments: turn.attachments })
      : send("", { retry: true });
  const stop = () => conversation?.stop().catch(setProblem);
  const elsewhere = approvals.filter(
    (each) => !session || !each.turn_id || each.session_id !== session,
  );

  return html`<div class="chat" data-listing=${listing}>
    <${Sessions} user=${user} current=${session} running=${running} version=${version} onChanged=${changed}
      onTemporary=${beginTemporary} canSearch=${me.scopes.includes("memory")} />
    <section class="conversation" aria-label="Conversation">
      <button type="button" class="list-switch" aria-expanded=${listing}
        onClick=${() => setListing(!listing)}>Conversations</button>
      ${problem && html`<${FailureNotice} failure=${problem} onClose=${() => setProblem(null)} />`}
      ${trouble && html`<${FailureNotice} failure=${trouble} />`}
      ${elsewhere.map(
        (each) => html`<${Approval} key=${each.approval_id} user=${user} approval=${each} decided=${null}
          onDecided=${() => attention.look()}>
          <p class="muted">
            ${!each.session_id
              ? "Asked by a client"
              : each.session_id === session
                ? "In this conversation, by a client"
                : html`In <a href=${href("chat", each.session_id)}>another conversation</a>`}${each.channel ? ` (${each.channel})` : ""}.
          </p>
        <//>`,
      )}
      ${erased && html`<p class="notice good" role="status">${erased}</p>`}
      ${session && html`<${Allowed} key=${session} user=${user} session=${session} waits=${Boolean(waits)} />`}
      ${isTemporary(session) &&
      html`<${Temporary} user=${user} session=${session} turns=${turns.length} onEnded=${setErased} />`}
      ${conversation
        ? html`<${Turns} key=${session} user=${user} conversation=${conversation} turns=${turns}
            onRetry=${retry} onEdit=${(/** @type {string} */ text) => setReplaced({ text })} />`
        : html`<${Welcome} user=${user} operator=${me.operator} onAsk=${(/** @type {string} */ text) => send(text, {})} />`}
      <${Composer} user=${user} session=${session || "new"} kept=${!isTemporary(session)} running=${Boolean(now)} replaced=${replaced}
        operator=${me.operator}
        onSend=${send} onStop=${stop} />
    </section>
  </div>`;
}

/**
 * @param {{user: string, conversation: Conversation, turns: Turn[], onRetry: (turn: Turn) => void,
 *   onEdit: (text: string) => void}} props
 */
function Turns({ user, conversation, turns, onRetry, onEdit }) {
  const session = useStore(conversation.session);
  const hasOlder = useStore(conversation.hasOlder);
  const last = turns.at(-1);
  if (!session && !turns.length) return html`<${Loading} />`;
  return html`<${VirtualList} class="turns" items=${turns} keyOf=${(/** @type {Turn} */ each) => each.id}
    estimate=${180} label=${hasOlder ? "Turns; scroll up for earlier ones" : "Turns"} role="feed"
    itemRole="presentation" follow
    onNearStart=${() => conversation.older().catch(() => {})}
    draw=${(/** @type {Turn} */ turn) =>
      html`<${TurnView} user=${user} session=${conversation.sessionId} turn=${turn} last=${turn === last} onRetry=${() => onRetry(turn)}
        onEdit=${onEdit} />`} />`;
}
