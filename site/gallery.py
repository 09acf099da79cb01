"""The gallery: a page for each cell of specs/, and their index with a filter. All that a page says is what
the compiler says of the cell: `cellc doc --json` and `cellc graph`. In: a Site (pages.py). Out: cells/NAME.md
and cells/index.md."""

import concurrent.futures
import html
import json
import os
import re
import shutil
import tempfile

PICTURES = {"forward": [], "backward": ["--backward"]}
NO_GRAPHVIZ = "No picture: Graphviz was not installed where this page was made."
STATES = {None: "none", 0: "number", 1: "vector", 2: "matrix", 3: "3 axes", 4: "4 axes"}
FACTS = {
    "state": ("State", "the axes of the largest state"),
    "step": ("Step", "is the next state linear in the state"),
    "schedule": ("Schedule", "what the planner takes"),
    "chunks": ("In chunks", "could many steps be taken at once, as products"),
}


SMALLEST = 0.7  # how far a picture shrinks to fit, before it scrolls
LONGEST = 180  # characters of a summary


def escape(text):
    return html.escape(text, quote=True)


def raw(text):
    return f"\n```{{raw}} html\n{text}\n```\n"


def prose(text):
    """A comment of a spec as HTML: code, papers."""
    text = re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(" ".join(text.split())))
    return re.sub(
        r"arXiv:(\d{4}\.\d{4,5})", r'<a class="external" href="https://arxiv.org/abs/\1">arXiv:\1</a>', text
    )


# ---- what the compiler says


def facts_of(site, spec):
    return json.loads(site.run("doc", str(spec), "--json"))


def kinds(facts):
    walks = facts["state_axes"] is not None
    return {
        "state": STATES[facts["state_axes"]],
        "step": "no state" if not walks else "linear" if facts["linear"] else "nonlinear",
        "schedule": facts["schedule"]["name"],
        "chunks": "no state" if not walks else "yes" if facts["chunks"] else "no",
    }


def picture(site, spec, more, name):
    """The data flow as SVG that takes the page's colours; None without Graphviz."""
    if not shutil.which("dot"):
        return None
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "flow.svg")
        site.run("graph", str(spec), *more, "-o", path)
        with open(path) as file:
            svg = file.read()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<title>.*?</title>\n?|<!--.*?-->\n?", "", svg, flags=re.S)
    svg = re.sub(r'<polygon fill="white" stroke="(?:transparent|none)"[^>]*/>\n?', "", svg, count=1)
    svg = re.sub(r"<text [^>]*>[^<]*, (?:forward|backward)</text>\n?", "", svg, count=1)
    svg = re.sub(r' (?:fill|stroke|font-family|font-size|xmlns:xlink)="[^"]*"', "", svg)
    svg = re.sub(r' id="[^"]*"', "", svg)
    width = float(re.search(r'width="([\d.]+)pt"', svg)[1])
    return svg.replace(
        "<svg ",
        f'<svg role="img" aria-label="{escape(name)}" style="min-width: {SMALLEST * width:.0f}pt" ',
        1,
    )


# ---- pieces of a page


def equations(facts, plain=False):
    """The lines of a step; plain: without line numbers and notes."""
    out, depth = [], 0
    for line in facts["lines"]:
        while depth > line["depth"]:
            out.append("</div>")
            depth -= 1
        words = f"<code>{escape(line['text'])}</code>"
        if line["kind"] == "comment":
            out.append(f'<p class="remark">{prose(line["text"])}</p>')
        elif line["kind"] in ("if", "unless", "otherwise", "for"):
            said = (line["mathml"] or words).replace('display="block"', 'display="inline"')
            said = line["kind"] if line["kind"] == "otherwise" else f"{line['kind']} {said}"
            out.append(f'<p class="when">{said}</p><div class="branch">')
            depth += 1
        else:
            note = f'<p class="note">{prose(line["note"])}</p>' if line["note"] and not plain else ""
            number = (
                ""
                if plain
                else f'<a class="line" href="#the-spec" aria-label="line {line["line"]} of the spec">{line["line"]}</a>'
            )
            out.append(
                f'<div class="equation">{number}<div class="formula">{line["mathml"]}</div>{note}</div>'
            )
            if line["kind"] == "function" and not re.search(r" = ", line["text"]):
                out.append('<div class="branch">')
                depth += 1
    return f'<div class="equations">{"".join(out)}{"</div>" * depth}</div>'


