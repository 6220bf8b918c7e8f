#!/bin/sh
# prepare.sh ROOT - makes ROOT ready for dpkg, before the first package: build.sh runs it on an empty tree,
# the Dockerfile on Debian's base image.
set -eu

root=${1%/}
here=$(dirname "$0")

mkdir -p "$root/etc/dpkg/dpkg.cfg.d" "$root/var/lib/dpkg/info"
cp "$here/dpkg.cfg" "$root/etc/dpkg/dpkg.cfg.d/90hutch"

# Debian's programs live below /usr, the old names are links. Made here, this needs no package, and no
# perl to run it.
for dir in bin sbin lib lib64; do
    if [ "$dir" = lib64 ] && [ "$(dpkg --print-architecture)" != amd64 ]; then
        continue
    fi
    if [ ! -e "$root/$dir" ]; then
        mkdir -p "$root/usr/$dir"
        ln -s "usr/$dir" "$root/$dir"
    fi
done

# One record that provides what is deliberately absent, in a version that satisfies every package.
if ! grep -qs '^Package: hutch-absent$' "$root/var/lib/dpkg/status"; then
    cat >>"$root/var/lib/dpkg/status" <<END
Package: hutch-absent
Status: install ok installed
Maintainer: hutch
Architecture: all
Multi-Arch: foreign
Version: 1
Provides: $("$here/packages.sh" absent | sed 's/$/ (= 9999)/' | paste -sd, | sed 's/,/, /g')
Description: packages that this image leaves out on purpose

END
    : >"$root/var/lib/dpkg/info/hutch-absent.list"
fi
