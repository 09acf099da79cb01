"""What `cellc lsp` answers, to a client that also sends what is wrong. Each function whose name begins with test_ is a check.
Prints those that failed, and "N passed, N failed"."""
import glob
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback

from client import Client, edited, place

SPEC = """// A test: ünïcode 😀 in comments.
import "std.cell";

cell net {
    dim D;                  // width of the input
    dim N = 8;
    option act = tanh | relu;
    option gate = none | soft;
    input x[D];
    param W[N, D] ~ xavier; // weights 😀
    state h[N];
    output y[N];
    fn gates(p) { i[u:N] = sigmoid(p[u]); f[u:N] = tanh(p[u]); }
    /* 😀 */ k[i:N] = sum[d] W[i,d] * x[d];
    when act == tanh { z[i] = tanh(k[i]); } else { z[i] = relu(k[i]); }
    when act == relu && gate == soft { y[i] = z[i] + h[i]; } else { y[i] = h'[i] * l2norm(z)[i]; }
    h'[i] = gates(z).i[i] * h[i] + gates(z).f[i];
}
"""
URI = "file:///nowhere/net.cell"
checks = []


def test(function):
    checks.append(function)
    return function


def started(text=SPEC, **capabilities):
    client = Client()
    client.initialize(**capabilities)
    client.open(URI, text)
    return client


def shown(client, text, version):
    """The messages for a text, with those of other choices of options, which come later."""
    client.change(URI, version, text)
    client.of("codeAction", URI, range={"start": {"line": 0, "character": 0}, "end": {"line": 0, "character": 0}},
              context={"diagnostics": []})
    client.ask("$/nothing")
    time.sleep(0.05)
    client.of("documentSymbol", URI)
    found = []
    for note in client.notes:
        if note.get("method") == "textDocument/publishDiagnostics" and note["params"].get("version") == version:
            found = note["params"]["diagnostics"]
    client.notes.clear()
    return found


@test
def lives_as_the_protocol_says():
    client = Client()
    assert client.error("textDocument/hover", {})["code"] == -32002  # not initialized
    result = client.result("initialize", {"capabilities": {"general": {"positionEncodings": ["utf-16", "utf-8"]}}})
    assert result["capabilities"]["positionEncoding"] == "utf-8"
    assert client.error("initialize", {"capabilities": {}})["code"] == -32600
    client.tell("initialized")
    client.tell("$/setTrace", {"value": "off"})
    assert client.error("textDocument/nothing", {})["code"] == -32601
    assert client.error("textDocument/hover", {})["code"] == -32602
    assert client.error("textDocument/hover", {"textDocument": {"uri": URI}, "position": {"line": 0, "character": 0}})["code"] == -32602
    client.open(URI, SPEC)
    assert client.error("textDocument/hover", {"textDocument": {"uri": URI}})["code"] == -32602
    assert client.error("textDocument/hover", [1])["code"] == -32602
    assert client.result("shutdown") is None
    assert client.error("textDocument/hover", {})["code"] == -32600
    client.tell("exit")
    assert client.process.wait(60) == 0


@test
def ends_with_1_without_shutdown():
    for end in "exit", None:
        client = Client()
        client.initialize()
        if end:
            client.tell(end)
        else:
            client.process.stdin.close()
        assert client.process.wait(60) == 1


@test
def answers_what_is_no_message():
    client = Client()
    client.initialize()
    for content, code, id in [
        (b"{", -32700, None), (b"[]", -32600, None), (b"{}", -32600, None), (b"\xff", -32700, None),
        (b'{"jsonrpc": "1.0", "id": 7, "method": "shutdown"}', -32600, 7),
        (b'{"jsonrpc": "2.0", "id": 8, "method": 5}', -32600, 8),
        (b'{"jsonrpc": "2.0", "id": {}, "method": "x"}', -32600, None),
        (b'{"jsonrpc": "2.0", "id": "a", "method": "shutdown", "params": 3}', -32600, "a"),
        (b'{"jsonrpc": "2.0", "id": 9, "method": "shutdown"} x', -32700, None),
    ]:
        client.raw(b"Content-Length: %d\r\n\r\n" % len(content) + content)
        answer = client.receive()
        assert (answer["id"], answer["error"]["code"]) == (id, code), (content, answer)
    for header in b"Content-Type: x\r\n\r\n", b"Content-Length: -5\r\n\r\n", b"Content-Length: 99999999999\r\n\r\n", b"junk\n\n":
        client.raw(header)
        assert client.receive()["error"]["code"] == -32700, header
    content = b'{"jsonrpc": "2.0", "id": 10, "method": "shutdown"}'
    for part in b"content-length: ", b"%d\r\nContent-Type: application/vscode-jsonrpc; charset=utf-8\r\n\r" % len(content), b"\n", content:
        client.raw(part)
    assert client.receive() == {"jsonrpc": "2.0", "id": 10, "result": None}
    client.tell("exit")
    assert client.process.wait(60) == 0


