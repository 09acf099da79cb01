"""The built site in Chromium, from files and without a network: browser.py SITE SHOTS. At desk and phone
width, light and dark: nothing wider than the window, no error on the console, and no violation of what axe
checks. The search finds, the gallery filters, and what the copy button gives is a spec that `cellc check`
takes (CELLC). Pictures go to SHOTS. In: CHROMIUM; ONLY is a regular expression on the paths of pages to look
at. Prints what is wrong, and as its last line how many checks passed and failed."""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import sync_playwright

# One of each kind of page, at both widths, light and dark; every other page is seen once.
SAMPLE = [
    "index.html",
    "start.html",
    "docs/language.html",
    "docs/python.html",
    "docs/performance.html",
    "docs/design.html",
    "cells/index.html",
    "cells/gru.html",
    "cells/e79.html",
    "cells/titans.html",
    "cells/layernorm.html",
    "reference/c.html",
    "reference/python.html",
    "reference/functions.html",
    "reference/commands.html",
    "reference/man.html",
    "search.html?q=softmax",
]
WIDTHS = {"desk": 1280, "phone": 390}
COPIED = ["gru", "e79", "causal_attention", "s5"]
# The rules of contrast, of the keyboard, and all else that WCAG 2.1 AA asks for and axe can see.
RULES = {
    "runOnly": {
        "type": "tag",
        "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "cat.keyboard", "cat.color"],
    },
    "rules": {"color-contrast-enhanced": {"enabled": False}},
    "preload": False,
}  # that one is of AAA
# Of the pages outside the sample: what is around the text is everywhere the same, and so are colours of equations.
TEXT = {"include": [["article"]], "exclude": [["math"], ["svg"]]}
ONLY = os.environ.get("ONLY", "")
passed = failed = 0


def check(right, words):
    global passed, failed
    passed, failed = passed + bool(right), failed + (not right)
    if not right:
        print(words, flush=True)


