"""The launch plan without a C compiler. In: NAME.c of a library with kernels, which is constant tables and thin
functions, and the runtime's headers. Out: the same tables in memory, for a runtime that was compiled elsewhere.
Guaranteed: every word of a table is understood, or it is an error; functions are left out, so that the reference is
NULL, and kernels as well, which an image has by name."""

import ast
import ctypes
import os
import re

from .errors import BuildError

P, TEXT, INT, DOUBLE = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_double
I16, I32, I64, U8 = ctypes.c_int16, ctypes.c_int32, ctypes.c_int64, ctypes.c_uint8


def struct(title, base=ctypes.Structure, /, **fields):
    """As cell_plan.h has it. Where several members have one type, their names stand side by side: a__b__c."""
    members = [(one, kind) for names, kind in fields.items() for one in names.split("__")]
    return type(title, (base,), {"_fields_": members})


Tensor = struct("cell_tensor", name=TEXT, kind__dtype__rank=INT, axes=P)
Arg = struct("cell_arg", tensor=I16, role__flags__dtype=U8)
Buffer = struct("cell_buffer", name=TEXT, origin__dtype=U8, index=I16, bytes=P)
Ref = struct("cell_ref", buffer=I16, offset=P)
Operand = struct("cell_operand", at=Ref, row__col__batch=P)
Gemm = struct("cell_gemm_op", m__n__k__batch=P, alpha=DOUBLE, beta=INT, a__b__c=Operand, a_scale__b_scale=I16)
KernelOp = struct("cell_kernel_op", kernel__n_refs=I16, grid=P * 3, refs__t__wanted=P)
Loop = struct("cell_loop_op", **{"from__to": P, "step__n_ops": I32}, strands=P)
Listed = struct("cell_list_op", n_ops=I32)
Memory = struct("cell_memory_op", **{"to__from": Ref}, bytes=P, byte=I32)
Products = struct("cell_products_op", n_ops=I32, kernel=I16, together=P, places=Ref)
Any = struct("cell_op_u", ctypes.Union, gemm=Gemm, kernel=KernelOp, loop=Loop, memory=Memory, list=Listed,
             products=Products)
Op = struct("cell_op", name=TEXT, kind__flags=U8, need__unless__when=P, u=Any)
Plan = struct("cell_plan", buffers__ops=P, n_buffers__n_ops=I32)
Kernel = struct("cell_kernel", name=TEXT, symbol=P, threads__cluster__cooperative=I32, smem=P, dependent=I32,
                block__code=P, number__slots=I32)
Check = struct("cell_check", value=P, message=TEXT)
Binding = struct("cell_binding", name__value=TEXT)
Domain = struct("cell_domain", kind=I32, low__high=DOUBLE)
Desc = struct("cell_desc", plan_version=I32, name__key=TEXT,
              bindings__size_names__tensors__forward_args__backward_args__checks__kernels__reserve=P,
              forward__backward__step__ref_forward__ref_backward__ref_reserve_bytes=P,
              n_bindings__n_sizes__n_tensors__n_forward_args__n_backward_args__n_checks__n_kernels__n_reserve=I32,
              how=TEXT, block_memory=I64, preferred__next__takes=P, archs=TEXT, pointer_alignment=I32, places=P,
              room__total=I32, domains__cpu=P, program=TEXT, counts_steps__take__put=I32)

TYPES = {kind.__name__: kind for kind in (Tensor, Arg, Buffer, Ref, Op, Plan, Kernel, Check, Binding, Domain, Desc)}
TYPES.update(int64_t=I64, int16_t=I16, cell_expr=P)
COMMENT = re.compile(r'("(?:[^"\\]|\\.)*")|/\*.*?\*/|//[^\n]*', re.S)
TABLE = re.compile(r"^static const (\w+) (\*const )?(\w+)(\[\])? = (?=\{)", re.M)
TOKEN = re.compile(r'\s*(?:("(?:[^"\\]|\\.)*")|(-?\d[\w.+-]*)|([A-Za-z_]\w*)|([{}.,=&|]))')
NULLS = re.compile(r"^(?:CELL_KERNEL_SYMBOL void|static cell_status|size_t) (\w+)\(", re.M)


def bare(text):
    return COMMENT.sub(lambda m: m[1] or " ", text)


