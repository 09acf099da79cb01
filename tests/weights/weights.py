"""Files of weights, read and written by cell_weights.h (the program in argv[1]) and by this, which has the
format from its description; where the package safetensors is there, by that too. Then files that are
broken in each way."""

import json
import os
import random
import struct
import subprocess
import sys
import tempfile

PROGRAM = sys.argv[1]
VALUES = [0.0, -1.5, 3.0, 1e-30, 1e30, -0.0]
passed = failed = 0


def expect(right, what):
    global passed, failed
    passed += bool(right)
    failed += not right
    if not right:
        print("FAIL:", what)


def run(*words):
    done = subprocess.run([PROGRAM, *words], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def parse(data):
    """(header, bytes of the tensors)."""
    (length,) = struct.unpack("<Q", data[:8])
    return json.loads(data[8 : 8 + length].decode()), data[8 + length :]


def build(header, body, text=None):
    head = (json.dumps(header) if text is None else text).encode()
    return struct.pack("<Q", len(head)) + head + body


def f32(values):
    return struct.pack(f"<{len(values)}f", *values)


def good(**changes):
    """A file that `load` takes."""
    header = {
        "a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
        "b.c": {"dtype": "F32", "shape": [], "data_offsets": [24, 28]},
    }
    header.update(changes)
    return header, f32(VALUES) + f32([7.0])


def with_file(data):
    with open(PATH, "wb") as f:
        f.write(data)
    return PATH


def what_is_written():
    expect(run("save", PATH)[0] == 0, "saving")
    with open(PATH, "rb") as f:
        data = f.read()
    header, body = parse(data)
    expect(struct.unpack("<Q", data[:8])[0] % 8 == 0, "tensors begin at a multiple of 8 bytes")
    expect(header["__metadata__"] == {"spec": "1234", 'who"': "a\\b"}, "metadata")
    expect(list(header)[1:] == ["a", 'quote" and \\ \n ä', "b.c", "wide", "none", "places"], "names")
    expect(
        header["none"] == {"dtype": "F32", "shape": [0, 4], "data_offsets": [40, 40]},
        "a tensor without elements",
    )
    begin, end = header["a"]["data_offsets"]
    expect(body[begin:end] == f32(VALUES), "values")
    begin, end = header["places"]["data_offsets"]
    expect(struct.unpack("<3i", body[begin:end]) == (1, -2, 3) and end == len(body), "integers")
    expect(os.listdir(os.path.dirname(PATH)) == [os.path.basename(PATH)], "nothing but the file stays")
    try:
        from safetensors import safe_open
    except ImportError:
        return
    with safe_open(PATH, "np") as f:  # NumPy has no bf16, in which another tensor of the file is
        expect(
            f.get_tensor("a").tolist()
            == [VALUES[:3], [struct.unpack("<f", f32([v]))[0] for v in VALUES[3:]]],
            "safetensors",
        )
        expect(sorted(f.keys()) == sorted(list(header)[1:]), "safetensors: names")
        expect(f.metadata()["spec"] == "1234", "safetensors: metadata")


def what_is_read():
    header, body = good()
    wanted = " ".join(repr(struct.unpack("<f", f32([v]))[0]) for v in VALUES).split()
    code, said = run("load", with_file(build(header, body)), "f32")
    expect(
        code == 0 and [float(v) for v in said.split()] == [float(v) for v in wanted] + [7.0], "f32: " + said
    )
    for text in (
        json.dumps(header, indent=2) + "  \n",
        json.dumps(header).replace("b.c", "b\\u002ec"),
        json.dumps({**header, "__metadata__": {}}),
    ):
        code, said = run("load", with_file(build(header, body, text)), "f32")
        expect(code == 0, f"another text of the header: {said}")
    code, said = run("load", with_file(build(header, body)), "f64")
    expect(
        code == 0 and [float(v) for v in said.split()][3] == struct.unpack("<f", f32([1e-30]))[0],
        "f32 as f64",
    )
    code, said = run("load", with_file(build(header, body)), "bf16")
    expect(code == 0 and said.split()[1] == "-1.5", "f32 as bf16")
    code, said = run("load", with_file(build(header, body)), "f16")
    expect(code == 0 and said.split()[4] == "inf", "f32 as f16, beyond its range")
    tie = struct.pack("<6d", 1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-50, 0, 0, 0)
    header["a"] = {"dtype": "F64", "shape": [2, 3], "data_offsets": [0, 48]}
    header["b.c"]["data_offsets"] = [48, 52]
    code, said = run("load", with_file(build(header, tie + f32([1]))), "bf16")
    expect(said.split()[:3] == ["1", "1.015625", "1.0078125"], "f64 as bf16 is rounded once: " + said)
    header, body = good()
    code, said = run(
        "load",
        with_file(
            build(
                {**header, "more": {"dtype": "F8_E4M3", "shape": [3], "data_offsets": [28, 31]}},
                body + b"abc",
            )
        ),
        "f32",
    )
    expect(code == 0, "what is not asked for is left alone: " + said)
    expect(
        run("text", with_file(build({"__metadata__": {"k": "ä\n"}, **header}, body)), "k") == (0, "ä\n\n"),
        "a text",
    )
    expect("no metadata of the key 'z'" in run("text", PATH, "z")[1], "no such text")


def one_change(at, value):
    header, body = good()
    data = bytearray(build(header, body))
    data[at] = value
    return bytes(data)


def what_is_refused():
    header, body = good()
    whole = build(header, body)
    a, bc = header["a"], header["b.c"]
    wrong = {
        "it has less than 8 bytes": [b"", whole[:7]],
        "longer than the file": [
            struct.pack("<Q", 1 << 63) + whole[8:],
            whole[:40],
            struct.pack("<Q", len(whole)) + whole[8:],
        ],
        "begin with {": [build({}, body, " {}"), build({}, b"", "")],
        "it is cut": [whole[:-1], whole[:-28]],
        "behind the last tensor": [whole + b"x"],
        "the bytes of a tensor": [
            build({**header, "a": {**a, "shape": [2, 4]}}, body),
            build({**header, "a": {**a, "dtype": "F64"}}, body),
            build({**header, "a": {**a, "data_offsets": [24, 0]}}, body),
            build({**header, "a": {**a, "shape": [2**40, 2**40]}}, body),
        ],
        "overlap": [
            build({**header, "b.c": {**bc, "data_offsets": [20, 24]}}, body),
            build({**header, "b.c": {**bc, "data_offsets": [28, 32]}}, body + b"1234"),
        ],
        "a name comes twice": [
            build(header, body, json.dumps(header).replace("b.c", "a").replace("[]", "[1]"))
        ],
        "too large": [build({**header, "a": {**a, "shape": [2**63]}}, body)],
        "more axes than 8": [build({**header, "a": {**a, "shape": [1] * 9}}, body)],
        "other than two offsets": [build({**header, "a": {**a, "data_offsets": [0]}}, body)],
        "other members": [build({**header, "a": {**a, "more": 1}}, body)],
        "has not dtype": [build({**header, "a": {"dtype": "F32", "shape": [2, 3]}}, body)],
        "no whole number": [
            build({**header, "a": {**a, "shape": [2.0, 3]}}, body),
            build({**header, "a": {**a, "shape": [-2, 3]}}, body),
        ],
        "a tensor is no object": [build({**header, "a": 1}, body)],
        "none of JSON": [
            build({}, b"", '{"\\x": 1}'),
            build({}, b"", '{"\\u12": 1}'),
            build({}, b"", '{"\\ud800": 1}'),
            build({}, b"", '{"a\\u0000b": 1}'),
            build({}, b"", '{"\n": 1}'),
        ],
        "is no UTF-8": [
            struct.pack("<Q", len(name) + 6) + b'{"' + name + b'":1}'
            for name in (b"\xff", b"a\xc3", b"\xed\xa0\x80", b"\xc0\xaf", b"\xf5\x80\x80\x80", b"\xf4\x90\x80\x80")
        ],
        "a key of its __metadata__ comes twice": [build({}, b"", '{"__metadata__":{"k":"1","k":"2"}}')],
        "does not end": [build({}, b"", '{"a'), build({}, b"", "{" + json.dumps(header)[1:-1])],
        "two __metadata__": [build({}, b"", '{"__metadata__":{},"__metadata__":{}}')],
        "more behind its header": [build({}, body, json.dumps(header) + "x")],
        "'b.c' is of type I32, wanted is F32": [build({**header, "b.c": {**bc, "dtype": "I32"}}, body)],
        "'b.c' has the shape [1], wanted is []": [build({**header, "b.c": {**bc, "shape": [1]}}, body)],
        "'a' has the shape [3, 2], wanted is [2, 3]": [build({**header, "a": {**a, "shape": [3, 2]}}, body)],
        "has no tensor 'b.c'; it has 2, the first is 'a'": [build({"a": a, "bc": bc}, body)],
    }
    for message, files in wrong.items():
        for data in files:
            code, said = run("load", with_file(data), "f32")
            expect(
                code == 1 and message in said and said.startswith("untouched"), f"{message}: {code} {said}"
            )
    code, said = run("load", "/nowhere/file", "f32")
    expect(code == 1 and "cannot read /nowhere/file: No such file or directory" in said, said)
    code, said = run("save", "/nowhere/file")
    expect(code == 1 and "cannot write /nowhere/file" in said, said)


def saved_at(path):
    """Is the file there whole?"""
    with open(path, "rb") as f:
        header, body = parse(f.read())
    return "places" in header and header["places"]["data_offsets"][1] == len(body)


def where_it_is_saved(place):
    """A link stays, and its file is written; saves at once do not meet; the file has a new file's permissions."""
    real, link, lost = (os.path.join(place, name) for name in ("real", "link", "lost"))
    os.symlink("real", link)
    code, said = run("save", link)
    expect(code == 1 and f"cannot follow the link {link}: No such file" in said, "a link that leads nowhere: " + said)
    with open(real, "w") as f:
        f.write("before")
    expect(run("save", link)[0] == 0 and os.path.islink(link) and saved_at(real), "a link")
    mask = os.umask(0o027)
    expect(run("save", lost)[0] == 0 and os.stat(lost).st_mode & 0o777 == 0o640, "permissions")
    os.umask(mask)
    every = [subprocess.Popen([PROGRAM, "save", real], stdout=subprocess.DEVNULL) for _ in range(8)]
    expect([one.wait() for one in every] == [0] * 8 and saved_at(real), "saves at once")
    expect(sorted(os.listdir(place)) == ["link", "lost", "real"], f"nothing stays: {os.listdir(place)}")


def bytes_changed(count):
    """A header of which bytes are others: refused, or taken where the change does not matter; never a crash."""
    draw = random.Random(1)
    header, body = good(__metadata__={"k": "v"})
    length = len(json.dumps(header))
    whole = build(header, body)
    for _ in range(count):
        data = bytearray(whole)
        for _ in range(draw.choice([1, 1, 2])):
            data[draw.randrange(8 + length)] = draw.randrange(256)
        code, said = run("load", with_file(bytes(data)), "f32")
        expect(
            code in (0, 1) and "HALF" not in said and "Sanitizer" not in said,
            f"{bytes(data)!r}: {code} {said}",
        )


with tempfile.TemporaryDirectory() as place:
    PATH = os.path.join(place, "w.safetensors")
    what_is_written()
    what_is_read()
    what_is_refused()
    bytes_changed(400 if os.environ.get("FULL") == "1" else 60)
    expect(run("cell", PATH) == (0, "rnn.0.W [4, 2] rnn.0.bias same\n"), "params of a description")
    expect(run("wrong", PATH) == (0, "all refused\n"), "lists that are wrong")
with tempfile.TemporaryDirectory() as place:
    where_it_is_saved(place)
print(f"{passed} passed, {failed} failed")
sys.exit(failed > 0)
