"""What can go wrong, as exceptions. Each is also the builtin that a caller who knows nothing of cellc would catch:
a wrong shape is a ValueError, a wrong type a TypeError, a failing device a RuntimeError. Guaranteed: the text of a
SpecError is what the compiler said, with the spec's lines and carets."""

import re


class CellcError(Exception):
    """Any error of cellc."""


class SpecError(CellcError, ValueError):
    """The spec is wrong, or a setting is. `diagnostics` has one entry for each message."""

    def __init__(self, text):
        super().__init__(text)
        self.diagnostics = parse_diagnostics(text)


class MissingFile(CellcError, FileNotFoundError):
    """A spec, or another file or directory that was named, is not there."""


class CannotRead(CellcError, OSError):
    """A file is there and cannot be read."""


class MissingSpec(SpecError, FileNotFoundError):
    """No cell that comes with cellc has this name, and no file; the text says what has a similar one."""


class ShapeError(CellcError, ValueError):
    """A tensor has a shape, or the call a size, that the cell does not take."""


class TypeMismatch(CellcError, TypeError):
    """A tensor is stored in a type that this instance does not take, or an argument is no tensor at all."""


class BackendError(CellcError, RuntimeError):
    """The device cannot run the cell, or said no."""


class BuildError(CellcError, RuntimeError):
    """The C compiler or nvcc failed on generated code, or the compiler itself is not there."""


class NotThere(CellcError, NotImplementedError):
    """A framework asked for something that cells do not have."""


def beyond_int32(what, value):
    return (f"{what} has the number {value}, which int32 does not hold, as which cells store integers: -2147483648 to "
            "2147483647")


class CellcWarning(UserWarning):
    """What is legal but may surprise: no GPU, no nvcc, a warning of the compiler about the spec."""


class PerformanceWarning(CellcWarning):
    """The cell is right but slow: a matrix product that is none as it is written, or steps that no kernel
    walks. Said once; `warnings.simplefilter("ignore", cellc.PerformanceWarning)` turns it off."""


class Diagnostic:
    """One message of the compiler: where (file, line, column; None where it has no place), how bad, and what."""

    def __init__(self, file, line, column, severity, message, excerpt):
        self.file, self.line, self.column = file, line, column
        self.severity, self.message, self.excerpt = severity, message, excerpt

    def __repr__(self):
        place = f"{self.file}:{self.line}:{self.column}: " if self.file else ""
        return f"<{place}{self.severity}: {self.message}>"


HEAD = re.compile(r"^(?:cellc: |(?P<file>[^\n]*?):(?P<line>\d+):(?P<column>\d+): )?"
                  r"(?P<severity>error|warning|performance warning|note): (?P<message>.*)$")


def parse_diagnostics(text):
    """The compiler's messages as a list; what stands between two heads is the first one's excerpt."""
    found = []
    for line in text.splitlines():
        head = HEAD.match(line)
        if head:
            number = [int(head[key]) if head[key] else None for key in ("line", "column")]
            found.append(Diagnostic(head["file"], *number, head["severity"], head["message"], ""))
        elif found:
            found[-1].excerpt += line + "\n"
    return found
