"""Whether what a person clicks or fills in can be read in each of its states, as it is drawn."""

from typing import Any, Final, Literal

from playwright.sync_api import Browser, CDPSession, Page

Scheme = Literal["dark", "light"]

SCHEMES: Final[tuple[Scheme, ...]] = ("light", "dark")
_TEXT_LEAST: Final = 4.5
_OTHER_LEAST: Final = 3.0
"""Of a control that is switched off, and of the focus (WCAG 2.2, AA)."""
_STATES: Final[dict[str, list[str]]] = {
    "rest": [],
    "hover": ["hover"],
    "active": ["hover", "active"],
    "focus": ["focus", "focus-visible"],
    "disabled": [],
}

_CONTROLS: Final = """() => {
  const root = document.querySelector("dialog[open]") ?? document;
  const kinds = "a[href]:not(.skip), button, summary, select, textarea, input";
  const all = [...root.querySelectorAll(kinds)];
  document.activeElement?.blur();
  for (const old of document.querySelectorAll("[data-control]")) delete old.dataset.control;
  return all.filter((each) => each.checkVisibility()).map((each, index) => {
    each.dataset.control = index;
    if (each.disabled) each.dataset.off = "";
    const around = each.parentElement?.closest("[class], nav, dialog, table");
    const looks = [each.tagName, each.type, each.className, each.ariaCurrent, around?.className];
    return [...looks, each.value ? "filled" : ""].join(" ");
  });
}"""
"""Numbers the controls, and tells how each is styled."""

_IN_VIEW: Final = """(wanted) => {
  const find = (number) => document.querySelector(`[data-control="${number}"]`);
  find(wanted[0]).scrollIntoView({ block: "center", inline: "nearest" });
  const places = ({ x, y, width, height }) => ({ x, y, width, height });
  return wanted.map((number) => {
    const each = find(number);
    const box = each.getBoundingClientRect();
    const hit = document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2);
    if (number !== wanted[0] && !each.contains(hit)) return null;
    const range = document.createRange();
    range.selectNodeContents(each);
    let texts = [...range.getClientRects()].filter(({ width, height }) => width > 1 && height > 1);
    if (/^(?:SELECT|TEXTAREA|INPUT)$/.test(each.tagName)) {
      const { x, y, width, height } = box;
      const drawn = /^(?:checkbox|radio|file|range)$/.test(each.type);
      const empty = drawn || !(each.value || each.placeholder);
      texts = empty ? [] : [{ x: x + 8, y: y + 4, width: width - 30, height: height - 8 }];
    }
    return { number, box: places(box), texts: texts.map(places) };
  }).filter(Boolean);
}"""
"""Of the controls with these numbers those that can be seen at once, among them the first."""

_SWITCH: Final = """([numbers, off]) => {
  for (const number of numbers) {
    const each = document.querySelector(`[data-control="${number}"]`);
    if ("disabled" in each) each.disabled = off ?? "off" in each.dataset;
  }
}"""
"""Switches controls off, on, or to what they were."""

_MEASURE: Final = """async ([png, clip, controls]) => {
  const bytes = Uint8Array.from(atob(png), (each) => each.charCodeAt(0));
  const image = await createImageBitmap(new Blob([bytes]));
  const context = new OffscreenCanvas(image.width, image.height).getContext("2d");
  context.drawImage(image, 0, 0);
  const { data, width, height } = context.getImageData(0, 0, image.width, image.height);
  const colours = new Uint32Array(data.buffer);
  window.rest ??= colours;
  const linear = [...Array(256).keys()].map((each) => each / 255)
    .map((each) => (each <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4));
  const light = (colour) => 0.2126 * linear[colour & 255]
    + 0.7152 * linear[(colour >> 8) & 255] + 0.0722 * linear[(colour >> 16) & 255];
  const ratio = (a, b) => {
    const [less, more] = [light(a), light(b)].sort((x, y) => x - y);
    return (more + 0.05) / (less + 0.05);
  };
  const count = (counts, box, margin, colourAt) => {
    const [column, row] = [box.x - clip.x, box.y - clip.y];
    const [left, top] = [column, row].map((each) => Math.max(0, Math.ceil(2 * (each - margin))));
    const right = Math.min(width, 2 * (column + box.width + margin));
    const bottom = Math.min(height, 2 * (row + box.height + margin));
    for (let y = top; y < bottom; y += 1)
      for (let x = left; x < right; x += 1) {
        const key = colourAt(y * width + x);
        if (key !== null) counts.set(key, (counts.get(key) ?? 0) + 1);
      }
    return counts;
  };
  const strongest = (counts, ratioOf) => {
    const all = [...counts].map(([key, times]) => [ratioOf(key), times]);
    all.sort((a, b) => b[0] - a[0]);
    let rest = 0.005 * all.reduce((sum, [, times]) => sum + times, 0);
    return all.find(([, times]) => (rest -= times) <= 0)?.[0] ?? null;
  };
  return controls.map(({ box, texts }) => {
    const counts = new Map();
    for (const text of texts) count(counts, text, 0, (at) => colours[at]);
    const [ground] = [...counts].reduce((most, each) => (each[1] > most[1] ? each : most), [0, 0]);
    const both = (at) => (rest[at] & 0xffffff) * 2 ** 24 + (colours[at] & 0xffffff);
    const pair = (at) => (rest[at] === colours[at] ? null : both(at));
    const changes = count(new Map(), box, 4, pair);
    return {
      text: strongest(counts, (colour) => ratio(colour, ground)),
      change: strongest(changes, (two) => ratio(Math.floor(two / 2 ** 24), two % 2 ** 24)) ?? 1,
    };
  });
}"""
"""The contrast of each control's texts with their ground, and of its place with how it was before.
Pictures have two pixels for each of the page's, so that small letters have their full colour."""


