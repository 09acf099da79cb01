"""Random edits and random bytes: the server lives through all of them, and gives back what it takes.

    fuzz.py EDITS SEED [--memory]

In: how many edits, and the seed. Each edit is of a text that began as a spec of specs/; behind each comes a request at a
random place, and now and then the text as a whole in another document, which must have the same outline and colours.
Then messages that are none. Out: what went wrong, with the text in build/lsp-fuzz.cell; with --memory also a line with the
memory before and after."""
import glob
import os
import random
import re
import sys

from client import Client

PIECES = ["{", "}", "[", "]", "(", ")", ";", "'", "=", "==", "~", ":", ",", ".", "?", "sum[j] ", "when ", "else ", "cell a {",
          "fn f(x)[i] = ", "repeat n:3 {", "carry A = 0;", "adjoint fn f(u; g) {", "import \"std.cell\";", "state h[N];",
          "input x[D];", "option o = a | b;", "\n", "\r\n", "\r", "//", "/*", "*/", '"', "1e9", "0", "99999999999999999999",
          "\0", "\x01", "é", "😀", "\u2028", "x", "h'", "y[i]", "t - 1", "grad(a, b; c)", "softmax[c]", "f(x).r", "T", "#",
          "\ufeff", "a" * 200]
PLACES = ["hover", "definition", "references", "documentHighlight", "completion", "prepareRename", "rename"]
WHOLE = ["documentSymbol", "semanticTokens/full", "formatting", "codeLens", "codeAction"]


def utf16(text):
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def lines_of(text):
    """As the protocol has lines: their texts without ends, and the ends."""
    lines, ends, line, i = [], [], "", 0
    while i < len(text):
        if text[i] in "\r\n":
            end = "\r\n" if text[i : i + 2] == "\r\n" else text[i]
            lines.append(line)
            ends.append(end)
            line, i = "", i + len(end)
        else:
            line, i = line + text[i], i + 1
    return lines + [line], ends + [""]


def place_of(text, at):
    before = text[:at]
    if text[at - 1 : at + 1] == "\r\n":  # inside of a line's end
        before = text[: at - 1]
    lines, _ = lines_of(before)
    return len(lines) - 1, utf16(lines[-1])


def edit(random, text, others):
    words = list(re.finditer(r"[A-Za-z_]\w*|\d+", text))
    if random.random() < 0.5 and words:  # another word, so that the form stays right
        word = random.choice(words)
        new = random.choice([random.choice(words).group(), "tanh", "sum", "0", "3", "zz", "D", "i", "j", "input"])
        return word.start(), word.end(), new
    lo = random.randrange(len(text) + 1)
    hi = min(len(text), lo + random.choice([0, 0, 0, 1, 1, 3, 10, 40, 400]))
    kind = random.random()
    if kind < 0.5:
        new = random.choice(PIECES)
    elif kind < 0.6:
        new = "".join(chr(random.choice([random.randrange(1, 128), random.randrange(0xA0, 0x2FF)])) for _ in range(4))
    elif kind < 0.8:
        other = random.choice(others)
        from_ = random.randrange(len(other) + 1)
        new = other[from_ : from_ + random.randrange(60)]
    else:
        new = ""
    if text[lo - 1 : lo + 1] == "\r\n" and lo:
        lo -= 1
    if text[hi - 1 : hi + 1] == "\r\n" and hi:
        hi += 1
    return lo, max(lo, hi), new


def memory(client):
    with open(f"/proc/{client.process.pid}/status") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmRSS"))


def fuzz_edits(client, rng, n, others, measured):
    uri, text, version = "file:///nowhere/fuzz.cell", "", 0
    base = None
    for k in range(n):
        if k % 8 == 0:
            text = rng.choice(others)
            version += 1
            if k % 16 == 0:
                client.open(uri, text, version)
            else:
                client.change(uri, version, text)
        lo, hi, new = edit(rng, text, others)
        a, b = place_of(text, lo), place_of(text, hi)
        version += 1
        client.change(uri, version, (*a, *b, new))
        text = text[:lo] + new + text[hi:]
        with open("build/lsp-fuzz.cell", "w", newline="") as f:
            f.write(text)
        if rng.random() < 0.7:
            method = rng.choice(PLACES)
            at = place_of(text, rng.randrange(len(text) + 1))
            client.at(method, uri, *at, newName="other", context={"includeDeclaration": True})
        else:
            whole = {"start": {"line": 0, "character": 0}, "end": {"line": 9999, "character": 0}}
            client.of(rng.choice(WHOLE), uri, range=whole, context={"diagnostics": []}, options={"tabSize": 4})
        if k % 10 == 9:
            client.open("file:///nowhere/again.cell", text)
            for method in "documentSymbol", "semanticTokens/full":
                assert client.of(method, uri)["result"] == client.of(method, "file:///nowhere/again.cell")["result"], method
            client.close("file:///nowhere/again.cell")
        client.notes.clear()
        if measured and k == n // 4:
            base = memory(client)
    return base


def fuzz_bytes(client, rng, n):
    for _ in range(n):
        size = rng.randrange(1, 300)
        junk = bytes(rng.randrange(256) for _ in range(size))
        kind = rng.randrange(4)
        if kind == 0:
            client.raw(b"Content-Length: %d\r\n\r\n" % size + junk)
        elif kind == 1:
            text = b'{"jsonrpc": "2.0", "id": 1, "method": "textDocument/hover", "params": {"position": [[{"a": "\\u00e4"}]]}}'
            at = rng.randrange(len(text))
            text = text[:at] + bytes([rng.randrange(256)]) + text[at + 1 :]
            client.raw(b"Content-Length: %d\r\n\r\n" % len(text) + text)
        elif kind == 2:
            client.raw(junk.replace(b"\n", b" ") + b"\r\n\r\n")
        else:
            client.raw(b"content-length:  %d \r\nContent-Type: x\r\n\r\n" % 2 + b"[]")
        if rng.random() < 0.2:
            client.ask("$/nothing")
    client.notes.clear()


def main():
    n, seed, measured = int(sys.argv[1]), int(sys.argv[2]), "--memory" in sys.argv
    rng = random.Random(seed)
    others = []
    for path in sorted(glob.glob("specs/*.cell")):
        with open(path, newline="") as f:
            others.append(f.read())
    client = Client()
    client.initialize()
    base = fuzz_edits(client, rng, n, others, measured)
    fuzz_bytes(client, rng, max(20, n // 20))
    if measured:
        now = memory(client)
        print(f"memory: {base} kB after {n // 4} edits, {now} kB after {n}")
        assert now < base * 1.25 + 4096, "memory grows"
    assert client.stop() == 0
    os.remove("build/lsp-fuzz.cell")


main()