@test
def cancels_what_waits():
    client = started()
    client.diagnostics(URI)
    lens = {"textDocument": {"uri": URI}}
    text = b""
    for message in [{"id": 90, "method": "textDocument/codeLens", "params": lens},
                    {"id": "x", "method": "textDocument/hover", "params": {**lens, "position": {"line": 0, "character": 0}}},
                    {"method": "$/cancelRequest", "params": {"id": "x"}}]:
        content = json.dumps({"jsonrpc": "2.0", **message}).encode()
        text += b"Content-Length: %d\r\n\r\n" % len(content) + content
    client.raw(text)
    assert "result" in client.answer(90)
    assert client.answer("x")["error"]["code"] == -32800
    assert client.stop() == 0


@test
def says_what_is_wrong_as_one_types():
    client = started()
    assert client.diagnostics(URI, 1) == []
    line, character = place(SPEC, "* x[d]", 2)
    client.change(URI, 2, (line, character, line, character + 1, "xx"))
    (found,) = client.diagnostics(URI, 2)
    assert found["message"] == "unknown value 'xx'; did you mean 'x'?" and found["severity"] == 1 and found["source"] == "cellc"
    assert found["range"] == {"start": {"line": line, "character": character}, "end": {"line": line, "character": character + 2}}
    client.change(URI, 3, (line, character, line, character + 2, "x"))
    assert client.diagnostics(URI, 3) == []
    # two changes of one message, of which the second counts behind the first; a line of surrogate pairs
    line, character = place(SPEC, "/* 😀 */ k", 8)
    assert character == 13
    client.change(URI, 4, (line, character, line, character + 1, "kk"), (line, character, line, character + 2, "k"))
    assert client.diagnostics(URI, 4) == []
    assert [d["message"] for d in shown(client, SPEC.replace("dim N = 8;", "dim N = 8"), 5)] == ["expected ';' after the dim"]
    assert client.stop() == 0


@test
def looks_into_branches_that_are_not_taken():
    client = started()
    found = shown(client, SPEC.replace("z[i] + h[i]", "z[i] + hh[i]"), 2)
    assert [d["message"] for d in found] == ["unknown value 'hh'; did you mean 'h'? (with act=relu, gate=soft)"], found
    found = shown(client, SPEC.replace("relu(k[i])", "relu(k[i,i])"), 3)
    assert [d["message"] for d in found] == ["'k' has 1 axis, but 2 indices are given (with act=relu)"], found
    assert client.stop() == 0


@test
def tells_what_an_import_breaks():
    with tempfile.TemporaryDirectory() as folder:
        one, two = f"file://{folder}/a%20one.cell", f"file://{folder}/two.cell"
        user = 'import "two.cell";\ncell a { dim N; input x[N]; output y[N]; y[i] = twice(x)[i]; }\n'
        with open(f"{folder}/two.cell", "w") as f:
            f.write("fn other(x)[i] = x[i];\n")
        client = Client()
        client.initialize()
        client.open(one, user)
        (found,) = client.diagnostics(one)
        assert found["message"].startswith("unknown function 'twice'")
        client.open(two, "fn twice(x)[i] = 2 * x[i];\n")  # not saved
        client.diagnostics(two)
        assert client.diagnostics(one) == []
        client.change(two, 2, "fn twice(x)[i] = 2 * x[i]\n")
        found = client.diagnostics(one)[0]
        assert "expected an operator or ';'" in found["message"] and found["range"]["start"] == {"line": 0, "character": 0}
        assert found["relatedInformation"][0]["location"]["uri"] == two
        client.change(two, 3, "fn twice(x)[i] = 2 * y[i];\n")
        (found,) = client.diagnostics(one)
        assert found["range"]["start"]["line"] == 1 and found["relatedInformation"][0]["location"]["uri"] == two
        client.close(two)
        assert client.diagnostics(two) == [] and "twice" in client.diagnostics(one)[0]["message"]
        with open(f"{folder}/two.cell", "w") as f:
            f.write("fn twice(x)[i] = 2 * x[i];\n")
        client.tell("workspace/didChangeWatchedFiles", {"changes": []})
        assert client.diagnostics(one) == []
        definition = client.at("definition", one, *place(user, "twice"))["result"]
        assert definition == {"uri": two, "range": {"start": {"line": 0, "character": 3}, "end": {"line": 0, "character": 8}}}
        # what another file uses keeps its name
        client.open(two, "fn twice(x)[i] = 2 * x[i];\n")
        assert "used in another file" in client.at("rename", two, 0, 4, newName="double_")["error"]["message"]
        client.close(one)
        with open(f"{folder}/a one.cell", "w") as f:
            f.write(user)
        assert "used in another file" in client.at("rename", two, 0, 4, newName="double_")["error"]["message"]
        assert client.stop() == 0


