"""The pages' sources against the tree: sources.py ROOT OUT, where OUT is what site/pages.py wrote. Prints
what is wrong, and as its last line how many checks passed and failed."""

import re
import sys
from pathlib import Path

passed = failed = 0


def check(right, words):
    global passed, failed
    passed, failed = passed + bool(right), failed + (not right)
    if not right:
        print(words)


def main(root, out):
    specs = {
        path.stem: path.read_text() for path in (root / "specs").glob("*.cell") if path.name != "std.cell"
    }
    index = (out / "cells/index.md").read_text()
    for name, text in specs.items():
        page = (out / f"cells/{name}.md").read_text()
        block = re.search(r"^(`+)\{code-block\} cell\n(?::[^\n]*\n)*\n(.*?)\n\1$", page, re.M | re.S)
        check(block and block[2] == text.rstrip(), f"cells/{name}: what is copied is not the spec")
        check(f'href="{name}.html"' in index and f"\n{name}\n" in index, f"cells/index: {name} is not listed")
        want = len(re.findall(r"^ *(?:when .*\{ )?[A-Za-z_0-9]+'?(?:\[[^]]*\])? *(?:: \w+ *)?= ", text, re.M))
        check(
            page.count('<div class="formula"><math') >= want,
            f"cells/{name}: {want} equations in the spec, fewer on the page",
        )
        check(
            page.count("<div") == page.count("</div") and page.count("<details") == page.count("</details"),
            f"cells/{name}: elements that are not closed",
        )
        check(
            "<svg " in page or "No picture: Graphviz" in page,
            f"cells/{name}: neither a picture nor a word about it",
        )
    check(index.count("<li data-state=") == len(specs), "cells/index: not a line for each spec")

    # Links between the pages; Sphinx sees to those to sections.
    links = 0
    for page in out.rglob("*.md"):
        prose = re.sub(r"^```.*?^```|`[^`\n]*`", "", page.read_text(), flags=re.M | re.S)
        for target in re.findall(r"\]\(([^()\s#:]+)(?:#[^()\s]*)?\)", prose):
            links += 1
            check((page.parent / target).exists(), f"{page.relative_to(out)}: there is no {target}")
    check(links > 200, f"only {links} links found")

    # Every function of the interface stands in the C reference, every curve has its panel and its values.
    header, staged = (root / "runtime/cell.h").read_text(), (out / "headers/cell.h").read_text()
    for name in set(re.findall(r"^[a-z]\w[^/#\n]*?\b(cell_\w+)\(", header, re.M)):
        check(
            re.search(rf"/\*\*[^\n]*\*/\n[^\n]*\b{name}\(", staged),
            f"C reference: {name} has no comment in front of it",
        )
    check(
        re.sub(r"/\*.*?\*/|\s|\\", "", header, flags=re.S)
        == re.sub(r"/\*.*?\*/|\s|\\", "", staged, flags=re.S),
        "C reference: the header's declarations are not what they were",
    )
    performance = (out / "docs/performance.md").read_text()
    for name in re.findall(r"\]\(plots/(\w+)\.svg\)", (root / "docs/performance.md").read_text()):
        check(f'aria-label="milliseconds of {name}-' in performance, f"docs/performance: no plot of {name}")
    check(
        performance.count('<div class="panel">') == performance.count("<summary>values of"),
        "a plot without its values",
    )
    commands = (out / "reference/commands.md").read_text()
    for name in re.findall(r"^  (\w+) ", commands.split("examples:")[0], re.M):
        check(f"\n## cellc {name}\n" in commands, f"no help of {name}")
    print(passed, failed)


main(Path(sys.argv[1]), Path(sys.argv[2]))
