"""What is shown of a compilation that takes long. In: what is compiled, and in how many parts. Out: from the first second
on a bar by tqdm, where that is installed, else a line that counts seconds, which is gone when all is done. Guaranteed:
nothing is written but in a terminal or a notebook, or where CELLC_PROGRESS is `on` (`off`: nowhere); a failure to show
something ends no compilation."""

import os
import sys
import threading
import time
import warnings

from .errors import BuildError

DELAY, EVERY = 1.0, 0.5                # seconds before anything is shown, and between two looks at the clock


def in_notebook():
    """Does this process serve a notebook? Its standard error is no terminal, and still a person reads it at once."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return getattr(shell, "kernel", None) is not None


def is_wanted():
    said = os.environ.get("CELLC_PROGRESS", "")
    if said not in ("", "on", "off"):
        raise BuildError(f"CELLC_PROGRESS is '{said}'; wanted on or off")
    return said == "on" or said == "" and ((sys.stderr is not None and sys.stderr.isatty()) or in_notebook())


class Line:
    """The seconds, over and over on one line."""

    def __init__(self, title, parts):
        self.title, self.parts, self.done, self.wide = title, parts, 0, 0

    def update(self, count):
        self.done += count

    def show(self, seconds):
        of = f"{self.done} of {self.parts}, " if self.parts > 1 else ""
        text = f"{self.title}: {of}{seconds:.0f} s"
        print("\r" + text.ljust(self.wide), end="", file=sys.stderr, flush=True)
        self.wide = len(text)

    def close(self):
        print("\r" + " " * self.wide + "\r", end="", file=sys.stderr, flush=True)


class Bar:
    """The same by tqdm, which in a notebook draws it."""

    def __init__(self, title, parts):
        with warnings.catch_warnings():              # that a notebook has no widgets is no matter here
            warnings.simplefilter("ignore")
            from tqdm.auto import tqdm
            shape = "{desc} |{bar}| {n_fmt}/{total_fmt} [{elapsed}]" if parts > 1 else "{desc} [{elapsed}]"
            self.bar = tqdm(total=parts, desc=title, bar_format=shape, leave=False, dynamic_ncols=True)

    def update(self, count):
        self.bar.update(count)

    def show(self, seconds):
        self.bar.start_t = time.time() - seconds     # tqdm counts from when it appears
        self.bar.refresh()

    def close(self):
        self.bar.close()


class Progress:
    """`with Progress("compiling e79", 3) as progress:`, and progress.update() behind each part."""

    def __init__(self, title, parts=1):
        self.title, self.parts = f"cellc: {title}", parts
        self.lock, self.ended = threading.Lock(), threading.Event()
        self.thread, self.shown, self.done = None, None, 0

    def __enter__(self):
        if is_wanted():
            self.start = time.monotonic()
            self.thread = threading.Thread(target=self.watch, name="cellc progress", daemon=True)
            self.thread.start()
        return self

    def update(self):
        with self.lock:
            self.done += 1
            if self.shown:
                self.quietly(self.shown.update, 1)

    def watch(self):
        wait = DELAY
        while not self.ended.wait(wait):
            made = self.shown or self.made()         # which no part waits for, as tqdm has to be imported
            with self.lock:
                if self.shown is None:
                    self.shown = made
                    self.quietly(made.update, self.done)
                self.quietly(self.shown.show, time.monotonic() - self.start)
            wait = EVERY

    def made(self):
        try:
            return Bar(self.title, self.parts)
        except Exception:                            # no tqdm, or one that cannot draw here
            return Line(self.title, self.parts)

    @staticmethod
    def quietly(call, *given):
        try:
            call(*given)
        except Exception:                            # as of a standard error that was closed
            pass

    def __exit__(self, *_):
        if self.thread:
            self.ended.set()
            self.thread.join()
            if self.shown:
                self.quietly(self.shown.close)
