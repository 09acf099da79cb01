#!/usr/bin/env python3
"""Chooses instances of ladder, constructs and spec_kernels that together execute what all of them execute.

In: WORK as coverage.sh leaves it: SUITE.lines (what the matrix of a suite prints), SUITE.dirs (where its
instances are), SUITE.known (the list's lines without the last word), traces/NAME.emit (what the compiler
executed), in each instance's folder the emitted texts and, where it ran, ladder.emulated with its trace and
`took`; compiler/cellc. Out: the list tests/ladder/chosen, and on stdout what the suites take of their
instances.

Features of an instance, each to be covered as often as the features have instances, but at most DEEP times
(the number behind the kind):
  compiler   an edge of the compiler's control flow, in the folders of COMPILER
  device     a line of the device library or the runtime that is executed, and for each comparison in it whether
             the left side was less, equal or greater; of those that ran
  text       in the kernels' text: a function of the device library with its template arguments, numbers but
             for 0 and 1 as N; and three tokens of a line, other names than those of the device library as x.
             So rows of tables, which are no branches of the compiler, are covered, and lines of templates
  kernel     a kind of kernel that was launched, with the schedule
and what is asked in any case: MUST.
"""
import bisect
import collections
import functools
import os
import pickle
import re
import struct
import subprocess
import sys

ROOT = os.path.realpath(os.path.join(os.path.dirname(__file__), '../../..'))
SUITES = ('ladder', 'constructs', 'spec_kernels')
COMPILER = ('plan', 'schedule', 'kir', 'launch', 'ir', 'kernels', 'emit', 'front', 'cpu', 'reference',
            'cuda.c', 'pipeline.c')


def pairs(path):
    """The places of a trace and what was seen there."""
    seen = {}
    with open(path, 'rb') as f:
        for at, what in struct.iter_unpack('<II', f.read()):
            seen[at] = seen.get(at, 0) | what
    return seen


def lines_of(program, places):
    """FILE:LINE of each address."""
    if not places:
        return {}
    said = subprocess.run(['llvm-symbolizer', '--obj=' + program, '--no-inlines', '--functions=none',
                           '--output-style=GNU'], input='\n'.join(hex(p - 1) for p in places), text=True,
                          stdout=subprocess.PIPE, check=True).stdout.splitlines()
    said = [line for line in said if line]
    assert len(said) == len(places), (program, len(said), len(places))
    return dict(zip(places, said))


class Instance:
    """An instance: the words of its line, its time, and its features."""

    def __init__(self, suite, line, where):
        head, *_ = line.split(' | ')
        words = head.split()
        self.suite, self.line, self.name, self.spec = suite, line, words[0], os.path.basename(words[1])
        self.form = line.split('|')[2].strip() if line.count('|') > 1 else ''
        self.where = where
        self.schedule = words[words.index('--schedule') + 1]
        self.dtype = words[words.index('--dtype') + 1]
        self.options = re.findall(r'--(?:set|products|archs) \S+|--reverse|--lengths|--packed', head)
        self.features = set()

    def took(self):
        """Seconds of building and running; where it did not run, what such texts take."""
        if not os.path.exists(self.where + '/took'):
            return 0.8 + sum(os.path.getsize(f'{self.where}/{n}') * rate for n in os.listdir(self.where)
                              for end, rate in SECONDS_PER_BYTE.items() if n.endswith(end))
        with open(self.where + '/took') as f:
            last = [re.match(r'(\d+)m([\d.]+)s', word).groups() for word in f.read().split()[-2:]]
        return sum(int(minutes) * 60 + float(seconds) for minutes, seconds in last)

    def must(self):
        """What is to be there in any case."""
        yield f'spec {self.spec}'
        yield f'schedule {self.schedule} {self.form} {self.dtype}'
        for option in self.options:
            if not option.startswith('--set'):
                yield f'option {option} of {self.schedule}'


