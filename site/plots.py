"""The benchmark plots. In: a page that shows pictures of docs/plots; bench/curves.py, which reads
bench/results/curves.json. Out: the page with each picture as SVG in the page, whose points say their values,
and with the values as tables."""

import html
import importlib.util
import json
import re

from gallery import raw


LEGEND = (
    '<p class="legend"><span class="forward">forward</span> <span class="both">forward and backward</span> '
    '<span class="cliff">a jump in time</span></p>'
)


def curves_of(site):
    """bench/curves.py, and its curves with what was measured."""
    spec = importlib.util.spec_from_file_location("curves", site.root / "bench/curves.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    curves = module.read_curves()
    module.read_results(str(site.root / "bench/results/curves.json"), curves)
    return module, curves


def table(module, curve):
    rows = "".join(
        f'<tr><th scope="row">{value}</th>{"".join(f"<td>{times[key]:.4g}</td>" for key, _, _ in module.SERIES)}</tr>'
        for value, times in curve.measured
    )
    heads = "".join(f'<th scope="col">{label}, ms</th>' for _, label, _ in module.SERIES)
    return (
        f'<table class="docutils"><thead><tr><th scope="col">{html.escape(curve.varies)}</th>{heads}</tr></thead>'
        f"<tbody>{rows}</tbody></table>"
    )


def sizes_of(site, curve):
    """What a curve holds fixed, with the sizes' names, which the compiler gives for the instance."""
    words = curve.spec.split()
    cost = json.loads(site.run("doc", *curve.points[0][1].split(), "--json"))["cost"]
    listed = re.search(r"^run-time sizes: (.*(?:\n  .*)*)$", cost, re.M)[1]
    names = [size.split()[0] for size in listed.split(",")]
    points = [point[2].split(",") for point in curve.points]
    if len(names) != len(points[0]):
        raise SystemExit(f"site: {curve.name}: {len(points[0])} sizes, but the cell has {', '.join(names)}")
    fixed = [f"{name} {values[0]}" for name, *values in zip(names, *points) if len(set(values)) == 1]
    options = [word.replace("=", " ") for word in words if not word.startswith("--") and "*" not in word]
    return ", ".join(options + fixed)


def panel(site, module, curve):
    """A curve as a picture that takes the page's colours, with what was measured as a table below."""
    svg = module.picture([curve], {curve.name: module.find_cliffs(curve)})
    top, bottom = module.TOP - 8, module.HEIGHT
    svg = re.sub(
        r' width="\d+" height="\d+" viewBox="[^"]*"', f' viewBox="0 {top} {module.WIDTH} {bottom - top}"', svg
    )
    label = f"milliseconds of {html.escape(curve.name)} over {html.escape(curve.varies)}"
    svg = svg.replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1)
    svg = re.sub(
        r'<rect [^>]*fill="white"/>\n|<text [^>]*(?:font-weight="bold"|font-size="9")[^>]*>.*?</text>\n',
        "",
        svg,
    )
    svg = re.sub(
        r"(<text [^>]*>(?:forward|forward and backward|ringed: a cliff)</text>\n)+</svg>", "</svg>", svg
    )
    return (
        f'<div class="panel"><p><b>ms over {html.escape(curve.varies)}</b><br>{html.escape(sizes_of(site, curve))}</p>'
        f"{svg}<details><summary>values of {html.escape(curve.name)}</summary>{table(module, curve)}</details></div>"
    )


def inline(site, text, path):
    """The page's text with the plots that it shows in it; other pictures stay pictures."""
    if "](plots/" not in text:
        return text
    module, curves = curves_of(site)

    def figure(picture):
        words, name = picture.groups()
        panels = "".join(
            panel(site, module, curve) for curve in curves if curve.cell == name and len(curve.measured) > 1
        )
        return (
            raw(
                f'<figure class="plot"><figcaption>{html.escape(words)}</figcaption>{LEGEND}'
                f'<div class="panels">{panels}</div></figure>'
            )
            if panels
            else picture[0]
        )

    return re.sub(r"^!\[([^\]]*)\]\(plots/(\w+)\.svg\)$", figure, text, flags=re.M)