@test
def says_what_a_name_is():
    client = started()

    def hover(what, behind=0):
        return client.at("hover", URI, *place(SPEC, what, behind))["result"]["contents"]["value"]

    assert hover("D;") == "```cell\ndim D\n```\n\nA dim, chosen at run time\n\nwidth of the input"
    assert "A dim, here 8" in hover("N = 8")
    assert hover("W[N, D]") == ("```cell\nparam W[N, D] ~ xavier\n```\n\nA param, shape `[8, D]`\n\n"
                                "The same at all steps and for all sequences.\n\nweights 😀")
    assert "A definition, shape `[8]`\n\nComputed for all steps at once, before the walk over time." in hover("k[i:N]")
    assert "The state's next value, computed at each step, in the walk over time." in hover("h'[i] = gates")
    assert "An index, from 0 to below `D`" in hover("d] W")
    assert "Its choices are `tanh` (the default), `relu`" in hover("act = tanh")
    assert "Of fn `gates`" in hover("gates(z).i", 9)
    assert "hyperbolic tangent" in hover("tanh(k") or "`tanh(a)`" in hover("tanh(k")
    assert "adds up the rest of its product" in hover("sum[d]")
    assert "A fn of" in hover("l2norm") and "std.cell" in hover("l2norm")
    assert client.at("hover", URI, 0, 5)["result"] is None
    # what is broken elsewhere does not take it away
    client.change(URI, 2, SPEC.replace("z[i] = relu(k[i]);", "z[i] = relu(k[i;"))
    assert "shape `[8, D]`" in hover("W[N, D]")
    assert client.stop() == 0


@test
def gives_an_editor_what_it_can_show():
    client = started(textDocument={})
    value = client.at("hover", URI, *place(SPEC, "W[N, D]"))["result"]["contents"]
    assert value.startswith("param W[N, D] ~ xavier\n\nA param, shape [8, D]"), value
    symbols = client.of("documentSymbol", URI)["result"]
    assert symbols[1]["name"] == "D" and symbols[1]["containerName"] == "net" and symbols[1]["location"]["uri"] == URI
    client.change(URI, 2, SPEC.replace("~ xavier", "~ xavir"))
    everywhere = {"start": {"line": 0, "character": 0}, "end": {"line": 99, "character": 0}}
    assert client.of("codeAction", URI, range=everywhere, context={"diagnostics": []})["result"] == []
    assert "relatedInformation" not in client.diagnostics(URI, 2)[0]
    assert client.stop() == 0


@test
def finds_places():
    client = started()
    line, character = place(SPEC, "z[i] = tanh")
    answer = client.at("definition", URI, *place(SPEC, "l2norm(z)", 7))["result"]
    assert answer["range"]["start"] == {"line": line, "character": character}
    places = client.at("references", URI, line, character, context={"includeDeclaration": True})["result"]
    assert len(places) == 6, places  # defined in both branches
    kinds = [h["kind"] for h in client.at("documentHighlight", URI, line, character)["result"]]
    assert kinds == [3, 3, 2, 2, 2, 2]
    assert client.at("definition", URI, *place(SPEC, "std.cell", 3))["result"]["uri"].endswith("/std.cell")
    (cell,) = client.of("documentSymbol", URI)["result"]
    assert [c["name"] for c in cell["children"]][:9] == ["D", "N", "act", "gate", "x", "W", "h", "y", "gates"]
    data = client.of("semanticTokens/full", URI)["result"]["data"]
    assert data[:5] == [3, 5, 3, 0, 1] and len(data) % 5 == 0
    assert client.stop() == 0