SECONDS_PER_BYTE = {'.cu': 10e-6}
NAMED = re.compile(r'\bcell_[a-z0-9_]+(?:<[^<>;()]*>)?')
TOKEN = re.compile(r'[A-Za-z_]\w*|\d[\w.]*|\S')
WORDS = re.compile(r'cell_|CELL_|(const|float|double|int|u?int\d*_t|bool|if|else|for|while|return|auto|struct|'
                   r'unsigned|static_cast|reinterpret_cast|sizeof|template|typename|constexpr|true|false|args|'
                   r'break|continue)$')


@functools.cache
def token(word):
    """A token without what is a name or a number of the instance."""
    if word[0].isdigit():
        number = word.rstrip('fFuUlL').removesuffix('.0')
        return number if number in ('0', '1') else 'N'
    if word[0].isalpha() or word[0] == '_':
        return re.sub(r'\d+', 'N', word) if WORDS.match(word) else 'x'
    return word


def texts(instance):
    for name in os.listdir(instance.where):
        if not name.endswith('.cu'):
            continue
        with open(f'{instance.where}/{name}') as f:
            text = f.read()
        for word in set(NAMED.findall(text)):
            word = re.sub(r'\b\w+_(chunk|attention)(_\w+)?\b', 'X', word) if '<' in word else word
            yield 'text ' + re.sub(r'\b(?![01]\b)\d+\b', 'N', word)
        for line in text.split('\n'):
            tokens = [token(word) for word in TOKEN.findall(line.split('//')[0])]
            for three in zip(tokens, tokens[1:], tokens[2:]):
                yield 'text ' + ' '.join(three)


KNOWN = {}


def program_features(instance):
    """Executed lines of the device library and the runtime, and kinds of kernels."""
    program = instance.where + '/ladder.emulated'
    if not os.path.exists(program + '.trace'):
        return
    seen = pairs(program + '.trace')
    symbols = []
    said = subprocess.run(['nm', '-S', program], text=True, stdout=subprocess.PIPE, check=True).stdout
    for line in said.splitlines():
        word = line.split()
        if len(word) == 4 and word[2] in 'tTwWiV':
            symbols.append((int(word[0], 16), int(word[1], 16), word[3]))
    symbols.sort()
    starts = [s[0] for s in symbols]
    unknown, keys = [], {}
    for at in seen:
        i = bisect.bisect_right(starts, at - 1) - 1
        start, size, name = symbols[i]
        keys[at] = (name, size, at - start)
        m = re.search(r'_((?:fwd|bwd|forward|backward)_[a-z_]*)', name)
        if m and not name.startswith('_Z'):
            instance.features.add(f'kernel {instance.schedule} {m.group(1).strip("_")}')
        if keys[at] not in KNOWN:
            unknown.append(at)
    for at, line in lines_of(program, unknown).items():
        line = line.split(' ')[0]
        KNOWN[keys[at]] = 'runtime/' + line.split('/runtime/')[1] if '/runtime/' in line else None
    for at, what in seen.items():
        line = KNOWN[keys[at]]
        if line:
            for bit in (1, 2, 4, 8):
                if what & bit:
                    instance.features.add(f'device {line} {bit}')


def read_instances(work):
    instances = []
    for suite in SUITES:
        with open(f'{work}/{suite}.dirs') as f:
            folder = f.read().strip()
        with open(folder + '/list') as f:
            taken = {line.split()[0] for line in f}
        with open(f'{work}/{suite}.lines') as f:
            found = [Instance(suite, line.rstrip('\n'), '') for line in f]
        instances += [i for i in found if i.name in taken]
        for i in instances:
            i.where = i.where or f'{folder}/{i.name}'
    return instances


def compiler_features(instances, work):
    seen = {i.name: pairs(f'{work}/traces/{i.name}.emit') for i in instances}
    places = sorted(set().union(*seen.values()))
    where = lines_of(work + '/compiler/cellc', places)
    wanted = {at for at in places if any(f'gen/{folder}' in where[at] for folder in COMPILER)}
    for i in instances:
        i.features |= {f'compiler {at}' for at in seen[i.name] if at in wanted}
    return {f'compiler {at}': where[at] for at in wanted}


