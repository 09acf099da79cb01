"""Writes a random cell of gates in one of three spellings.

    respell.py SEED paper       a param for each gate's product, and each product as somebody might write it
    respell.py SEED laid        the same params, laid together by definitions
    respell.py SEED plain       one param for all products of a vector

paper and laid have the same params, so that `cellc compare` can tell whether they say the same; plain is
how one would write the step for the compiler."""

import random
import re
import sys


class Product:
    """A gate's product of a matrix and a vector, with a factor, in a random spelling."""

    def __init__(self, rng, name, vector, width, joined):
        self.name, self.vector, self.width = name, vector, width
        self.form = "joined" if joined else rng.choice(["usual", "swapped", "renamed", "turned"])
        self.factor = rng.choice(["", "", "0.5", "v[i]", "-"])
        self.place = rng.choice(["inside", "before", "behind"])
        self.made = None  # of an index, the vector's element as it stands inside of the sum

    def param(self):
        axes = {"turned": f"{self.width}, H", "joined": "H, D + H"}.get(self.form, f"H, {self.width}")
        return f"{self.name}[{axes}]"

    def element(self, row, column):
        """Of the matrix, at a row and a column."""
        if self.form == "turned":
            return f"{self.name}[{column}, {row}]"
        if self.form == "joined":
            return f"{self.name}[{row}, {column if self.vector == 'x' else 'D + ' + column}]"
        return f"{self.name}[{row}, {column}]"

    def scaled(self, text):
        """The product's value by its factor."""
        return f"(-{text})" if self.factor == "-" else f"{self.factor} * {text}" if self.factor else text

    def written_out(self, text):
        """With what the vector is made of in place of its name, where it has some."""
        return re.sub(rf"\b{self.vector}\[(\w+)\]", lambda m: self.made(m[1]), text) if self.made else text

    def text(self):
        return self.written_out(self.named_text()) if self.named_text() else None

    def named_text(self):
        if self.form == "joined" and self.vector != "x":
            return None  # it stands in the sum of the input's
        index = "q" if self.form == "renamed" else "j"
        if self.form == "joined":
            index = "k"
            terms = [f"{self.name}[i,k]", "(k < D ? x[k] : h[k - D])"]
        else:
            terms = [self.element("i", index), f"{self.vector}[{index}]"]
        if self.form == "swapped":
            terms.reverse()
        width = "D + H" if self.form == "joined" else self.width
        if self.factor == "-":
            return f"(sum[{index}:{width}] -{terms[0]} * {terms[1]})"
        if self.factor and self.place == "inside":
            terms.insert(1, self.factor)
        out = f"(sum[{index}:{width}] " + " * ".join(terms) + ")"
        if self.factor and self.place == "behind":
            return f"{out} * {self.factor}"
        return f"{self.factor} * {out}" if self.factor and self.place == "before" else out


def stack_of(name, products, width):
    value = ""
    for n, p in enumerate(products):
        place = f"r - {n}*H" if n else "r"
        last = n + 1 == len(products)
        value += p.element(place, "j") if last else f"r < {n + 1}*H ? {p.element(place, 'j')} : "
    return f"    {name}[r:{len(products)}*H, j:{width}] = {value};"


def columns_of(name, pairs):
    """The rows of the first products and, beside them, those of the second ones, as the first ones' signs have it."""
    value = ""
    for n, (p, q) in enumerate(pairs):
        place = f"r - {n}*H" if n else "r"
        sign = "" if p.factor == q.factor else "-"
        block = f"(k < H ? {p.element(place, 'k')} : {sign}{q.element(place, 'k - H')})"
        value += block if n + 1 == len(pairs) else f"r < {n + 1}*H ? {block} : "
    return f"    {name}[r:{len(pairs)}*H, k:2*H] = {value};"


