"""Arithmetic over sizes, as manifests have it. In: a text such as "4*H", "D/H" or "1/sqrt(H)". Out: an Expression, with the
dims in it, and its value at sizes. Guaranteed: the text is read by the grammar below and nothing of it is run; a dim may
have any name, Python's words among them.

    sum     = product { ("+" | "-") product }
    product = sign { ("*" | "/") sign }
    sign    = "-" sign | primary
    primary = number | "inf" | name | function "(" sum { "," sum } ")" | "(" sum ")"
"""

import math
import operator
import re

from .errors import ShapeError

TOKEN = re.compile(r"\s*(?:(\d+\.?\d*(?:[eE][-+]?\d+)?)|([A-Za-z_]\w*)|([-+*/(),]))", re.ASCII)


class Undefined(Exception):
    """What an operation has no value for, as "1/0"."""


FUNCTIONS = {
    "sqrt": math.sqrt, "rsqrt": lambda x: 1 / math.sqrt(x), "exp": math.exp, "expm1": math.expm1, "log": math.log,
    "log1p": math.log1p, "pow": math.pow, "abs": abs, "min": min, "max": max,
    "clamp": lambda x, low, high: min(max(x, low), high), "floor": math.floor, "ceil": math.ceil, "round": round,
    "sign": lambda x: (x > 0) - (x < 0), "sin": math.sin, "cos": math.cos, "tan": math.tan, "atan": math.atan,
    "atan2": math.atan2, "sinh": math.sinh, "cosh": math.cosh, "tanh": math.tanh, "erf": math.erf,
}
SIGNS = {"+": operator.add, "-": operator.sub, "*": operator.mul}


class Expression:
    """`of(sizes)` is the value; `names` are the dims. A quotient is rounded down where `whole`, as in an extent, which the
    runtime has checked to be exact."""

    def __init__(self, text, whole):
        self.text, self.whole, self.names = text, whole, []
        self.tokens, self.place = [], 0
        at = 0
        while text[at:].strip():
            found = TOKEN.match(text, at)
            if not found:
                raise self.wrong()
            self.tokens.append(found)
            at = found.end()
        self.of = self.sum()
        if self.place < len(self.tokens):
            raise self.wrong()
        self.names = sorted(set(self.names))

    def wrong(self):
        return ShapeError(f"the manifest has an expression that is none: {self.text}")

    def accept(self, signs):
        """The next token, where it is one of these signs; else ""."""
        if self.place < len(self.tokens) and (self.tokens[self.place][3] or " ") in signs:
            self.place += 1
            return self.tokens[self.place - 1][3]
        return ""

    def expect(self, sign):
        if not self.accept(sign):
            raise self.wrong()

    def pairs(self, part, signs):
        left = part()
        while sign := self.accept(signs):
            left = self.pair(sign, left, part())
        return left

    def pair(self, sign, left, right):
        compute = SIGNS.get(sign) or (operator.floordiv if self.whole else operator.truediv)

        def value(sizes):
            a, b = left(sizes), right(sizes)
            try:
                return compute(a, b)
            except ArithmeticError:
                raise Undefined(f"{a:g}{sign}{b:g}") from None

        return value

    def sum(self):
        return self.pairs(self.product, "+-")

    def product(self):
        return self.pairs(self.sign, "*/")

    def sign(self):
        if not self.accept("-"):
            return self.primary()
        operand = self.sign()
        return lambda sizes: -operand(sizes)

    def primary(self):
        if self.accept("("):
            inside = self.sum()
            self.expect(")")
            return inside
        if self.place == len(self.tokens) or self.tokens[self.place][3]:
            raise self.wrong()
        number, name = self.tokens[self.place][1], self.tokens[self.place][2]
        self.place += 1
        if number or name == "inf":
            known = math.inf if name else int(number) if number.isdecimal() else float(number)
            return lambda sizes: known
        if self.accept("("):
            return self.call(name)
        self.names.append(name)
        return lambda sizes: sizes[name]

    def call(self, name):
        if name not in FUNCTIONS:
            raise self.wrong()
        arguments = [self.sum()]
        while self.accept(","):
            arguments.append(self.sum())
        self.expect(")")

        def value(sizes):
            given = [argument(sizes) for argument in arguments]
            try:
                return FUNCTIONS[name](*given)
            except (ArithmeticError, ValueError):
                raise Undefined(f"{name}({', '.join(f'{v:g}' for v in given)})") from None

        return value
