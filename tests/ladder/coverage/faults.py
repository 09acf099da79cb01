#!/usr/bin/env python3
"""Are faults seen by the chosen instances that all instances see? Plants faults in lines of the compiler and of the
device library that some instances execute which are left out, and runs instances that execute the line and whose
kernels change: first chosen ones, then, until one sees it, those that are left out. Faults that the compiler
itself finds are passed over.

In: WORK of coverage.sh, with features.pickle; TREE, a copy of the repository with its build, which this changes and
puts back; COUNT and SEED. Out: a line for each fault: `both`, `missed` (only what is left out sees it), or
`neither` (of at most RUNS instances on each side), and the sum.
"""
import os
import pickle
import random
import re
import shutil
import subprocess
import sys

import choose

RUNS = 8
EMITTED = 60
FLIPS = [(r' < ', ' <= '), (r' <= ', ' < '), (r' > ', ' >= '), (r' >= ', ' > '), (r' == ', ' != '), (r' != ', ' == '),
         (r' \+ 1\b', ' + 2'), (r' - 1\b', ' - 2'), (r' \+ (?!1\b)', ' - '), (r' - (?!1\b)', ' + '), (r' && ', ' || '),
         (r' \|\| ', ' && '), (r' \* ', ' + '), (r' / ', ' * '), (r'\((\w+), (\w+)\)', r'(\2, \1)'),
         (r'\btrue\b', 'false'), (r'\bfalse\b', 'true'), (r' = 0;', ' = 1;'), (r' \? (\w+) : (\w+)', r' ? \2 : \1'),
         (r'if \(!', 'if ('), (r'\bif \((?!!)(\w+)\)', r'if (!\1)'), (r'\+\+;', '--;'), (r' % ', ' / ')]
FOLDERS = re.compile(r'gen/(plan|schedule|kir|launch|ir|kernels|cuda)')


def flips_of(line):
    if re.search(r'^\s*(//|/\*|\*|#|case |static_assert|assert)|"', line):
        return []
    return [(m.start(), m.end(), m.expand(to)) for pattern, to in FLIPS for m in re.finditer(pattern, line)]


