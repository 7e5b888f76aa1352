"""How the console shows Markdown, tried in a page of it."""

import json
import random

import pytest
from playwright.sync_api import Page

from tests.e2e.browser.conftest import NewWindow

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("chat_page")]

PIECES = (
    "# Head\n\n",
    "Some *text* with `code`, [a link](https://a.test/x) and ![img](https://a.test/i.png).\n",
    "Setext\n---\n\n",
    "- one\n- two\n\n  more of two\n\n",
    "```js\nlet a = 1;\n\n\nlet b;\n```\n",
    "| a | b |\n|---|---|\n| 1 | 2 |\n\n",
    "> quote\n> goes on\n\n",
    "    indented\n\n",
    "1. first\n2. second\n\n",
    "<script>alert(1)</script>\n\n",
    "\r\nline\r\nbreaks\r\n\r\n",
    "***\n",
    "It is $x_1$, of\n\n$$\n- \\frac{1}{2}\n$$\n\n",
)

ARRIVE = """async () => {
  const { highlight, typeset } = await import("/assets/src/components/typeset.js");
  const box = document.createElement("div");
  const code = box.appendChild(document.createElement("code"));
  const formula = box.appendChild(document.createElement("code"));
  formula.textContent = code.textContent = "1";
  const done = new Promise((end) => new MutationObserver(
    () => box.querySelector(".hljs-number") && box.querySelector("math") && end(),
  ).observe(box, { childList: true, subtree: true }));
  const limit = new Promise((_, give) => setTimeout(give, 30_000, "a library did not arrive"));
  highlight(code, "js");
  typeset(formula);
  await Promise.race([done, limit]);
}"""
"""Waits until the libraries for code and formulas are there: texts are shown with them at once."""

SHOW = """async (steps) => {
  const { html, render } = await import("/assets/src/view.js");
  const { Markdown } = await import("/assets/src/components/markdown.js");
  const box = document.body.appendChild(document.createElement("div"));
  const shown = [];
  let kept = true;
  let first = null;
  for (const text of steps) {
    render(html`<${Markdown} text=${text} user="alice" />`, box);
    const block = box.querySelector(".markdown > div > *");
    kept = kept && (!first || first === block);
    if (box.querySelector(".markdown > div").children.length) first ||= block;
    shown.push([...box.querySelectorAll(".markdown > div")].map((each) => each.innerHTML).join(""));
  }
  render(null, box);
  box.remove();
  return { last: shown.at(-1), kept };
}"""


def entered(new_window: NewWindow) -> Page:
    """A page of which all has arrived: one whose parts are missing loads itself anew."""
    page = new_window().enter()
    page.get_by_role("textbox", name="Message").wait_for()
    return page


def shown(page: Page, *steps: str) -> tuple[str, bool]:
    """The HTML of the last step, and whether the first finished block stayed the same element."""
    told = page.evaluate(SHOW, list(steps))
    return told["last"], told["kept"]


def test_a_text_that_grows_is_shown_like_one_that_is_there(
    new_window: NewWindow, chance: random.Random
) -> None:
    page = entered(new_window)
    page.evaluate(ARRIVE)
    for _ in range(15):
        text = "".join(chance.choices(PIECES, k=12))
        cuts = sorted(chance.sample(range(len(text)), 20))
        grown, kept = shown(page, *(text[:cut] for cut in cuts), text)
        assert grown == shown(page, text)[0], json.dumps(text)
        assert kept, json.dumps(text)


DRAWN = r"""async () => {
  const { html, render } = await import("/assets/src/view.js");
  const { Markdown } = await import("/assets/src/components/markdown.js");
  const box = document.body.appendChild(document.createElement("div"));
  box.style.cssText = "position: absolute; left: 300px; top: 300px; width: 300px";
  const text = "$\\smash{\\rule{10em}{90em}}\\mathrlap{\\rule{60em}{1em}}$";
  render(html`<${Markdown} text=${text} user="alice" />`, box);
  const at = (x, y) => document.elementFromPoint(x, y)?.tagName;
  return [at(310, 100), at(310, 305), at(900, 305)];
}"""


