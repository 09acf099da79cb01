#!/bin/bash
# `make dist` and `make deb`: the archive is what git has, the same bytes whatever the user's settings are,
# and says its version; with FULL=1 it is built and checked as unpacked, and the package passes lintian (where
# that is installed) and works in a Debian that has gcc and nothing else, without network. In: BUILD. The last
# line is the sum.
set -u
cd "$(dirname "$0")/../.." || exit 1
build=$PWD/${BUILD:-build}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
said=$dir/said
skipped=0
unset MAKEFLAGS MAKELEVEL
# shellcheck source=tests/expect.sh
source tests/expect.sh
if ! git ls-files --error-unmatch Makefile >/dev/null 2>&1; then
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
fi
version=$(git show HEAD:gen/main.c | sed -n 's/^#define CELLC_VERSION "\(.*\)"/\1/p')
name=cellc-$version
archive=$dir/dist/$name.tar.xz
[[ -n ${FULL:-} ]] || export XZ_LEVEL=0     # packing as well as a release takes a quarter of a minute

expect 0 "$archive" make -s dist BUILD="$dir"
# A user whose git changes line ends and permissions, in another zone, with other settings of xz.
other() {
    (umask 077 && env TZ=Asia/Tokyo XZ_OPT=-9 GIT_CONFIG_COUNT=2 GIT_CONFIG_KEY_0=core.autocrlf \
        GIT_CONFIG_VALUE_0=true GIT_CONFIG_KEY_1=tar.umask GIT_CONFIG_VALUE_1=0077 \
        make -s dist BUILD="$dir/other")
}
expect 0 "$name.tar.xz" other
cmp "$archive" "$dir/other/dist/$name.tar.xz" >"$said" 2>&1 && pass || fail "the same commit, another archive"
tar -tf "$archive" | grep -v '/$' | sort >"$dir/has"
git ls-tree -r --name-only HEAD | sed "s|^|$name/|" | sort >"$dir/wanted"
if diff "$dir/wanted" "$dir/has" >"$said"; then pass; else fail "the archive has other files than git"; fi
tar -C "$dir" -xf "$archive"
tree=$dir/$name
expect 0 "make check" make -s -C "$tree" help
expect 2 "this is no clone" env -u GIT_DIR GIT_CEILING_DIRECTORIES="$dir" make -s -C "$tree" dist

# ---- with FULL=1: what the archive and the package are good for

quick() { env GIT_CEILING_DIRECTORIES="$dir" make -s -C "$tree" -j2 check-quick; }
in_root() { unshare -n chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 "$@"; }
uses() { # in the root: builds a library and a program with it, by the line that build prints
    in_root sh -c "cd /tmp && cellc build swiglu --no-cuda -o out 2>said &&
        sh -c \"\$(sed -n 's/.*links with it by: //p' said)\" && ./main"
}
if [[ -z ${FULL:-} ]]; then
    skipped=$((skipped + 1))
else
    expect 0 " 0 failed" quick
    expect 0 "_$(dpkg --print-architecture).deb" make -s deb BUILD="$dir"
    package=$(tail -n 1 "$said")
    if command -v lintian >/dev/null; then
        expect 0 "" lintian --fail-on error "$package"
    else
        echo "dist: lintian is not installed" && skipped=$((skipped + 1))
    fi
    root=$build/roots/deb
    if ((EUID != 0)) || ! command -v debootstrap >/dev/null || ! unshare -n true 2>/dev/null; then
        echo "dist: no root, debootstrap or unshare for a clean system" && skipped=$((skipped + 1))
    else
        suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
        if [[ ! -e $root/ready ]]; then
            rm -rf "${root:?}" && mkdir -p "${root%/*}"
            debootstrap --variant=minbase --include=gcc,libc6-dev "$suite" "$root" >"$dir/log" 2>&1 &&
                : >"$root/ready"
        fi
        cp "$package" "$root/cellc.deb"
        sed -n '/^cat .*main.c/,/^C$/p' tests/install/run.sh | sed '1d;$d' >"$root/tmp/main.c"
        expect 0 "Setting up cellc" in_root dpkg -i /cellc.deb
        expect 0 "runtime: /usr/lib/cellc" in_root cellc version --verbose
        expect 0 " 0 failed" in_root cellc check gru
        expect 0 " 0 failed" in_root cellc selftest swiglu --backend reference
        expect 0 "0.0000 1.4621" uses
        expect 0 "Removing cellc" in_root dpkg -r cellc
        left=$(find "$root/usr" -path "*cellc*" | head -n 3)
        [[ -z $left ]] && pass || fail "the package leaves $left"
    fi
fi
echo "$passed passed, $failed failed$([[ $skipped == 0 ]] || echo ", $skipped skipped")"
[[ $failed == 0 ]]