@test
def renames_what_may_be_renamed():
    client = started()

    def rename(what, name, behind=0):
        answer = client.at("rename", URI, *place(SPEC, what, behind), newName=name)
        if "error" in answer:
            return answer["error"]["message"]
        return edited(SPEC, answer["result"]["changes"][URI]) if answer["result"] else None

    assert rename("k[i:N]", "kk") == SPEC.replace("k[i", "kk[i")
    assert rename("tanh | relu", "th") == SPEC.replace("act = tanh", "act = th").replace("act == tanh", "act == th")
    assert rename("i[u:N]", "in_gate") == SPEC.replace("i[u:N]", "in_gate[u:N]").replace(".i[i]", ".in_gate[i]")
    assert rename("h[N]", "hid") == SPEC.replace(" h[", " hid[").replace("h'", "hid'")
    assert rename("k[i:N]", "k") is None
    for what, name, why in [
        ("k[i:N]", "x", "'x' is already the name of an input"), ("d] W", "D", "'D' is already the name of a dim"),
        ("k[i:N]", "sum", "'sum' is the name of a reduction"), ("k[i:N]", "T", "'T' is reserved"), ("k[i:N]", "3", "a name is a letter"),
        ("k[i:N]", "", "a name is a letter"), ("k[i:N]", "a" * 129, "at most 128"), ("l2norm", "q", "is defined in another file"),
        ("tanh(k", "q", "a function of the language keeps its name"), ("act", "gate", "already the name of an option"),
        ("tanh |", "relu", "already the name of a choice"), ("p) {", "N", "already the name of a dim"), ("net", "std", "std"),
        ("gates", "tanh", "'tanh' is a function of the language"), ("// A", "q", "there is no name here"),
    ]:
        assert why in rename(what, name), (what, name, rename(what, name))
    assert client.at("prepareRename", URI, *place(SPEC, "W[N, D]"))["result"]["placeholder"] == "W"
    assert "error" in client.at("prepareRename", URI, *place(SPEC, "l2norm"))
    # an adjoint fn is renamed with its fn, its parameters and what is called after them
    text = ("fn f(u)[i] = 2 * u[i];\nadjoint fn f(u; g)[i] = 2 * g[i];\n"
            "fn mul(a, b)[i] = a[i] * b[i];\nadjoint fn mul(a, b; g) { d_a[i] = g[i] * b[i]; d_b[i] = g[i] * a[i]; }\n"
            "cell c { dim N; input x[N]; output y[N]; y[i] = mul(f(x), x)[i]; }\n")
    client.change(URI, 2, text)
    edits = client.at("rename", URI, *place(text, "a, b"), newName="left")["result"]["changes"][URI]
    assert edited(text, edits) == text.replace("(a, b", "(left, b").replace("a[i]", "left[i]").replace("d_a", "d_left").replace(
        "d_left[i] =", "d_left[i] =")
    assert "called after the parameter 'a'" in client.at("rename", URI, *place(text, "d_a"), newName="q")["error"]["message"]
    assert client.stop() == 0


@test
def completes():
    client = started()
    version = [1]

    def labels(old, new):
        version[0] += 1
        text = SPEC.replace(old, new, 1)
        client.change(URI, version[0], text)
        items = client.at("completion", URI, *place(text, new, len(new)))["result"]["items"]
        return [item["label"] for item in items]

    assert labels("when act == relu && gate == soft {", "when act == ") == ["tanh", "relu"]
    assert labels("gates(z).i[i]", "gates(z).") == ["i", "f"]
    assert labels("~ xavier", "~ ")[0] == "xavier"
    assert "bf16" in labels("x[D];", "x[D] : ")
    assert labels('"std.cell"', '"s') .count("std.cell") == 1
    assert labels("    input x", "    // a comment\n    in")[:3] == ["import", "cell", "dim"]
    assert labels("input x", "const ") == ["input", "param"]
    assert labels("// weights", "// we") == []
    found = labels("    h'[i] = gates(z).i[i] * h[i] + gates(z).f[i];\n}", "    h'[i] = sum[q:N] ")  # and the file ends there
    assert found[:2] == ["i", "q"] and {"W", "x", "k", "gates", "l2norm", "sigmoid", "sum", "pi"} <= set(found)
    items = client.at("completion", URI, *place(SPEC, "    input x", 0))["result"]["items"]
    assert all("documentation" in item for item in items if item["kind"] == 14)
    assert client.stop() == 0


@test
def mends_what_it_knows():
    client = started()
    everywhere = {"start": {"line": 0, "character": 0}, "end": {"line": 99, "character": 0}}
    for k, (old, new) in enumerate([
        ("~ xavier", "~ xavir"), ('import "std.cell";\n\n', ""), ("dim N = 8;", "dim N = 8"), ("tanh(k", "tanhh(k"), ("x[d]", "X[d]"),
        ("input x", "imput x"), ("h'[i] =", "g'[i] ="), ("act == tanh", "act == tahn"),
        ("gates(z).f", "gates(z).F"), ("y[i] = z", "y[i] := z"), ("act == relu", "act = relu"), ("x[D];", "x[D] : bf61;"),
    ]):
        text = SPEC.replace(old, new, 1)
        client.change(URI, k + 2, text)
        actions = client.of("codeAction", URI, range=everywhere, context={"diagnostics": []})["result"]
        if old == "x[D];":
            assert edited(text, actions[0]["edit"]["changes"][URI]) == SPEC.replace("x[D];", "x[D] : bf16;"), actions
        elif old == "h'[i] =":
            assert actions == []  # no name is near
        elif old.startswith("import"):
            assert edited(text, actions[0]["edit"]["changes"][URI]) == SPEC
        else:
            assert actions and edited(text, actions[0]["edit"]["changes"][URI]) == SPEC, (old, new, actions)
    assert client.stop() == 0


