/**
 * Code in colours and formulas as MathML. Both libraries arrive when something needs them; until
 * then, and where they find nothing in a text, it stays as it is written.
 */

import DOMPurify from "../../vendor/dompurify.js";

const CODE_MOST = 20_000; // characters; what is longer keeps one colour

const libraries = {
  code: () => import("../../vendor/highlight.js"),
  math: () => import("../../vendor/temml.js"),
};
/** @type {Record<string, any>} */
const arrived = {};

/**
 * Act with a library: at once if it is here.
 *
 * @param {"code" | "math"} name
 * @param {(library: any) => void} act
 */
function using(name, act) {
  if (arrived[name]) return act(arrived[name]);
  const come = (/** @type {{default: any}} */ { default: library }) => act((arrived[name] = library));
  // A network that changes drops a request, so it is sent again; not fetched, the text stays as it is.
  libraries[name]().catch(libraries[name]).then(come, () => {});
  return undefined;
}

/**
 * Colour a block of code.
 *
 * @param {Element} code
 * @param {string} language as it was named
 */
export function highlight(code, language) {
  const text = code.textContent || "";
  if (text.length > CODE_MOST) return;
  using("code", (library) => {
    if (!library.getLanguage(language)) return;
    const { value } = library.highlight(text, { language });
    const only = { ALLOWED_TAGS: ["span"], ALLOWED_ATTR: ["class"], RETURN_DOM_FRAGMENT: true };
    code.replaceChildren(/** @type {any} */ (DOMPurify.sanitize(value, only)));
  });
}

/**
 * Set a formula that `mathRules` found.
 *
 * @param {Element} code
 */
export function typeset(code) {
  const displayMode = code.classList.contains("display");
  using("math", (library) => {
    const set = document.createElement(displayMode ? "div" : "span");
    set.className = code.className;
    try {
      library.render(code.textContent, set, { displayMode, throwOnError: true });
      code.replaceWith(set);
    } catch {
      // It is no formula, or one that cannot be set: its source can be read.
    }
  });
}

// Between single dollars as pandoc has it, so that neither prices nor variables of a shell are formulas.
const INLINE =
  /\$\$([^]{1,2000}?)\$\$|\\\[([^]{1,2000}?)\\\]|\\\(([^]{1,2000}?)\\\)|(?<![\p{L}\d])\$(?!\s)((?:\\.|[^\\$\n]){1,2000}?)(?<!\s)\$(?![\p{L}\d])/uy;
const BLOCK = /(?:\$\$([^]{1,5000}?)\$\$|\\\[([^]{1,5000}?)\\\])[ \t]*(?=\n|$)/y;
const OPENED = /(?:\$\$|\\\[)[ \t]*(?:\n([^]*)|$)/y; // as an open fence: it goes on to the end

/**
 * Teach a Markdown parser `$…$`, `$$…$$`, `\\(…\\)` and `\\[…\\]`.
 *
 * @param {InstanceType<typeof import("../../vendor/markdown-it.js").default>} parser
 */
export function mathRules(parser) {
  parser.inline.ruler.before("escape", "math", (state, silent) => {
    INLINE.lastIndex = state.pos;
    const found = INLINE.exec(state.src);
    if (!found) return false;
    if (!silent) {
      const token = state.push("math", "code", 0);
      token.content = (found[1] ?? found[2] ?? found[3] ?? found[4]).trim();
      token.meta = { display: found[1] !== undefined || found[2] !== undefined };
    }
    state.pos = INLINE.lastIndex;
    return true;
  });
  parser.block.ruler.before(
    "fence",
    "math",
    (state, first, end, silent) => {
      BLOCK.lastIndex = OPENED.lastIndex = state.bMarks[first] + state.tShift[first];
      const found = BLOCK.exec(state.src) || OPENED.exec(state.src);
      if (!found) return false;
      if (silent) return true;
      state.line = Math.min(end, first + found[0].split("\n").length);
      const token = state.push("math", "code", 0);
      token.map = [first, state.line];
      token.content = (found[1] ?? found[2] ?? "").trim();
      token.meta = { display: true };
      return true;
    },
    { alt: ["paragraph", "reference", "blockquote", "list"] },
  );
  parser.renderer.rules.math = (tokens, index) => {
    const { content, meta } = tokens[index];
    return `<code class="math${meta?.display ? " display" : ""}">${parser.utils.escapeHtml(content)}</code>`;
  };
}