def table(head, rows):
    if not any(row[-1] for row in rows):  # no notes
        head, rows = head[:-1], [row[:-1] for row in rows]
    heads = "".join(f'<th scope="col">{word}</th>' for word in head)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f'<div class="table-wrapper"><table class="docutils"><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>'


def named(row):
    name = f"<code>{escape(row['name'])}</code>"
    return name if row["letter"] == row["name"] else f"{name} {escape(row['letter'])}"


def tensors(facts):
    rows = [
        (
            escape(row["role"]),
            named(row),
            f"<code>{escape(row['shape'])}</code>"
            + (f" {escape(row['type'])}" if row["type"] else "")
            + (f" in {escape(row['domain'])}" if row["domain"] else ""),
            escape(row["init"] or ("0, or given" if row["role"] == "state" else "")),
            f"<code>{escape(row['only_if'])}</code>" if row["only_if"] else "",
            prose(row["note"]),
        )
        for row in facts["tensors"]
    ]
    columns = [0, 1, 2] + [k for k in (3, 4) if any(row[k] for row in rows)] + [5]
    head = ["", "name", "shape", "begins as", "only if", "note"]
    head[0] = '<span class="hidden">role</span>'
    return table([head[k] for k in columns], [[row[k] for k in columns] for row in rows])


def sizes(facts):
    rows = [
        (named(row), escape(row["value"]) if row["value"] else "given at run time", prose(row["note"]))
        for row in facts["sizes"]
    ]
    return table(["name", "value", "note"], rows)


def options(facts):
    rows = [
        (
            f"<code>{escape(row['name'])}</code>",
            ", ".join(
                f"<{'strong' if k == 0 else 'span'}>{escape(value)}</{'strong' if k == 0 else 'span'}>"
                for k, value in enumerate(row["values"])
            ),
            prose(row["note"]),
        )
        for row in facts["options"]
    ]
    return table(["option", "values, the default first", "note"], rows)


def chips(facts):
    items = "".join(
        f'<li><span>{FACTS[key][0]}</span> <a href="index.html?{key}={escape(value)}">{escape(value)}</a></li>'
        for key, value in kinds(facts).items()
    )
    return f'<ul class="chips" aria-label="facts">{items}</ul>'


def decisions(facts):
    out = ""
    for row in facts["summary"]:
        out += f"<dt>{escape(row['label'])}</dt>" if row["label"] else ""
        out += f"<dd>{prose(row['text'])}</dd>"
    return f'<dl class="decisions">{out}</dl>'


def flow(pictures):
    if not pictures["forward"]:
        return f"<p>{NO_GRAPHVIZ}</p>"
    key = "".join(
        f'<li class="{kind}">{words}</li>'
        for kind, words in (
            ("input", "input"),
            ("param", "param"),
            ("state", "state"),
            ("value", "value"),
            ("result", "output"),
        )
    )
    return (
        f'<div class="flow"><ul class="key" aria-label="what shapes mean">{key}</ul><div class="scroll">{pictures["forward"]}</div>'
        f'<details><summary>The gradients\' data flow</summary><div class="scroll">{pictures["backward"]}</div></details></div>'
    )


def about(facts):
    paragraphs = re.split(r"\n\s*\n", facts["about"].strip())
    return f'<div class="about">{"".join(f"<p>{prose(text)}</p>" for text in paragraphs if text)}</div>'


def summary(facts):
    """What a cell is, in a line: the first sentence about it, without where it comes from."""
    text = re.sub(r" ?\((?=[^()]*(?:\d{4}|arXiv|ladder))[^()]*\)", "", " ".join(facts["about"].split()))
    text = re.match(r"(?:[^.(]|\.(?! |$)|\([^()]*\)|\()*", text)[0]
    return text if len(text) <= LONGEST else text[:LONGEST].rsplit(" ", 1)[0].rstrip(",;:") + " …"


# ---- pages


