#!/bin/bash
# make dist: the release as a source archive, DIR/cellc-VERSION.tar.xz, of what is committed. The same commit
# gives the same bytes: names, order, times and owners are git's, and settings of the user's git and xz do not
# count. The version is that of gen/main.c. In: DIR; XZ_LEVEL (6). Out: the path of the archive, on standard
# output.
set -eu
cd "$(dirname "$0")/.."
dir=${1:?a directory}
if ! git ls-files --error-unmatch Makefile >/dev/null 2>&1; then
    echo "make dist: this is no clone, and the archive is made of what git has" >&2
    exit 1
fi
version=$(git show HEAD:gen/main.c | sed -n 's/^#define CELLC_VERSION "\(.*\)"/\1/p')
[[ -z $(git status --porcelain 2>/dev/null) ]] || echo "make dist: what is not committed is left out" >&2
mkdir -p "$dir"
archive=$dir/cellc-$version.tar.xz
unset XZ_OPT XZ_DEFAULTS
git -c tar.umask=0022 -c core.autocrlf=false -c core.eol=lf -c core.attributesFile=/dev/null \
    archive --format=tar --prefix="cellc-$version/" HEAD | xz "-${XZ_LEVEL:-6}" -T1 >"$archive.new"
mv "$archive.new" "$archive"
echo "$archive"
