/**
 * Markdown of models and of others, shown without trusting it: no HTML passes, nothing is fetched,
 * and each link shows where it leads.
 */

import MarkdownIt from "../../vendor/markdown-it.js";
import DOMPurify from "../../vendor/dompurify.js";
import { download, imageAddress, imageType } from "../shared-files.js";
import { pieces } from "../text.js";
import { html, useLayoutEffect, useRef } from "../view.js";
import { highlight, mathRules, typeset } from "./typeset.js";

const parser = new MarkdownIt({ html: false, linkify: true, breaks: true });
const DEEPEST = 90;
parser.linkify.set({ fuzzyLink: false, fuzzyEmail: false, fuzzyIP: false });

// The parser drops whatever follows what is nested 100 deep: a paragraph takes that instead.
parser.block.ruler.before("table", "deepest", (state, first, end, silent) => {
  const paragraph = parser.block.ruler.getRules("").at(-1);
  return !silent && state.level >= DEEPEST && Boolean(paragraph?.(state, first, end, silent));
});

// An image is a link to it; one of the shared directory is shown (`prepare`).
parser.renderer.rules.image = (tokens, index) => {
  const token = tokens[index];
  const source = String(token.attrGet("src") || "");
  const text = parser.utils.escapeHtml(token.content || source);
  return `<a href="${parser.utils.escapeHtml(source)}" data-image="">Image: ${text}</a>`;
};

// What a column is aligned to is a class: the page allows no style in what it parses.
for (const cell of ["th_open", "td_open"])
  parser.renderer.rules[cell] = (tokens, index, options, _env, self) => {
    const side = /text-align:(center|right)/.exec(String(tokens[index].attrGet("style")));
    tokens[index].attrs = side ? [["class", `at-${side[1]}`]] : null;
    return self.renderToken(tokens, index, options);
  };

mathRules(parser);