def page(site, spec, facts, pictures):
    name = facts["cell"]
    text = site.read(spec)
    fence = "`" * max([3] + [len(run) + 1 for run in re.findall(r"`{3,}", text)])
    steps = "A prime marks a state after the step. " if facts["state_axes"] is not None else ""
    out = f"# {name}\n{raw(about(facts) + chips(facts))}\n## Equations\n{raw(equations(facts))}\n"
    out += (
        f"{steps}The numbers are lines of the spec; functions that are not defined here are those of "
        "[std.cell](../source/specs/std.cell.md) or of [the language](../reference/functions.md).\n"
    )
    out += f"\n## Data flow\n{raw(flow(pictures))}\n## Tensors\n{raw(tensors(facts))}"
    out += f"\n## Sizes and constants\n{raw(sizes(facts))}" if facts["sizes"] else ""
    out += f"\n## Options\n{raw(options(facts))}" if facts["options"] else ""
    out += (
        f"\n## Schedule and cost\n{raw(decisions(facts))}\n"
        f"{raw('<details><summary>Bytes and flops</summary>')}\n{fence}text\n{facts['cost'].rstrip()}\n{fence}\n{raw('</details>')}"
    )
    out += f"\n## The spec\n\n```{'`' * (len(fence) - 3)}{{code-block}} cell\n:caption: {spec}\n:linenos:\n\n{text.rstrip()}\n{fence}\n"
    out += (
        f'\n## Use it\n\n```python\nimport cellc\n\nCell = cellc.load("{name}")\n```\n\n```bash\ncellc explain {name}\n'
        f"cellc build {name} -o out\n```\n"
    )
    site.write(f"cells/{name}.md", out)


def index(site, cells):
    def card(facts):
        mine = kinds(facts)
        data = " ".join(f'data-{key}="{escape(value)}"' for key, value in mine.items())
        words = [
            "no state" if mine["state"] == "none" else mine["state"],
            *["complex"] * facts["complex"],
            *[mine["step"]] * (mine["state"] != "none"),
            mine["schedule"],
            *["chunks"] * (mine["chunks"] == "yes"),
        ]
        tags = "".join(f"<span>{escape(word)}</span>" for word in words)
        return (
            f'<li {data}><a href="{facts["cell"]}.html"><b>{facts["cell"]}</b><span class="what">{prose_text(summary(facts))}'
            f'</span></a><span class="tags">{tags}</span></li>'
        )

    def menu(key):
        values = sorted({kinds(facts)[key] for facts in cells})
        choices = "".join(f'<option value="{escape(value)}">{escape(value)}</option>' for value in values)
        label, words = FACTS[key]
        return f'<label title="{words}"><span>{label}</span><select name="{key}"><option value="">any</option>{choices}</select></label>'

    form = (
        f'<form class="filter" role="search" aria-label="filter the cells"><label class="words"><span>Name or words</span>'
        f'<input type="search" name="words" autocomplete="off"></label>{"".join(menu(key) for key in FACTS)}'
        f'<button type="reset">Reset</button></form><p class="count" role="status">{len(cells)} cells</p>'
    )
    out = (
        f"# Cells\n\nEvery cell that comes with cellc, with its equations as the compiler reads them. What is said of a cell is what the "
        f"compiler found, for the spec as it stands.\n{raw(form)}{raw('<ul class=cells>' + ''.join(map(card, cells)) + '</ul>')}\n"
    )
    names = "\n".join(facts["cell"] for facts in cells)
    site.write("cells/index.md", f"{out}\n```{{toctree}}\n:hidden:\n:titlesonly:\n\n{names}\n```\n")


def prose_text(text):
    return re.sub(r"<a [^>]*>(.*?)</a>", r"\1", prose(text))


def write(site):
    specs = [
        str(path.relative_to(site.root))
        for path in (site.root / "specs").glob("*.cell")
        if path.name != "std.cell"
    ]
    specs.sort(key=lambda spec: [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", spec)])
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        facts = list(pool.map(lambda spec: facts_of(site, spec), specs))
        jobs = [
            (spec, way, pool.submit(picture, site, spec, more, f"the data flow of a step, {way}"))
            for spec in specs
            for way, more in PICTURES.items()
        ]
    pictures = {spec: {} for spec in specs}
    for spec, way, job in jobs:
        pictures[spec][way] = job.result()
    for spec, mine in zip(specs, facts):
        page(site, spec, mine, pictures[spec])
    index(site, facts)
    site.page_of("specs/std.cell")