def main(seed, spelling):
    rng = random.Random(seed)
    count = rng.randint(2, 4)
    late = rng.random() < 0.4  # the last gate's recurrent product is of another gate times h
    joined = [rng.random() < 0.25 and not (late and n + 1 == count) for n in range(count)]
    of_x = [Product(rng, f"W{n}", "x", "D", joined[n]) for n in range(count)]
    of_h = [Product(rng, f"U{n}", "h", "H", joined[n]) for n in range(count)]
    for x, h in zip(of_x, of_h):
        if x.form == "joined":
            h.name, h.factor, h.place = x.name, x.factor, x.place
    early = of_h[:-1] if late else of_h
    # Each of these gates may have a product of a second state beside it, in the same sum.
    own = random.Random(-1 - seed)
    of_c = [Product(own, f"C{n}", "c", "H", False) for n in range(len(early))]
    if any(joined) or own.random() < 0.4:
        of_c = []
    for p in early + of_c if of_c else []:
        p.factor = own.choice(["", "-"])
    if late:
        of_h[-1].vector = "s"
        if rng.random() < 0.5:
            of_h[-1].made = lambda at: f"(g0[{at}] * h[{at}])"
    # A product of what the gates give, behind all others; perhaps of a product in a sum.
    behind = Product(rng, "P", "m", "H", False) if rng.random() < 0.6 else None
    nested = behind and rng.random() < 0.5
    of_gates = " * ".join(f"g{n}[@]" for n in range(1, count))
    if behind and rng.random() < 0.5:
        inner = f"(sum[p:H] Q[@,p] * ({of_gates.replace('@', 'p')}))" if nested else f"({of_gates})"
        behind.made = lambda at: inner.replace("@", at)
    acts = [rng.choice(["sigmoid", "tanh"]) for _ in range(count - 1)] + ["tanh"]
    lines = [f"// random cell of gates, seed {seed}", "cell gates {", "    dim D, H;", "    input x[D];"]
    if spelling == "plain":
        columns = "2*H" if of_c else "H"
        params = [f"W[{count}*H, D]", f"U[{len(early)}*H, {columns}]"] + (["U_s[H, H]"] if late else [])
        params += ["P_s[H, H]"] if behind else []
    else:
        params = [p.param() for n in range(count) for p in (of_x[n], of_h[n])]
        params += [p.param() for p in of_c] + ([behind.param()] if behind else [])
        params = list(dict.fromkeys(params))
        rng.shuffle(params)
    params += ["Q[H, H]"] if nested else []
    biases = [f"b{n}[H]" for n in range(count)]
    lines += [
        "    param " + ", ".join(params + ["v[H]"] + biases) + ";",
        "    state h[H], c[H];" if of_c else "    state h[H];",
        "    output y[H];",
    ]
    if spelling == "laid":
        of_states = columns_of("U", list(zip(early, of_c))) if of_c else stack_of("U", early, "H")
        lines += [stack_of("W", of_x, "D"), of_states]
        if late:
            lines.append(stack_of("U_s", of_h[-1:], "H"))
        if behind:
            lines.append(stack_of("P_s", [behind], "H"))
    if spelling != "paper":
        lines.append(f"    wx[r:{count}*H] = sum[d] W[r,d] * x[d];")
        lines += ["    hc[k:2*H] = k < H ? h[k] : c[k - H];"] if of_c else []
        vector = "hc" if of_c else "h"
        lines.append(f"    uh[r:{len(early)}*H] = sum[k] U[r,k] * {vector}[k];")
    for n in range(count):
        last = n + 1 == count
        if late and last:
            lines.append("    s[i:H] = g0[i] * h[i];")
            if spelling != "paper":
                lines.append("    us[i:H] = sum[j] U_s[i,j] * s[j];")
        if spelling == "paper":
            terms = [of_x[n].text(), of_h[n].text(), f"b{n}[i]"]
            terms += [of_c[n].text()] if n < len(of_c) else []
            terms = [t for t in terms if t]
            rng.shuffle(terms)
        else:
            row = f"{n}*H + i" if n else "i"
            own = "us[i]" if late and last else f"uh[{row}]"
            terms = [of_x[n].scaled(f"wx[{row}]"), of_h[n].scaled(own), f"b{n}[i]"]
        lines.append(f"    g{n}[i:H] = {acts[n]}({' + '.join(terms)});")
    value = of_gates.replace("@", "i")
    if behind and (spelling != "paper" or not behind.made):
        of = "sum[p] Q[i,p] * n[p]" if nested else value
        lines += [f"    n[i:H] = {value};"] if nested else []
        lines.append(f"    m[i:H] = {of};")
    if behind and spelling != "paper":
        lines.append("    pm[i:H] = sum[j] P_s[i,j] * m[j];")
    if behind:
        value = behind.text() if spelling == "paper" else behind.scaled("pm[i]")
        value = f"0.5 * tanh({value})"
    lines.append(f"    h'[i] = 0.5 * g0[i] * h[i] + {value};")
    lines += ["    c'[i] = 0.5 * c[i] + 0.5 * h[i];"] if of_c else []
    print("\n".join(lines + ["    y[i] = h'[i];", "}"]))


main(int(sys.argv[1]), sys.argv[2])
