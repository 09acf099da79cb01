"""Headers as hawkmoth takes them, which reads only comments that begin with two stars and stand in front of
what they are about. In: the text of one of the project's headers, whose comments stand in front of a
declaration, or behind a member on its line. Out: the same declarations with such comments, each paragraph one
line; a declaration that shares the comment in front of its neighbour refers to it. The header's first
comment, which is about the whole, is left out: first_comment() gives it."""

import re

DECLARED = re.compile(r"^(?:typedef |enum|struct|const |[a-z_]\w* )")
NAME = re.compile(r"(\w+)\s*\(")


def first_comment(text):
    return " ".join(re.match(r"/\*(.*?)\*/", text, re.S)[1].replace("\n *", " ").split())


def plain(comment):
    """A comment's text as reStructuredText: on one line, its code marked, and nothing else of it a mark."""
    words = " ".join(re.sub(r"\n\s*\*", " ", comment).split())
    parts = re.split(r"(`[^`]+`)", words)
    return "".join(
        f"`{part}`" if part.startswith("`") else re.sub(r"([*_|\\])", r"\\\1", part) for part in parts
    )


def units(text):
    """(code, comment) in order: a line of code, and the comment behind it or None; None, and a comment of its own."""
    lines = iter(text.split("\n"))
    for line in lines:
        while "/*" in line and "*/" not in line:
            line += "\n" + next(lines)
        code, open_mark, comment = line.partition("/*")
        yield (
            code.rstrip() if code.strip() or not open_mark else None,
            plain(comment.rpartition("*/")[0]) if open_mark else None,
        )


def staged(text):
    text = text[re.match(r"/\*.*?\*/", text, re.S).end() :]
    out, comment, neighbour, depth = [], None, None, 0
    for code, note in units(text):
        if code is None:
            comment = note
            continue
        if not code.strip():
            out.append("")
            neighbour = None
            continue
        inside = depth > 0 and not code.startswith("}")
        starts = depth == 0 and DECLARED.match(code) and not code.startswith("extern")
        comment = note if note is not None else comment
        if (starts or inside) and comment is None:  # without one, hawkmoth leaves it out
            comment = f"See :c:func:`{neighbour}`." if starts and neighbour else "\\"
        if comment is not None and (starts or inside):
            out.append(f"{re.match(' *', code)[0]}/** {comment} */")
            comment = None
        if starts:
            name = NAME.search(code)
            neighbour = name[1] if name else None
        out.append(code)
        depth += 0 if code.startswith(("extern", "}")) and depth == 0 else code.count("{") - code.count("}")
    return "\n".join(out) + "\n"