class Contrast:
    """Measures controls of pages, each look of them once in each colour scheme."""

    def __init__(self, browser: Browser) -> None:
        self._bench = browser.new_page()  # decodes pictures, which the console's policy forbids
        self.seen: dict[Scheme, set[str]] = {scheme: set() for scheme in SCHEMES}

    def faults(self, page: Page) -> list[str]:
        """States of the page's controls that cannot be read, and a focus that is not seen."""
        found = []
        session = page.context.new_cdp_session(page)
        session.send("DOM.enable")
        session.send("CSS.enable")
        for scheme in SCHEMES:
            page.emulate_media(color_scheme=scheme)
            looks = dict(enumerate(page.evaluate(_CONTROLS)))
            new = {look: number for number, look in looks.items() if look not in self.seen[scheme]}
            self.seen[scheme] |= set(new)
            while new:
                here = page.evaluate(_IN_VIEW, list(new.values()))
                found += [
                    f"{scheme}: {fault}" for fault in self._faults(page, session, here, looks)
                ]
                measured = {looks[each["number"]] for each in here}
                new = {look: number for look, number in new.items() if look not in measured}
        session.detach()
        return found

    def _faults(
        self, page: Page, session: CDPSession, here: list[dict[str, Any]], looks: dict[int, str]
    ) -> list[str]:
        numbers = [each["number"] for each in here]
        nodes = _nodes(session, numbers)
        clip = _around([each["box"] for each in here])
        self._bench.evaluate("() => { delete window.rest; }")
        found = []
        for state, classes in _STATES.items():
            page.evaluate(_SWITCH, [numbers, state == "disabled"])
            for node in nodes:
                session.send(
                    "CSS.forcePseudoState", {"nodeId": node, "forcedPseudoClasses": classes}
                )
            picture = _picture(session, clip)
            for each, had in zip(
                here, self._bench.evaluate(_MEASURE, [picture, clip, here]), strict=True
            ):
                least = _OTHER_LEAST if state == "disabled" else _TEXT_LEAST
                if had["text"] is not None and had["text"] < least:
                    found.append(f"{looks[each['number']]}, {state}: contrast {had['text']:.1f}")
                if state == "focus" and had["change"] < _OTHER_LEAST:
                    found.append(f"{looks[each['number']]}: focus {had['change']:.1f}")
        page.evaluate(_SWITCH, [numbers, None])
        return found


def _nodes(session: CDPSession, numbers: list[int]) -> list[int]:
    root = session.send("DOM.getDocument", {"depth": 0})["root"]["nodeId"]
    chosen = [f'[data-control="{number}"]' for number in numbers]
    return [
        session.send("DOM.querySelector", {"nodeId": root, "selector": each})["nodeId"]
        for each in chosen
    ]


def _picture(session: CDPSession, clip: dict[str, float]) -> str:
    taken = session.send(
        "Page.captureScreenshot",
        {"format": "png", "clip": {**clip, "scale": 2}, "optimizeForSpeed": True},
    )
    return str(taken["data"])


def _around(boxes: list[dict[str, float]]) -> dict[str, float]:
    """The box that holds all of them and what is drawn around each."""
    left, top = (max(0, min(int(each[side]) for each in boxes) - 5) for side in ("x", "y"))
    right = max(each["x"] + each["width"] for each in boxes)
    bottom = max(each["y"] + each["height"] for each in boxes)
    return {"x": left, "y": top, "width": int(right - left) + 6, "height": int(bottom - top) + 6}
