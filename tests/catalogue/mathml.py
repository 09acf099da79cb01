"""Reads what `cellc doc --json` printed for each spec (files given as arguments). Each equation's MathML must be well
formed and have what the spec's text has: every name with its label, every number, every sign, neither more nor fewer.
Prints what is missing, and as its last line how many files passed and failed."""
import collections
import json
import re
import sys
import xml.etree.ElementTree as ElementTree

GREEK = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "kappa", "lambda", "mu", "nu", "xi", "pi",
         "rho", "sigma", "tau", "phi", "chi", "psi", "omega"]
LETTERS = dict(zip(GREEK, "αβγδεζηθκλμνξπρστφχψω"), eps="ε", inf="∞", sigmoid="σ", sum="∑", prod="∏", sqrt="√")
SIGNS = {"*": "·", "-": "−", "<=": "≤", ">=": "≥", "==": "=", "!=": "≠", "&&": "and", "||": "or", "!": "¬", "'": "′",
         "%": "mod"}
# Drawn by the layout, or added for the reader: brackets and commas; a quotient or a power has no sign either.
LAYOUT = set("()[]{},;:?^/|.") | {"\u2061", "\u2062", "if", "otherwise", "adjoint of", "carry"}


def word(name):
    """A name as its letter and its label's words."""
    cut = re.fullmatch(r"([^_]+)_(.+)", name) or re.fullmatch(r"(.*\D)(\d+)", name)
    if not cut:
        return [LETTERS.get(name, name)]
    head, label = cut.groups()
    return [LETTERS.get(head, head), *label.split("_")]


def of_text(text):
    found = collections.Counter()
    for token in re.findall(r"[A-Za-z_]\w*|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|<=|>=|==|!=|&&|\|\||\S", text):
        if re.fullmatch(r"[A-Za-z_]\w*", token):
            found.update([] if token in ("fn", "adjoint", "carry", "abs", "sqrt") else word(token))
        elif re.match(r"[\d.]", token) and token != ".":
            mantissa, _, power = token.lower().partition("e")
            found.update([] if power and mantissa == "1" else [mantissa])
            found.update(["10", power.lstrip("+-")] if power else [])
        elif token not in LAYOUT:
            found.update([SIGNS.get(token, token)])
    return found


def of_mathml(element):
    found = collections.Counter()
    for leaf in element.iter():
        for part in (leaf.text or "").split() if leaf.tag in ("mi", "mn", "mo", "mtext") else []:
            found.update(word(part) if leaf.tag == "mi" else [part] if part not in LAYOUT else [])
    return found


def wrong(line):
    root = ElementTree.fromstring(line["mathml"])
    text, drawn = of_text(root.get("alttext")), of_mathml(root)
    left = re.match(r"\w+'?\[([^=]*)\] *(?:: *\w+ *)?=|fn .*?\)\[([^=]*)\]", root.get("alttext"))
    for index in re.findall(r"(\w+) *:", (left.group(1) or left.group(2)) if left else ""):
        text.update(word(index))                      # below the name, and again beside its bound
    for sign in "·<−":          # 2i for 2*i, i < N for i:N, and the sign of an exponent
        text.pop(sign, None), drawn.pop(sign, None)
    return (text - drawn, drawn - text) if text != drawn else None


def main(paths):
    failed = 0
    for path in paths:
        with open(path) as file:
            lines = [line for line in json.load(file)["lines"] if line["mathml"]]
        bad = [(line["text"], *found) for line in lines if (found := wrong(line))]
        failed += bool(bad)
        for text, missing, more in bad[:3]:
            print(f"{path}: {text}: not in MathML {dict(missing)}, not in the spec {dict(more)}")
    print(len(paths) - failed, failed)


main(sys.argv[1:])