@test
def formats_and_costs():
    client = started(SPEC)
    formatted = client.of("formatting", URI, options={})["result"]
    canonical = edited(SPEC, formatted)
    client.change(URI, 2, canonical)
    assert client.of("formatting", URI, options={})["result"] == []
    shuffled = canonical.replace("    output y[N];", "output    y[ N ] ;").replace("dim N = 8;", "dim N=8;")
    client.change(URI, 3, shuffled)
    assert edited(shuffled, client.of("formatting", URI, options={})["result"]) == canonical
    client.change(URI, 4, canonical.replace("dim D;", "dim D"))
    assert "error" in client.of("formatting", URI, options={})
    with open("specs/e79.cell") as f:
        e79 = f.read()
    client.change(URI, 5, e79)
    lenses = client.of("codeLens", URI)["result"]
    explained = subprocess.run([os.environ.get("CELLC", "build/cellc"), "explain", "specs/e79.cell"], capture_output=True, text=True)
    page = " ".join(explained.stdout.split())
    assert len(lenses) == 3 and all(" ".join(lens["command"]["title"].split()) in page for lens in lenses), lenses
    arguments = lenses[0]["command"]["arguments"]
    shown_page = client.result("workspace/executeCommand", {"command": "cellc.explain", "arguments": arguments})
    assert shown_page.split("\n\n--all")[0].strip() == explained.stdout.split("\n\n--all")[0].strip()
    assert client.result("cellc/explain", {"textDocument": {"uri": URI}, "cell": "e79"}) == shown_page
    assert "error" in client.ask("workspace/executeCommand", {"command": "rm"})
    assert client.stop() == 0


@test
def takes_every_spec_at_once():
    client = Client()
    client.initialize()
    slowest = (0, "")
    for path in sorted(glob.glob("specs/*.cell")):
        with open(path) as f:
            text = f.read()
        uri = f"file://{os.path.abspath(path)}"
        client.open(uri, text)
        assert client.diagnostics(uri, 1) == [], path
        begin = time.monotonic()
        client.change(uri, 2, text + " ")
        assert client.diagnostics(uri, 2) == [], path
        slowest = max(slowest, (time.monotonic() - begin, path))
        for note in client.notes:  # nothing more with other choices of options
            assert note["params"]["diagnostics"] == [], path
        client.notes.clear()
        client.close(uri)
        client.diagnostics(uri)
    print(f"the slowest key stroke: {slowest[0] * 1000:.0f} ms, {slowest[1]}")
    assert client.stop() == 0


@test
def counts_in_the_units_that_were_chosen():
    text = SPEC.replace("/* 😀 */ k[i:N]", "/* 😀 */ kq[i:N]")
    for encoding, before in ("utf-8", 15), ("utf-16", 13):
        client = started(text, general={"positionEncodings": [encoding]})
        line = place(text, "kq[i:N]")[0]
        found = client.diagnostics(URI)
        assert found[0]["range"]["start"]["line"] == line + 1 if found else False
        symbol = [s for s in client.of("documentSymbol", URI)["result"][0]["children"] if s["name"] == "kq"][0]
        assert symbol["selectionRange"]["start"] == {"line": line, "character": before}, (encoding, symbol)
        assert client.stop() == 0
    # lines end with \r\n or \r too, and a byte order mark is no character of a place
    client = started("\ufeff" + SPEC.replace("\n", "\r\n"))
    assert client.diagnostics(URI) == []
    assert "A param" in client.at("hover", URI, *place(SPEC, "W[N, D]"))["result"]["contents"]["value"]
    assert client.stop() == 0


def main():
    passed = failed = 0
    for check in checks:
        signal.alarm(120)
        try:
            check()
            passed += 1
        except (AssertionError, TypeError, KeyError, ValueError, IndexError):
            failed += 1
            print(f"FAIL {check.__name__}")
            traceback.print_exc(file=sys.stdout)
    print(f"{passed} passed, {failed} failed")
    sys.exit(failed > 0)


main()
