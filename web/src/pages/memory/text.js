/** A note's text, tags and origin as they are shown: never as HTML, never as Markdown. */

import { ForeignText } from "../../components/foreign-text.js";
import { href } from "../../router.js";
import { count, fullTime, shortTime } from "../../text.js";
import { html } from "../../view.js";
import { difference } from "../../difference.js";

/** @typedef {import("../../api.js").Message} Message */

const WEB_ADDRESS = /^https?:\/\//i;
/** @type {Record<string, string>} */
const ACTORS = { user: "you", agent: "the agent", automatic: "the runtime", import: "an import" };
/** @type {Record<string, string>} */
const CHANGES = {
  save: "saved",
  update: "edited",
  replace: "replaced",
  append: "appended to",
  undo: "taken back",
  supersede: "superseded",
};

/**
 * A text with the words of a query marked, and with each character that cannot be seen named.
 *
 * @param {{text: string, query?: string}} props
 */
export function Words({ text, query = "" }) {
  const words = query.match(/[\p{L}\p{N}\p{M}]{2,}/gu) || [];
  if (!words.length) return html`<${ForeignText} text=${text} />`;
  const any = new RegExp(`(?<![\\p{L}\\p{N}])(${words.join("|")})`, "giu");
  return html`${text
    .split(any)
    .map((piece, index) =>
      index % 2 ? html`<mark>${piece}</mark>` : html`<${ForeignText} text=${piece} />`,
    )}`;
}

/**
 * What changed, marked for eyes and for screen readers.
 *
 * @param {{before: string, after: string}} props
 */
export const Difference = ({ before, after }) =>
  html`<div class="note-text">
    ${difference(before, after).map(({ kind, text }) => {
      if (kind === "same") return html`<${ForeignText} text=${text} />`;
      if (kind === "gone")
        return html`<del><span class="unseen">removed: </span><${ForeignText} text=${text} /></del>`;
      return html`<ins><span class="unseen">added: </span><${ForeignText} text=${text} /></ins>`;
    })}
  </div>`;

/** @param {{tags?: string[], onTag?: (tag: string) => void}} props */
export const Tags = ({ tags = [], onTag }) =>
  html`${tags.map((tag) =>
    onTag
      ? html`<button type="button" class="tag" onClick=${() => onTag(tag)}
          aria-label=${`Only notes with the tag ${tag}`}><${ForeignText} text=${tag} /></button>`
      : html`<span class="tag"><${ForeignText} text=${tag} /></span>`,
  )}`;

/** @param {{note: Message}} props */
export const Marks = ({ note }) =>
  html`${note.origin?.material && html`<span class="badge warn">unconfirmed</span>`}
  ${note.superseded && html`<span class="badge">superseded</span>`}
  ${note.older_than && html`<a class="badge warn" href=${href("memory", note.older_than)}>older</a>`}
  ${note.type && note.type !== "fact" && html`<span class="badge">${note.type}</span>`}
  ${note.key && html`<span class="badge">${note.key}</span>`}`;

/**
 * Who wrote it, when, through what and from where.
 *
 * @param {{origin?: Message, at?: string, change?: string}} props
 */
export const Origin = ({ origin = {}, at = "", change = "" }) =>
  html`${change && `${CHANGES[change] || change} `}by${" "}
  ${ACTORS[origin.actor] || origin.actor || "somebody"}
  ${origin.channel && html` through <${ForeignText} text=${origin.channel} />`}
  ${at && html` · <time datetime=${at} title=${fullTime(at)}>${shortTime(at)}</time>`}
  ${origin.session_id &&
  html` · <a href=${href("chat", origin.session_id)}>conversation</a>`}
  ${origin.link && html` · from <${Source} link=${origin.link} />`}`;

/**
 * Where a text comes from: a link only for an address of the web, which is told nothing of this page.
 *
 * @param {{link: string}} props
 */
const Source = ({ link }) =>
  WEB_ADDRESS.test(link)
    ? html`<a href=${link} target="_blank" rel="noopener noreferrer nofollow"><${ForeignText} text=${link} /></a>`
    : html`<code><${ForeignText} text=${link} /></code>`;

/** @type {Record<string, string>} */
const REASONS = {
  both: "words and meaning match",
  keyword: "words match",
  semantic: "meaning matches",
  weak: "nothing matches well; this is nearest",
};

/**
 * Why a search gave this, and how well it matches.
 *
 * @param {{note: Message}} props
 */
export const Reason = ({ note }) =>
  html`<span class="reason" title=${`words ${percent(note.words)}, meaning ${percent(note.meaning)}`}>
    <meter min="0" max="1" value=${note.score || 0} aria-label="How well it matches"></meter>${" "}
    ${REASONS[note.matched_by] || "matches"}
  </span>`;

/** @param {number | undefined} share */
const percent = (share = 0) => `${count(Math.round(share * 100))} %`;