def test_a_formula_is_drawn_over_nothing_but_its_answer(new_window: NewWindow) -> None:
    page = entered(new_window)
    page.evaluate(ARRIVE)
    above, itself, beside = page.evaluate(DRAWN)
    assert (above == "mspace", itself, beside == "mspace") == (False, "mspace", False)
    link = shown(page, "[\u202emoc.live](https://ten.knab.example)")[0]
    assert '<bdi class="target"> (ten.knab.example)</bdi>' in link, "not read from right to left"


def test_what_is_nested_very_deeply_hides_nothing(new_window: NewWindow) -> None:
    page = entered(new_window)
    lists = "".join(f"{'  ' * depth}- item {depth}\n" for depth in range(120))
    for text in (
        f"{lists}\nthe end",
        f"{'- ' * 200}deep\n\nthe end",
        f"{'> - ' * 90}deep\n\nthe end",
    ):
        html, _ = shown(page, text)
        assert "the end" in html
        assert ("item 119" if text.startswith(lists) else "deep") in html


def test_a_long_answer_makes_its_finished_blocks_once(new_window: NewWindow) -> None:
    page = entered(new_window)
    text = "".join(f"Paragraph {number} says something.\n\n" for number in range(400))
    made = page.evaluate(
        """async (text) => {
          const { html, render } = await import("/assets/src/view.js");
          const { Markdown } = await import("/assets/src/components/markdown.js");
          const box = document.body.appendChild(document.createElement("div"));
          let made = 0;
          const watch = new MutationObserver((all) => {
            for (const each of all) made += each.addedNodes.length;
          });
          watch.observe(box, { childList: true, subtree: true });
          for (let end = 40; end <= text.length; end += 40)
            render(html`<${Markdown} text=${text.slice(0, end)} user="alice" />`, box);
          await new Promise((done) => setTimeout(done));
          box.remove();
          return made;
        }""",
        text,
    )
    assert made < 4 * 400


COSTLY = {
    "marks": "a" + "\u0301" * 90_000,
    "marks of Arabic": "\u0628" + "\u064b" * 90_000,
    "code": "```\na" + "\u0301" * 90_000 + "\n```",
    "stacked letters": "\u1000" + "\u1039\u1000" * 45_000,
    "both directions": "\u05d0a" * 45_000,
    "both directions, in lines": ("\u05d0a" * 20 + "\n") * 2_200,
    "both directions, in code": "\u05d0a`\u05d0`" * 15_000,
    "quotes": ">" * 90_000,
    "dollars": "$" * 20_000,
    "formulas": "$a$ " * 5_000,
    "formulas that never end": "\\[ \\( $$ $a" * 7_000,
    "lists": "".join(f"{'  ' * depth}- a\n" for depth in range(300)),
}
LAY_OUT = """async (text) => {
  const { html, render } = await import("/assets/src/view.js");
  const { Markdown } = await import("/assets/src/components/markdown.js");
  const { ForeignText } = await import("/assets/src/components/foreign-text.js");
  const box = document.body.appendChild(document.createElement("div"));
  const told = [];
  for (const drawn of [html`<${Markdown} text=${text} user="alice" />`,
                       html`<pre class="call-text"><${ForeignText} text=${text} /></pre>`]) {
    const began = performance.now();
    render(drawn, box);
    box.getBoundingClientRect();
    told.push({ took: performance.now() - began, text: box.textContent });
    render(null, box);
  }
  box.remove();
  return told;
}"""


def test_no_text_takes_long_to_lay_out(new_window: NewWindow) -> None:
    """Most of them took 7 s to a minute each, or the tab. All is there, but for heaps of marks."""
    page = entered(new_window)
    page.evaluate(ARRIVE)
    took = 0.0
    for name, text in COSTLY.items():
        markdown, foreign = page.evaluate(LAY_OUT, text)
        took += markdown["took"] + foreign["took"]
        if "\u0301" in text or "\u064b" in text:
            assert "[89980 more marks]" in markdown["text"], name
            assert "[89980 more marks]" in foreign["text"], name
        else:
            assert foreign["text"] == text, name
    assert took < 20_000