class Browser:
    def __init__(self, play, site, shots):
        self.site, self.shots, self.axe = site, shots, Axe()
        self.chromium = play.chromium.launch(executable_path=os.environ["CHROMIUM"], args=["--no-sandbox"])

    def open(self, width, scheme="light"):
        context = self.chromium.new_context(
            viewport={"width": width, "height": 900},
            color_scheme=scheme,
            offline=True,
            permissions=["clipboard-read", "clipboard-write"],
        )
        page = context.new_page()
        page.on("pageerror", lambda error: check(False, f"{page.url}: {error}"))
        page.on("console", lambda said: check(said.type != "error", f"{page.url}: {said.text}"))
        page.on(
            "request",
            lambda wanted: check(
                wanted.url.startswith(("file:", "data:")), f"{page.url} asks for {wanted.url}"
            ),
        )
        return page

    def go(self, page, path):
        page.goto(f"file://{self.site}/{path}", wait_until="load")

    def judge(self, page, words, part="body"):
        wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        check(wide <= 0, f"{words}: {wide} px wider than the window")
        found = self.axe.run(page, part, RULES).response["violations"]
        for rule in found:
            where = "; ".join(
                f"{' '.join(node['target'])}: {node['any'][0]['message'] if node['any'] else node['failureSummary']}"
                for node in rule["nodes"][:2]
            )
            print(f"{words}: {rule['id']} ({len(rule['nodes'])}): {where}", flush=True)
        check(not found, f"{words}: {len(found)} rules are broken")

    def look(self):
        """Every page once; the sample in each way, with pictures."""
        pages = sorted(
            str(path.relative_to(self.site))
            for path in self.site.rglob("*.html")
            if "_static" not in path.parts
        )
        page = self.open(WIDTHS["desk"])
        for path in pages:
            if path not in SAMPLE and not path.startswith("source/") and re.search(ONLY, path):
                self.go(page, path)
                self.judge(page, path, TEXT)
        for name, width in WIDTHS.items():
            for scheme in ("light", "dark"):
                page = self.open(width, scheme)
                for path in (path for path in SAMPLE if re.search(ONLY, path)):
                    self.go(page, path)
                    page.wait_for_timeout(300)
                    self.judge(page, f"{path}, {name}, {scheme}")
                    height = min(2400, page.evaluate("document.documentElement.scrollHeight"))
                    file = path.partition(".")[0].replace("/", "-")
                    page.screenshot(
                        path=self.shots / f"{file}-{name}-{scheme}.png",
                        full_page=True,
                        clip={"x": 0, "y": 0, "width": width, "height": height},
                    )

    def search(self):
        page = self.open(WIDTHS["desk"])
        self.go(page, "index.html")
        page.get_by_role("textbox", name="Search").fill("softmax")
        page.keyboard.press("Enter")
        page.wait_for_selector("text=Search finished")
        found = page.locator("#search-results li a").evaluate_all(
            "links => links.map(link => link.getAttribute('href'))"
        )
        check(
            any("language" in link for link in found),
            f"the search for softmax gives {found[:5]}, not the language",
        )
        check(any("cells/" in link for link in found), f"the search for softmax gives {found[:5]}, no cell")

    def filter(self):
        page = self.open(WIDTHS["desk"])
        self.go(page, "cells/index.html")
        shown = page.locator("ul.cells > li:visible")
        everything = shown.count()
        page.locator("select[name=schedule]").select_option("tile")
        page.locator("select[name=step]").select_option("linear")
        fits = page.locator("ul.cells > li[data-schedule=tile][data-step=linear]").count()
        check(
            0 < fits < everything and shown.count() == fits,
            f"the filter shows {shown.count()} cells of {fits} that fit",
        )
        check(page.locator(".count").inner_text() == f"{fits} cells", "the count is not what is shown")
        page.locator("input[name=words]").fill("delta")
        check(0 < shown.count() < fits and shown.filter(has_text="DeltaNet").count(), "words find nothing")
        page.get_by_role("button", name="Reset").click()
        check(shown.count() == everything, f"{shown.count()} of {everything} cells after a reset")
        self.go(page, "cells/index.html?schedule=window")
        check(shown.count() == 2, f"a link to the cells of window shows {shown.count()}")

    def copy(self):
        """The button is reached by the keyboard; what it gives is the spec, and is taken by the compiler."""
        page = self.open(WIDTHS["desk"])
        for name in COPIED:
            self.go(page, f"cells/{name}.html")
            button = page.locator("#the-spec button.copybtn")
            button.focus()
            page.keyboard.press("Enter")
            page.wait_for_timeout(200)
            text = page.evaluate("navigator.clipboard.readText()")
            with tempfile.TemporaryDirectory() as folder:
                spec = Path(folder) / f"{name}.cell"
                spec.write_text(text)
                done = subprocess.run([os.environ["CELLC"], "check", spec], capture_output=True, text=True)
            check(done.returncode == 0, f"what is copied of {name} is not taken: {done.stderr[:300]}")

    def keyboard(self):
        """From the top of a cell's page, Tab gets into the text, and what scrolls can be scrolled."""
        page = self.open(WIDTHS["phone"])
        self.go(page, "cells/titans.html")
        page.wait_for_timeout(300)
        boxes = page.locator(".formula, .scroll, pre")
        hidden = boxes.evaluate_all(
            "boxes => boxes.filter(b => b.scrollWidth > b.clientWidth + 1 && b.tabIndex < 0).length"
        )
        check(hidden == 0, f"{hidden} boxes scroll that the keyboard does not reach")
        wide = page.locator(".formula[tabindex]").first
        wide.focus()
        page.keyboard.press("ArrowRight")
        page.wait_for_timeout(400)
        check(
            wide.evaluate("box => box.scrollLeft") > 0,
            "an equation that is too wide does not scroll by the keyboard",
        )


def main(site, shots):
    shots.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as play:
        browser = Browser(play, site, shots)
        for part in (browser.search, browser.filter, browser.copy, browser.keyboard, browser.look):
            try:
                part()
            except Exception as error:
                check(False, f"{part.__name__}: {error}")
        browser.chromium.close()
    print(passed, failed)


main(Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve())
