"""Makes the sources of the site's pages: Markdown for Sphinx (conf.py), with HTML where Markdown has no words
for it.

    pages.py ROOT OUT          OUT is made anew

In: the tree at ROOT, the compiler that CELLC names. The project's own pages keep their paths; a link from one
to a file that is none becomes a page with that file's text, so that no link leads out of the site. The
gallery is gallery.py's, plots.py draws the benchmarks, headers.py prepares the headers for the C reference.
Nothing but Python's own library is needed; where pypandoc is there too (site/requirements.txt), the man page
becomes a page. Nothing is said of a cell that the compiler did not say."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import gallery
import headers
import plots

# The navigation: headings, and pages by the path of their source in ROOT or, behind "site:", of one made here.
NAVIGATION = {
    "Use": [
        "site:start",
        "docs/language.md",
        "docs/fast-cells.md",
        "docs/python.md",
        "docs/c.md",
        "site:cells/index",
    ],
    "Reference": [
        "site:reference/commands",
        "site:reference/man",
        "site:reference/functions",
        "site:reference/python",
        "site:reference/c",
    ],
    "Evidence": ["docs/performance.md", "docs/proof.md", "tests/README.md"],
    "Inside": [
        "docs/design.md",
        "docs/adding-an-operator.md",
        "docs/adding-a-schedule.md",
        "docs/decisions.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
    ],
}
# Where a page's place is taken by one of the site's own.
INSTEAD = {"README.md": "index.md", "docs/cells.md": "cells/index.md"}
LANGUAGES = {
    ".c": "c",
    ".h": "c",
    ".cuh": "cuda",
    ".cu": "cuda",
    ".py": "python",
    ".sh": "bash",
    ".cell": "cell",
    ".json": "json",
    ".y": "yacc",
    ".l": "c",
    ".cmake": "cmake",
}
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")
SOURCE_LIMIT = 200_000


class Site:
    def __init__(self, root, out, cellc):
        self.root, self.out, self.cellc = Path(root), Path(out), cellc
        self.done, self.wanted = set(), []

    def run(self, *arguments, **more):
        """What the compiler prints."""
        return subprocess.run(
            [self.cellc, *arguments], check=True, capture_output=True, text=True, cwd=self.root, **more
        ).stdout

    def read(self, path):
        return (self.root / path).read_text()

    def write(self, path, text):
        to = self.out / path
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_text(text)

    # ---- the project's own pages

    def page_of(self, path):
        """The page that stands for a file or folder of ROOT, as a path in OUT, made later; None: no such file."""
        if path in INSTEAD:
            return INSTEAD[path]
        name, suffix = os.path.splitext(path)
        if not (self.root / path).exists():
            return None
        if path.startswith("specs/") and suffix == ".cell" and name != "specs/std":
            return f"cells/{os.path.basename(name)}.md"
        self.wanted.append(path)
        if suffix == ".md":
            return path
        return f"source/{path}/index.md" if (self.root / path).is_dir() else f"source/{path}.md"

    def relink(self, text, path, at):
        """Markdown of the file `path` of ROOT, with its links as they are from the page `at` of OUT."""

        def link(found):
            image, words, target = found.groups()
            file, _, section = target.partition("#")
            if re.match(r"[a-z]+:", target) or not file:
                return found[0]
            source = os.path.normpath(os.path.join(os.path.dirname(path), file))
            if image:
                self.write_copy(source)
                to = source
            else:
                to = self.page_of(source)
            if to is None:
                raise SystemExit(f"site: {path}: there is no {target}")
            return f"{image}[{words}]({os.path.relpath(to, os.path.dirname(at) or '.')}{'#' + section if section else ''})"

        parts = re.split(r"(^```.*?^```[^\n]*$)", text, flags=re.M | re.S)
        return "".join(part if part.startswith("```") else LINK.sub(link, part) for part in parts)

    def write_copy(self, path):
        to = self.out / path
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(self.root / path, to)

    def own_page(self, path):
        text = plots.inline(self, self.read(path), path)
        if not re.search(r"^# ", text, re.M):
            text = f"# {path}\n\n{text}"
        listed = any(path in pages for pages in NAVIGATION.values())
        self.write(
            path, ("" if listed else "---\norphan: true\n---\n\n") + one_title(self.relink(text, path, path))
        )

    def source_page(self, path):
        at = self.root / path
        page = f"---\norphan: true\nnosearch: true\n---\n\n# {path}\n\n"
        if at.is_dir():
            files = subprocess.run(
                ["git", "ls-files", "--", path], cwd=self.root, capture_output=True, text=True
            ).stdout.split()
            files = files or sorted(
                str(file.relative_to(self.root)) for file in at.rglob("*") if file.is_file()
            )
            to = f"source/{path}/index.md"
            page += "".join(
                f"- [{file}]({os.path.relpath(self.page_of(file), os.path.dirname(to))})\n" for file in files
            )
            self.write(to, page)
            return
        text = at.read_text(errors="replace")
        if len(text) > SOURCE_LIMIT:
            page += f"{len(text) // 1000} kB; here is the beginning.\n\n"
            text = text[:20_000]
        self.write(f"source/{path}.md", page + fenced(text, LANGUAGES.get(at.suffix, "text")))

    def follow(self):
        """Makes the pages that are linked to, and those that these link to."""
        while self.wanted:
            path = self.wanted.pop()
            if path not in self.done:
                self.done.add(path)
                (self.own_page if path.endswith(".md") else self.source_page)(path)

    # ---- the site's own pages

    def home(self):
        text = (Path(__file__).parent / "index.md").read_text()
        block = re.search(r"^```\n(//.*?^cell .*?^}\n)```", self.read("README.md"), re.M | re.S)[1]
        example = self.out / "example.cell"
        example.write_text(block)
        facts = gallery.facts_of(self, example)
        example.unlink()
        chart = re.sub(
            r"@media[^{]*\{(?:[^{}]*\{[^{}]*\})*[^{}]*\}", "", self.read("docs/plots/against_peers.svg")
        )
        text = text.replace("@SPEC@", fenced(block, "cell")).replace(
            "@EQUATIONS@", gallery.equations(facts, plain=True)
        )
        text = text.replace("@CHART@", re.sub(r"<style>.*?</style>", "", chart, flags=re.S))
        text = text.replace(
            "@PEERS@",
            re.search(r"^\| cell, both directions.*?\n\n.*?(?=^## )", self.read("README.md"), re.M | re.S)[0],
        )
        for caption, pages in NAVIGATION.items():
            entries = "\n".join(page.removeprefix("site:").removesuffix(".md") for page in pages)
            text += f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{entries}\n```\n"
        self.write("index.md", self.relink(text, "README.md", "index.md"))

    def start(self):
        """What README.md says of installing and using, without its beginning, which is the first page."""
        text = self.read("README.md")
        parts = [
            part
            for part in re.split(r"(?=^## )", text, flags=re.M)[1:]
            if not part.startswith("## What it beats")
        ]
        self.write("start.md", self.relink("# Get started\n\n" + "".join(parts), "README.md", "start.md"))

    def commands(self):
        listed = re.findall(r"^  (\w+) +\S", self.run("--help").split("examples:")[0], re.M)
        page = "# Commands\n\nWhat `cellc help` and `cellc help COMMAND` print.\n\n" + fenced(
            self.run("--help"), "text"
        )
        for name in listed:
            page += f"\n## cellc {name}\n\n" + fenced(self.run("help", name), "text")
        self.write("reference/commands.md", page)

    def functions(self):
        page = "# Functions and operators\n\nWhat `cellc ops` prints: every function of the language, and the operators beneath.\n"
        for part in re.split(r"\n\n(?=\S)", self.run("ops")):
            title, table = part.split("\n", 1)
            head, *rest = [row for row in table.strip("\n").split("\n")]
            starts = [found.start() for found in re.finditer(r"\S+", head)]
            wide = [rows(line, starts) for line in rest]
            page += f"\n## {title.split('.')[0]}\n\n{title.partition('. ')[2]}\n\n" + html_table(
                head.split(), wide
            )
        self.write("reference/functions.md", page)

    def man(self):
        try:
            import pypandoc

            text = pypandoc.convert_file(str(self.root / "man/cellc.1"), "html", format="man")
            parts = re.split(r"<h1[^>]*>(.*?)</h1>", text, flags=re.S)
            text = "".join(
                f"\n## {title.capitalize()}\n{gallery.raw(body)}"
                for title, body in zip(parts[1::2], parts[2::2])
            )
        except ImportError:
            text = fenced(self.read("man/cellc.1"), "text")
        self.write("reference/man.md", "# Manual page\n\n" + text)

    def references(self):
        here = Path(__file__).parent
        for name in ("python", "c"):
            text = (here / f"{name}.md").read_text()
            for mark, header in (("@CELL@", "runtime/cell.h"), ("@CELL_OF@", "generated/e79.h")):
                if mark in text:
                    text = text.replace(mark, headers.first_comment(self.read(header)))
                    self.write(f"headers/{os.path.basename(header)}", headers.staged(self.read(header)))
            self.write(f"reference/{name}.md", self.relink(text, "site/x", f"reference/{name}.md"))

    def make(self):
        shutil.rmtree(self.out, ignore_errors=True)
        self.out.mkdir(parents=True)
        self.wanted += [
            page for pages in NAVIGATION.values() for page in pages if not page.startswith("site:")
        ]
        self.home()
        self.start()
        self.commands()
        self.functions()
        self.man()
        self.references()
        gallery.write(self)
        self.follow()


def one_title(text):
    """A page with two titles has one, and what is below the second goes a level down."""
    titles = [
        found.start()
        for found in re.finditer(
            r"^# ", re.sub(r"^```.*?^```", lambda f: " " * len(f[0]), text, flags=re.M | re.S), re.M
        )
    ]
    if len(titles) < 2:
        return text
    parts = re.split(r"(^```.*?^```[^\n]*$)", text[titles[1] :], flags=re.M | re.S)
    return text[: titles[1]] + "".join(
        part if part.startswith("```") else re.sub(r"^#", "##", part, flags=re.M) for part in parts
    )


def fenced(text, language):
    fence = "`" * max([3] + [len(run) + 1 for run in re.findall(r"`{3,}", text)])
    return f"{fence}{language}\n{text.rstrip()}\n{fence}\n"


def rows(line, starts):
    """A line of a table in columns: its cells end at two blanks, or else where the columns begin."""
    cells = re.split(r" {2,}", line.strip(), maxsplit=len(starts) - 1)
    return (
        cells
        if len(cells) == len(starts)
        else [line[a:b].strip() for a, b in zip(starts, [*starts[1:], None])]
    )


def html_table(head, lines):
    cells = [f"<tr>{''.join(f'<td>{gallery.escape(cell)}</td>' for cell in line)}</tr>" for line in lines]
    return gallery.raw(
        f'<div class="table-wrapper"><table class="docutils"><thead><tr>'
        f"{''.join(f'<th>{gallery.escape(word)}</th>' for word in head)}</tr></thead>"
        f"<tbody>{''.join(cells)}</tbody></table></div>"
    )


if __name__ == "__main__":
    Site(os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2]), os.environ["CELLC"]).make()
