"""Every link of the built site, and that it needs no network: links.py FOLDER. Prints what is wrong, and as
its last line how many links were right and wrong."""

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADS = {
    ("script", "src"),
    ("img", "src"),
    ("link", "href"),
    ("iframe", "src"),
    ("source", "src"),
    ("object", "data"),
}


class Page(HTMLParser):
    def __init__(self, path):
        super().__init__()
        self.ids, self.links = set(), []
        self.feed(path.read_text())

    def handle_starttag(self, tag, attrs):
        named = dict(attrs)
        self.ids |= {named[key] for key in ("id", "name") if named.get(key)}
        for key in ("href", "src", "data"):
            if (
                named.get(key)
                and (tag, key) != ("link", "href")
                or (tag == "link" and key == "href" and named.get("href"))
            ):
                self.links.append((tag, key, named[key], named.get("rel")))


def main(folder):
    pages = {path: Page(path) for path in sorted(folder.rglob("*.html"))}
    good = bad = 0
    for path, page in pages.items():
        for tag, key, target, rel in page.links:
            url = urlsplit(target)
            wrong = None
            if url.scheme or url.netloc:
                if (tag, key) in LOADS and url.scheme != "data" and rel != "canonical":
                    wrong = "is loaded from elsewhere"
            else:
                file = (path.parent / unquote(url.path)).resolve() if url.path else path
                if not file.is_file():
                    wrong = "is not there"
                elif url.fragment and file in pages and unquote(url.fragment) not in pages[file].ids:
                    wrong = "has no such section"
            good, bad = good + (wrong is None), bad + (wrong is not None)
            if wrong:
                print(f"{path.relative_to(folder)}: {target} {wrong}")
    for sheet in folder.rglob("*.css"):
        for word in ("url(http", 'url("http', "url(//", "@import"):
            if word in sheet.read_text():
                bad += 1
                print(f"{sheet.relative_to(folder)}: {word}...")
    print(good, bad)


main(Path(sys.argv[1]).resolve())
