"""A client of the Language Server Protocol with nothing but Python: what is sent is up to the caller, right or wrong."""
import json
import os
import subprocess


class Client:
    def __init__(self, *arguments):
        cellc = os.environ.get("CELLC", "build/cellc")
        self.process = subprocess.Popen([cellc, "lsp", *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.id = 0
        self.notes = []  # notifications and requests of the server that nobody has asked for yet

    def raw(self, data):
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def send(self, message):
        content = json.dumps(message).encode()
        self.raw(b"Content-Length: %d\r\n\r\n" % len(content) + content)

    def receive(self):
        """The next message; None: the server has closed its output."""
        length = None
        while True:
            line = self.process.stdout.readline()
            if not line:
                return None
            if line == b"\r\n":
                return json.loads(self.process.stdout.read(length))
            name, _, value = line.partition(b":")
            assert name == b"Content-Length", line
            length = int(value)

    def answer(self, id):
        while True:
            message = self.receive()
            assert message is not None, "the server ended"
            if message.get("id") == id and "method" not in message:
                return message
            self.notes.append(message)

    def ask(self, method, params=None):
        """The whole answer."""
        self.id += 1
        message = {"jsonrpc": "2.0", "id": self.id, "method": method}
        self.send(message if params is None else {**message, "params": params})
        return self.answer(self.id)

    def result(self, method, params=None):
        answer = self.ask(method, params)
        assert "result" in answer, answer
        return answer["result"]

    def error(self, method, params=None):
        answer = self.ask(method, params)
        assert "error" in answer, answer
        return answer["error"]

    def tell(self, method, params=None):
        self.send({"jsonrpc": "2.0", "method": method, "params": params or {}})

    def initialize(self, **capabilities):
        """With what editors can do, beside what is given."""
        everything = {"textDocument": {"publishDiagnostics": {"relatedInformation": True}, "hover": {"contentFormat": ["markdown"]},
                    "completion": {"completionItem": {"documentationFormat": ["markdown"]}},
                    "documentSymbol": {"hierarchicalDocumentSymbolSupport": True},
                    "codeAction": {"codeActionLiteralSupport": {"codeActionKind": {"valueSet": ["quickfix"]}}}}}
        both = {**everything, **capabilities}
        result = self.result("initialize", {"processId": None, "rootUri": None, "capabilities": both})
        self.tell("initialized")
        return result

    def stop(self):
        """Its exit code, after shutdown and exit."""
        self.result("shutdown")
        self.tell("exit")
        self.process.stdin.close()
        return self.process.wait(60)

    # ---- documents

    def open(self, uri, text, version=1):
        item = {"uri": uri, "languageId": "cell", "version": version, "text": text}
        self.tell("textDocument/didOpen", {"textDocument": item})

    def change(self, uri, version, *changes):
        """Each a whole text, or (line, character, line, character, text)."""
        content = []
        for c in changes:
            if isinstance(c, str):
                content.append({"text": c})
            else:
                start, end = {"line": c[0], "character": c[1]}, {"line": c[2], "character": c[3]}
                content.append({"range": {"start": start, "end": end}, "text": c[4]})
        self.tell("textDocument/didChange", {"textDocument": {"uri": uri, "version": version}, "contentChanges": content})

    def close(self, uri):
        self.tell("textDocument/didClose", {"textDocument": {"uri": uri}})

    def diagnostics(self, uri, version=None):
        """The next that are said of the document, of that version where one is given."""
        while True:
            message = self.notes.pop(0) if self.notes else self.receive()
            assert message is not None, "the server ended"
            params = message.get("params", {})
            if message.get("method") != "textDocument/publishDiagnostics" or params["uri"] != uri:
                continue
            if version is None or params.get("version") == version:
                return params["diagnostics"]

    def at(self, method, uri, line, character, **more):
        place = {"line": line, "character": character}
        return self.ask("textDocument/" + method, {"textDocument": {"uri": uri}, "position": place, **more})

    def of(self, method, uri, **more):
        return self.ask("textDocument/" + method, {"textDocument": {"uri": uri}, **more})


def place(text, what, behind=0):
    """Line and character, in units of UTF-16, of the first `what` and so many characters behind its begin."""
    at = text.index(what) + behind
    start = text.rfind("\n", 0, at) + 1
    return text.count("\n", 0, at), len(text[start:at].encode("utf-16-le")) // 2


def edited(text, edits):
    """The text after edits of the protocol, whose places count in UTF-16."""
    lines = text.split("\n")
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)

    def offset(p):
        line = lines[p["line"]].encode("utf-16-le")[: 2 * p["character"]].decode("utf-16-le")
        return starts[p["line"]] + len(line)

    for e in sorted(edits, key=lambda e: offset(e["range"]["start"]), reverse=True):
        text = text[: offset(e["range"]["start"])] + e["newText"] + text[offset(e["range"]["end"]) :]
    return text
