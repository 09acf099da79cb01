"""Every name of the specs gets another name and back.

    renames.py N

Takes every N-th of their names. The text afterwards has no errors, the way back gives the text as it was, unless the
name is taken there, and the evaluator computes the same with both. Prints what is not so, and "N passed, N failed"."""
import glob
import os
import re
import subprocess
import sys

from client import Client, edited

NEW = "renamed_name"


def computed(path, text, word):
    """What the evaluator gives for random inputs, with both names made one."""
    with open(path, "w") as f:
        f.write(text)
    cellc = os.environ.get("CELLC", "build/cellc")
    run = subprocess.run([cellc, "run", path, "--batch", "1", "--steps", "2"], capture_output=True, text=True, check=False)
    return re.sub(rf"\b({word}|{NEW})\b", "?", run.stdout)


def names(text):
    """The first place of each word that may be a name, outside of comments."""
    plain = re.sub(r"//.*|/\*.*?\*/", lambda m: " " * len(m.group()), text)
    seen = {}
    for word in re.finditer(r"[A-Za-z_]\w*", plain):
        seen.setdefault(word.group(), word.start())
    return sorted(seen.items())


def place(text, at):
    return text.count("\n", 0, at), at - text.rfind("\n", 0, at) - 1


def rename(client, uri, text, at, name, version):
    client.change(uri, version, text)
    answer = client.at("rename", uri, *place(text, at), newName=name)
    client.notes.clear()
    return edited(text, answer["result"]["changes"][uri]) if "result" in answer else None


def main():
    every = int(sys.argv[1])
    folder = "build/lsp-renames"
    os.makedirs(folder, exist_ok=True)
    client = Client()
    client.initialize(general={"positionEncodings": ["utf-8"]})
    passed = failed = count = 0
    for path in sorted(glob.glob("specs/*.cell")):
        with open(path) as f:
            text = f.read()
        if not text.isascii() or os.path.basename(path) == "std.cell":
            continue
        copy = os.path.abspath(f"{folder}/{os.path.basename(path)}")
        uri = "file://" + copy
        client.open(uri, text)
        for word, at in names(text):
            count += 1
            renamed = rename(client, uri, text, at, NEW, 2) if count % every == 0 else None
            if renamed is None:  # of the language, of another file, or not chosen
                continue
            back = rename(client, uri, renamed, renamed.index(NEW), word, 3)
            # None: the old name hid another one, which now counts as taken
            right = back in (text, None) and computed(copy, text, word) == computed(copy, renamed, word)
            passed, failed = passed + right, failed + (not right)
            if not right:
                print(f"FAIL {path}: {word}")
        client.close(uri)
    assert passed > 0 and client.stop() == 0
    print(f"{passed} passed, {failed} failed")
    sys.exit(failed > 0)


main()
