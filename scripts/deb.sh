#!/bin/bash
# make deb: a Debian package of what is committed, by debhelper, of the source archive of scripts/dist.sh and
# packaging/debian. In: DIR, where the package goes. Out: its path, on standard output; the log is
# DIR/deb.log. The version is that of the archive, the date the commit's. DEBFULLNAME and DEBEMAIL name who
# packages it.
set -eu
cd "$(dirname "$0")/.."
dir=${1:?a directory}
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)
for tool in dpkg-buildpackage dh flex bison; do
    command -v "$tool" >/dev/null || missing+=" $tool"
done
if [[ -n ${missing:-} ]]; then
    echo "make deb: there is no${missing// / }: apt-get install dpkg-dev debhelper flex bison" >&2
    exit 1
fi
archive=$(bash scripts/dist.sh "$dir")
name=$(basename "$archive" .tar.xz) version=${archive##*/cellc-}
version=${version%.tar.xz}
rm -rf "${dir:?}/$name"
tar -C "$dir" -xf "$archive"
cp "$archive" "$dir/cellc_$version.orig.tar.xz"
cp -R "$dir/$name/packaging/debian" "$dir/$name/debian"
who="${DEBFULLNAME:-cellc packager} <${DEBEMAIL:-packager@cellc.invalid}>"
date=$(TZ=UTC git log -1 --format=%cd --date=format-local:'%a, %d %b %Y %H:%M:%S +0000')
cat >"$dir/$name/debian/changelog" <<CHANGES
cellc ($version-1) unstable; urgency=medium

  * Version $version; see changelog.gz for what is new.

 -- $who  $date
CHANGES
sed -i "s|@MAINTAINER@|$who|" "$dir/$name/debian/control"
# Nothing of this machine's toolkit or of the make that runs this goes into it.
unset MAKEFLAGS MAKELEVEL MFLAGS
if ! (cd "$dir/$name" && dpkg-buildpackage -us -uc -b) >"$dir/deb.log" 2>&1; then
    tail -n 20 "$dir/deb.log" >&2
    exit 1
fi
rm -rf "${dir:?}/$name"
echo "$dir/cellc_$version-1_$(dpkg --print-architecture).deb"