def constants(folder):
    """The numbers behind the names of the runtime's enums and version."""
    found = {"NULL": 0, "CELL_ARCHS": 0, "CELL_CPU_DESCRIPTION": 0}
    for header in ("cell.h", "cell_plan.h"):
        with open(os.path.join(folder, header)) as f:
            text = bare(f.read())
        for body in re.findall(r"\benum\b\s*\w*\s*\{([^}]*)\}", text):
            value = -1
            for entry in filter(None, (e.strip() for e in body.split(","))):
                name, _, number = entry.partition("=")
                value = int(number) if number else value + 1
                found[name.strip()] = value
        found.update((name, int(value)) for name, value in re.findall(r"#define (CELL_\w+)\s+(\d+)\s*$", text, re.M))
    return found


class Reader:
    """Reads the tables of one file, in order; `names` are what a table may mention."""

    def __init__(self, text, folder):
        self.text = bare(text)
        self.names = constants(folder)
        self.names.update(dict.fromkeys(NULLS.findall(self.text), 0))
        self.kept, self.descriptions = [], {}
        heads = list(TABLE.finditer(self.text))
        for line in re.findall(r"^static const [^;{]*", self.text, re.M):
            if line != "static const cell_desc description" and not any(head[0] == line for head in heads):
                raise self.wrong(line)
        for head in heads:
            kind = P if head[2] else TYPES.get(head[1])
            if kind is None:
                raise self.wrong(head[0])
            self.at = head.end()
            self.table(kind, head[1] == "char", head[3], bool(head[4]))

    def wrong(self, what):
        return BuildError(f"a table of the plan has what is not understood: {what!r}")

    def table(self, kind, texts, name, many):
        kind = TEXT if texts else kind
        value = self.value()
        if many:
            made = (kind * len(value))()
            for i, (key, item) in enumerate(value):
                if key:
                    raise self.wrong(key)
                self.put(made, i, kind, item)
        else:
            made = kind()
            self.fill(made, value)
            if kind is Desc:
                self.descriptions[name] = made
        self.kept.append(made)
        self.names[name] = ctypes.addressof(made)

    def token(self):
        found = TOKEN.match(self.text, self.at)
        if not found:
            raise self.wrong(self.text[self.at:self.at + 40])
        self.at = found.end()
        return found

    def value(self):
        """A number, perhaps of flags, bytes, or a list of (member or "", value)."""
        found = self.one()
        while (more := TOKEN.match(self.text, self.at)) and more[4] == "|":
            self.token()
            found |= self.one()
        return found

    def one(self):
        text, number, name, mark = self.token().groups()
        if text:
            parts = [text]
            while (more := TOKEN.match(self.text, self.at)) and more[1]:      # strings side by side are one
                parts.append(self.token()[1])
            return b"".join(ast.literal_eval("b" + part) for part in parts)
        if number:
            return ast.literal_eval(number)
        if name or mark == "&":
            name = name or self.token()[3]
            if name not in self.names:
                raise self.wrong(name)
            return self.names[name]
        if mark != "{":
            raise self.wrong(mark)
        return self.members()

    def members(self):
        found = []
        while True:
            start, mark = self.at, self.token()[4]
            if mark == "}":
                return found
            path = ""
            if mark == ".":
                while mark == ".":
                    path += "." + self.token()[3]
                    mark = self.token()[4]
                if mark != "=":
                    raise self.wrong(path)
            else:
                self.at = start
            found.append((path[1:], self.value()))
            mark = self.token()[4]
            if mark == "}":
                return found
            if mark != ",":
                raise self.wrong(mark)

    def put(self, into, place, kind, value):
        """Element or member `place` of `into`."""
        if isinstance(value, list):
            inner = into[place] if isinstance(place, int) else getattr(into, place)
            self.fill(inner, value)
            return
        if kind is TEXT:
            value = value or None
        elif isinstance(value, bytes) or (isinstance(value, float) and kind is not DOUBLE):
            raise self.wrong(value)
        if isinstance(place, int):
            into[place] = value
        else:
            setattr(into, place, value)

    def fill(self, into, values):
        if isinstance(into, ctypes.Array):
            for i, (_, value) in enumerate(values):
                self.put(into, i, into._type_, value)
            return
        fields, position = dict(into._fields_), 0
        for path, value in values:
            holder, *rest = path.split(".") if path else [list(fields)[position]]
            inner = into
            if holder in fields:
                position = list(fields).index(holder) + 1
            for name in rest:                        # .u.gemm
                inner, holder = getattr(inner, holder, None), name
            if holder not in dict(getattr(inner, "_fields_", ())):
                raise self.wrong(path)
            self.put(inner, holder, dict(inner._fields_)[holder], value)


def read(path, folder):
    """(the cell_desc, what must stay in memory with it). `folder` has the runtime's headers."""
    with open(path) as f:
        reader = Reader(f.read(), folder)
    if "description" not in reader.descriptions:
        raise BuildError(f"{path} has no description of a cell")
    return reader.descriptions["description"], reader