const ALLOWED = {
  ALLOWED_TAGS: (
    "a blockquote br code del em h1 h2 h3 h4 h5 h6 hr li ol p pre s strong table tbody td th thead " +
    "tr ul"
  ).split(" "),
  ALLOWED_ATTR: ["href", "title", "class", "start", "data-image"],
  ALLOWED_URI_REGEXP: /^(?:https?:|mailto:|\/(?:shared|projects)\/|#)/i,
};

const INLINE_MOST = 200;

/**
 * @param {string} source of HTML
 * @param {string} user whose shared directory paths mean
 * @returns {DocumentFragment}
 */
function clean(source, user) {
  const fragment = /** @type {DocumentFragment} */ (
    /** @type {any} */ (DOMPurify.sanitize(source, { ...ALLOWED, RETURN_DOM_FRAGMENT: true }))
  );
  for (const link of fragment.querySelectorAll("a")) prepareLink(link, user);
  for (const code of fragment.querySelectorAll("pre")) prepareCode(code);
  for (const code of fragment.querySelectorAll("code.math")) typeset(code);
  for (const table of fragment.querySelectorAll("table")) {
    const box = make("div", { className: "wide-table" });
    table.replaceWith(box);
    box.append(table);
  }
  const texts = document.createTreeWalker(fragment, NodeFilter.SHOW_TEXT);
  const all = /** @type {Text[]} */ ([]);
  while (texts.nextNode()) all.push(/** @type {Text} */ (texts.currentNode));
  all.forEach(cut);
  for (const each of fragment.querySelectorAll("p, li, td, th, h1, h2, h3, h4, h5, h6, strong, em, s, a"))
    if (each.childNodes.length > INLINE_MOST) cutLines(each);
  return fragment;
}

/** @param {string} tag @param {object} properties */
const make = (tag, properties) => Object.assign(document.createElement(tag), properties);

/** @returns {HTMLElement} what a browser lays out alone, see `pieces` */
const piece = (textContent = "") => make("span", { className: "piece", textContent });

/** @param {Text} text */
function cut(text) {
  const all = pieces(text.data);
  if (all.length < 2) text.data = all[0];
  else text.replaceWith(...all.map((each) => piece(each)));
}

/** @param {Element} element with very many texts and elements in it */
function cutLines(element) {
  const lines = [piece()];
  for (const each of [...element.childNodes]) {
    const last = /** @type {HTMLElement} */ (lines.at(-1));
    if (last.childNodes.length >= INLINE_MOST || last.lastElementChild?.tagName === "BR") lines.push(piece());
    lines.at(-1)?.append(each);
  }
  element.replaceChildren(...lines);
}

/**
 * @param {HTMLAnchorElement} link
 * @param {string} user
 */
function prepareLink(link, user) {
  const target = link.getAttribute("href") || "";
  if (/^\/(shared|projects)\//.test(target)) {
    link.dataset.shared = decodedPath(target);
    link.href = "#";
    if (link.dataset.image !== undefined && imageType(link.dataset.shared)) showImage(link, user);
    return;
  }
  link.rel = "noopener noreferrer";
  link.target = "_blank";
  if (target && link.textContent !== target) {
    link.title = target;
    const where = ` (${link.host || link.protocol + link.pathname})`;
    link.append(make("bdi", { className: "target", textContent: where })); // whichever way the text runs
  }
}

/**
 * @param {HTMLAnchorElement} link
 * @param {string} user
 */
function showImage(link, user) {
  const image = document.createElement("img");
  image.alt = (link.textContent || "").replace(/^Image: /, "");
  imageAddress(user, link.dataset.shared || "").then(
    (address) => {
      image.src = address;
      link.replaceChildren(image);
    },
    () => {}, // the link stays, and says why when it is followed
  );
}

/** @param {string} path */
function decodedPath(path) {
  try {
    return decodeURIComponent(path);
  } catch {
    return path;
  }
}

/** @param {HTMLPreElement} block */
function prepareCode(block) {
  const box = make("div", { className: "code" });
  const language = /language-([\w+#.-]{1,20})/.exec(block.firstElementChild?.className || "");
  const head = make("div", { className: "code-head" });
  head.append(make("span", { textContent: language?.[1] || "" }));
  head.append(make("button", { type: "button", className: "copy", textContent: "Copy" }));
  block.tabIndex = 0;
  block.replaceWith(box);
  box.append(head, block);
  if (language && block.firstElementChild) highlight(block.firstElementChild, language[1]);
}

/**
 * @param {MouseEvent} event
 * @param {string} user
 */
function clicked(event, user) {
  const link = /** @type {Element} */ (event.target).closest("a");
  if (!link?.dataset.shared) return void copyCode(event);
  event.preventDefault();
  download(user, link.dataset.shared).catch((error) => {
    link.textContent = `${link.dataset.shared}: ${error.message}`;
  });
}

/** @param {MouseEvent} event */
async function copyCode(event) {
  const button = event.target;
  if (!(button instanceof HTMLButtonElement) || !button.classList.contains("copy")) return;
  const text = button.closest(".code")?.querySelector("pre")?.textContent || "";
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    button.textContent = "Not allowed here";
  }
  setTimeout(() => (button.textContent = "Copy"), 2000);
}

/**
 * A text that may still grow: blocks that are finished are made once, only the last one again.
 *
 * @param {{text: string, user: string}} props
 */
export function Markdown({ text, user }) {
  const finished = useRef(/** @type {HTMLDivElement | null} */ (null));
  const growing = useRef(/** @type {HTMLDivElement | null} */ (null));
  const made = useRef({ source: "", upTo: 0, env: {} });
  useLayoutEffect(() => {
    const state = made.current;
    const done = /** @type {HTMLElement} */ (finished.current);
    if (!text.startsWith(state.source.slice(0, state.upTo))) {
      Object.assign(state, { upTo: 0, env: {} });
      done.replaceChildren();
    }
    state.source = text;
    const open = text.slice(state.upTo);
    const tokens = parser.parse(open, state.env);
    const last = tokens.findLastIndex((each) => each.level === 0 && each.map && each.nesting >= 0);
    const line = tokens[last]?.map?.[0] || 0;
    if (last > 0 && line > 0) {
      const made = parser.renderer.render(tokens.slice(0, last), parser.options, state.env);
      done.append(clean(made, user));
      state.upTo += lengthOfLines(open, line);
    }
    const tail = parser.renderer.render(tokens.slice(Math.max(last, 0)), parser.options, state.env);
    /** @type {HTMLElement} */ (growing.current).replaceChildren(clean(tail, user));
  }, [text, user]);
  return html`<div class="markdown" onClick=${(/** @type {MouseEvent} */ event) => clicked(event, user)}>
    <div ref=${finished}></div>
    <div ref=${growing}></div>
  </div>`;
}

/**
 * @param {string} text
 * @param {number} lines
 */
function lengthOfLines(text, lines) {
  let position = 0;
  for (let line = 0; line < lines; line += 1) {
    const end = /\r\n|\r|\n/g;
    end.lastIndex = position;
    const found = end.exec(text);
    if (!found) return text.length;
    position = end.lastIndex;
  }
  return position;
}
