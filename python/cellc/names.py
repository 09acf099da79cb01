"""Names of a spec where Python, or a framework, has a name already. In: names, and those that are taken. Out: names that can
be used, and what to say of one that is not there. Guaranteed: a name that is free stays as it is, no two become one, and what
is made of a name depends on the names of its kind only."""

import difflib
import keyword

from .errors import TypeMismatch

# Keywords of calls in all frameworks.
CALL = frozenset(["self", "params", "state", "t0", "batch", "steps", "final_state", "reserve", "offload"])


def usable(names, taken=(), fields=False):
    """{name: the name that Python takes for it}: one that is a word of Python, or taken, gets a _ behind it, and one more
    for as long as that is a name of the spec, or taken. `fields`: of named tuples, which begin with no _."""
    def is_free(name):
        return not keyword.iskeyword(name) and name not in taken and not (fields and name.startswith("_"))

    names = list(names)
    found = {name: name for name in names if is_free(name)}
    used = set(names)
    for name in names:
        if name not in found:
            other = "v" + name if fields and name.startswith("_") else name + "_"
            while other in used or not is_free(other):
                other += "_"
            used.add(other)
            found[name] = other
    return {name: found[name] for name in names}


def wrong_keyword(name, value, wanted):
    """Of cellc.load, whose keywords may be names of the spec as well."""
    return TypeMismatch(f"{name} is {value!r}; wanted {wanted}. A dim, option or constant of that name is given as "
                        f"settings={{{name!r}: {value!r}}}")


def by_the_spec(named, made):
    """The name of the spec for one that was used: itself, or what `usable` made of it. None: there is no such name."""
    if named in made.values():
        return next(name for name, other in made.items() if other == named)
    return named if named in made else None


def there_is(what, name, known):
    """"there is no dim Hh; there is D, H; did you mean H?\""""
    known = list(known)
    like = difflib.get_close_matches(str(name), known, 1) or [one for one in known if one.lower() == str(name).lower()]
    return (f"there is no {what} {name}; there is {', '.join(known) or 'none'}"
            + (f"; did you mean {like[0]}?" if like else ""))