def classes(instances, deep):
    """Features that the same instances have are one: of each, these instances, how many features, and how
    often it is to be covered."""
    having = collections.defaultdict(list)
    for k, i in enumerate(instances):
        for feature in i.features:
            having[feature].append(k)
    count = collections.Counter()
    for feature, of in having.items():
        count[tuple(of), min(len(of), deep.get(feature.split(' ')[0], 1))] += 1
    return [(of, n, need) for (of, need), n in count.items()]


def choose(instances, deep):
    """Greedy: the instance that brings most of what is missing for its time, until nothing is. What few
    instances have counts more. Then those go again whose features all others have brought."""
    found = classes(instances, deep)
    has = [[] for _ in instances]
    for c, (of, _, _) in enumerate(found):
        for k in of:
            has[k].append(c)
    weight = [n / len(of) for of, n, _ in found]
    missing = [need for _, _, need in found]
    gain = [sum(weight[c] for c in has[k]) / instances[k].cost for k in range(len(instances))]
    chosen, left = [], set(range(len(instances)))
    while left:
        # Gains only shrink: the best is the first whose gain is as large as it was.
        best, at = 0, None
        for k in sorted(left, key=lambda k: -gain[k]):
            if gain[k] <= best:
                break
            gain[k] = sum(weight[c] for c in has[k] if missing[c] > 0) / instances[k].cost
            if gain[k] > best:
                best, at = gain[k], k
        if at is None:
            break
        left.remove(at)
        chosen.append(at)
        for c in has[at]:
            missing[c] -= 1
    for k in sorted(chosen, key=lambda k: -instances[k].cost):
        if all(missing[c] < 0 for c in has[k]):
            chosen.remove(k)
            for c in has[k]:
                missing[c] += 1
    return {instances[k].name for k in chosen}


def load(work):
    """Instances with all their features, and where places of the compiler are."""
    instances = read_instances(work)
    names = collections.Counter(i.name for i in instances)
    assert max(names.values()) == 1, [n for n, k in names.items() if k > 1]
    where = compiler_features(instances, work)
    for i in instances:
        i.features |= set(texts(i))
        i.cost = max(i.took(), 0.1)
        program_features(i)
    return instances, where


# How often a feature is to be covered, where as many instances have it.
DEEP = {'compiler': 1, 'device': 1, 'text': 1, 'kernel': 1, 'must': 1}

HEAD = """\
# Instances of ladder, constructs and spec_kernels, which take those that stand here with `take`, and those
# that do not stand here: SUITE NAME HASH, as chosen.awk makes it from the instance's line. Written by
# tests/ladder/coverage/coverage.sh; tests/README.md says what is left out.
"""


def write_list(work, chosen, out):
    """All that cover.awk leaves, with what is chosen of it."""
    lines = []
    for suite in SUITES:
        with open(f'{work}/{suite}.known') as f:
            for line in f:
                name, value = line.split()
                lines.append(f'{suite} {name} {value} {"take" if name in chosen else "leave"}\n')
    with open(out, 'w') as f:
        f.write(HEAD + ''.join(sorted(lines)))


def main():
    work = sys.argv[1]
    if not os.path.exists(work + '/features.pickle'):
        with open(work + '/features.pickle', 'wb') as f:
            pickle.dump(load(work), f)
    with open(work + '/features.pickle', 'rb') as f:
        instances, _ = pickle.load(f)
    for i in instances:
        i.features = {f for f in i.features if not f.startswith('must ')} | {'must ' + m for m in i.must()}
    chosen = choose(instances, DEEP)
    write_list(work, chosen, ROOT + '/tests/ladder/chosen')
    for suite in SUITES:
        of = [i for i in instances if i.suite == suite]
        print(f'{suite}: {sum(i.name in chosen for i in of)} of {len(of)} instances, '
              f'{sum(i.cost for i in of if i.name in chosen):.0f} of {sum(i.cost for i in of):.0f} s')


if __name__ == '__main__':
    main()