class Tree:
    """The copy in which faults are planted."""

    def __init__(self, tree):
        self.tree = tree
        self.out = tree + '/faults'
        os.makedirs(self.out, exist_ok=True)
        self.common = tree + '/build/tests/faults_common'
        libs = open(tree + '/build/libcell.flags').read().split('\n')[0].removeprefix('libs ')
        self.env = {**os.environ, 'EMU_SANITIZE': '0', 'EMU_HEADER': self.common + '/header', 'BACKEND': 'emulated',
                    'RUNTIME': tree + '/build/libcell.a', 'LIBS': libs, 'CXX': 'g++', 'CC': 'cc', 'LADDER_FIRST': '1',
                    'LIMIT': '60', 'VERDICTS': 'off'}
        subprocess.run(['bash', 'tests/emulator/build.sh', 'lib', self.common], cwd=tree, env=self.env, check=True)
        shutil.copy(tree + '/build/libladder.a', self.common)
        self.env['EMU_LINKER'] = subprocess.run(['bash', 'tests/emulator/build.sh', 'linker'], cwd=tree, env=self.env,
                                                text=True, stdout=subprocess.PIPE).stdout.strip()
        self.stamp()

    def stamp(self):
        open(self.common + '/stamp', 'w').close()

    def compile(self, file):
        """The compiler with the fault in FILE; says whether it builds."""
        made = subprocess.run(f'cc -std=c11 -D_GNU_SOURCE -w -O0 -fPIC -Igen -Ibuild/gen -c {file} -o faults/fault.o && '
                              'cc -rdynamic -o build/cellc-fault build/gen/main.o faults/fault.o build/libcellc.a -lm '
                              '-ldl -lpthread', shell=True, cwd=self.tree, stderr=subprocess.DEVNULL)
        return made.returncode == 0

    def emit(self, instance, cellc, to):
        words = instance.line.split(' | ')[0].split()[1:]
        spec = words[0].replace(choose.ROOT, self.tree) if '/' in words[0] else f'{self.tree}/specs/{words[0]}.cell'
        options = [w.replace(choose.ROOT, self.tree) for w in words[1:]]
        shutil.rmtree(to, ignore_errors=True)
        try:
            said = subprocess.run([cellc, 'emit', spec, *options, '-o', to], stdout=subprocess.DEVNULL,
                                  stderr=subprocess.DEVNULL, timeout=20)
        except subprocess.TimeoutExpired:
            return False
        return said.returncode == 0

    def changed(self, instance):
        """None: it does not compile; else whether its texts are others."""
        to = f'{self.out}/{instance.name}'
        if not self.emit(instance, self.tree + '/build/cellc-fault', to):
            return None
        for name in os.listdir(to):
            if not name.endswith('_cpu.c'):
                with open(f'{to}/{name}') as a, open(f'{instance.where}/{name}') as b:
                    if a.read() != b.read():
                        return True
        return False

    def sees(self, instance):
        with open(instance.where + '/../list') as f:
            line = next(x for x in f if x.startswith(instance.name + ' '))
        home = f'{self.out}/list.{instance.name}'
        shutil.rmtree(home, ignore_errors=True)
        os.makedirs(home)
        shutil.move(f'{self.out}/{instance.name}', home)
        with open(home + '/list', 'w') as f:
            f.write(line)
        said = subprocess.run(['bash', 'tests/ladder/one.sh', home, instance.name, self.common], cwd=self.tree,
                              env=self.env, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
        shutil.rmtree(home)
        return ', 0 failed, ' not in said


def judge(tree, instances, in_compiler, most=RUNS):
    """The first instance that sees it, of `most` that are run; None: none does, False: no text has changed."""
    runs = 0
    for instance in instances[:EMITTED if most == RUNS else len(instances)]:
        if in_compiler:
            changed = tree.changed(instance)
            if changed is None:
                return f'{instance.name} (does not compile)'
            if not changed:
                continue
        elif not tree.emit(instance, tree.tree + '/build/cellc', f'{tree.out}/{instance.name}'):
            continue
        if tree.sees(instance):
            return instance.name
        runs += 1
        if runs == most:
            break
    return None if runs else False


def main():
    work, copy, chosen_file, count, seed = sys.argv[1:6]
    sys.modules['__main__'].Instance = choose.Instance
    instances, where = pickle.load(open(work + '/features.pickle', 'rb'))
    with open(chosen_file) as f:
        chosen = {line.split()[1] for line in f if line.endswith(' take\n')}
    rng = random.Random(int(seed))
    line_of = {}
    for feature in set().union(*(i.features for i in instances)):
        if feature.startswith('compiler '):
            m = FOLDERS.search(where[feature])
            if m:
                line_of[feature] = where[feature][m.start():].split(' ')[0]
        elif feature.startswith('device runtime/device/') and feature.endswith(' 1'):
            line_of[feature] = feature.split(' ')[1]
    lines = {}
    for i in instances:
        for feature in i.features & line_of.keys():
            lines.setdefault(line_of[feature], set()).add(i.name)
    by_name = {i.name: i for i in instances}
    tree = Tree(copy)
    kinds = {k: sorted(line for line in lines if line.startswith(k)) for k in ('gen/', 'runtime/')}
    sums = {'both': 0, 'missed': 0, 'neither': 0}
    while sum(sums.values()) < int(count):
        line = rng.choice(kinds['gen/' if rng.random() < 0.65 else 'runtime/'])
        file, number = line.split(':')[:2]
        path = f'{copy}/{file}'
        if not os.path.exists(path) or not number.isdigit():
            continue
        text = open(path).read()
        rows = text.split('\n')
        flips = flips_of(rows[int(number) - 1])
        if not flips:
            continue
        begin, end, to = rng.choice(flips)
        old = rows[int(number) - 1]
        rows[int(number) - 1] = old[:begin] + to + old[end:]
        in_compiler = file.startswith('gen/')
        with open(path, 'w') as f:
            f.write('\n'.join(rows))
        try:
            if in_compiler and not tree.compile(file):
                continue
            tree.env['EMU_HEADER'] = tree.common + '/header' if in_compiler else ''
            if not in_compiler:
                tree.stamp()
            order = [by_name[n] for n in sorted(lines[line])]
            rng.shuffle(order)
            if sum(i.name not in chosen for i in order) < 2:
                continue
            seen = judge(tree, [i for i in order if i.name in chosen], in_compiler)
            if seen and 'does not compile' in seen:
                continue
            if seen:
                verdict = 'both'
            else:
                seen_left = judge(tree, [i for i in order if i.name not in chosen], in_compiler)
                if seen_left:               # all that are chosen, then
                    late = judge(tree, [i for i in order if i.name in chosen], in_compiler, len(order))
                    verdict = 'both' if late else 'missed'
                else:
                    verdict = 'neither'
                if not seen_left and seen is False and seen_left is False:
                    continue                # no text has changed
                seen = seen_left
            sums[verdict] += 1
            print(f'{verdict:8} {line} ({len(order)} execute it, {sum(i.name in chosen for i in order)} chosen): '
                  f'{rows[int(number) - 1].strip()}    [{seen}]', flush=True)
        finally:
            with open(path, 'w') as f:
                f.write(text)
            if not in_compiler:
                tree.stamp()
    print(', '.join(f'{n} {k}' for k, n in sums.items()))


if __name__ == '__main__':
    main()
