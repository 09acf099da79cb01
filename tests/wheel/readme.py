"""The Python of a page, as a reader would type it: its blocks one after the other.

    python readme.py README.md"""

import re
import sys

with open(sys.argv[1], encoding="utf-8") as f:
    blocks = re.findall(r"^```python\n(.*?)^```$", f.read(), re.M | re.S)
assert blocks, sys.argv[1]
names = {}
for block in blocks:
    exec(compile(block, sys.argv[1], "exec"), names)
print(f"{len(blocks)} of Python:", ", ".join(f"{name} {tuple(value.shape)}" for name, value in names.items()
                                             if name in ("x", "y")))
