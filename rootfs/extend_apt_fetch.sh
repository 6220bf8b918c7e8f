#!/bin/sh
# extend_apt_fetch.sh ARCH PACKAGE... - fetches Debian packages and what they depend on, but for what an image has, and writes
# them to standard output as a tar archive: lock.json, which says what they are, and the packages.
#
# It runs in a sandbox with the host's programs and the host's network, and without the image: apt chooses and checks here,
# by the host's keys. Nothing of a package is executed.
#
# /mnt/in has sources (lines of sources.list), status (dpkg's list of what the image has) and environment (NAME=VALUE,
# variables of proxies). /etc/apt is the host's.
set -eu
exec 9>&1 >&2

work=/mnt/data
arch=$1
shift

fail() { # hutch shows the last line
    echo "$*"
    exit 1
}

command -v apt-get >/dev/null || fail "this host has no apt-get, which fetches Debian's packages"
while IFS= read -r variable; do
    export "${variable?}"
done </mnt/in/environment

mkdir -p "$work/lists/partial" "$work/cache/archives/partial" "$work/keys"
# Of Debian's archive, wherever this host's release keeps them, and those that its owner added.
cp /usr/share/keyrings/debian-archive-* "$work/keys" 2>/dev/null || :
cp /etc/apt/trusted.gpg.d/* "$work/keys" 2>/dev/null || :

run_apt() { # hutch shows what it complains of
    status=0
    apt-get -q=1 -o Dir::Etc::sourcelist=/mnt/in/sources -o Dir::Etc::sourceparts=/dev/null -o "Dir::State=$work" \
        -o "Dir::State::lists=$work/lists" -o Dir::State::status=/mnt/in/status -o "Dir::Cache=$work/cache" \
        -o "Dir::Etc::trustedparts=$work/keys" -o Dir::Etc::preferencesparts=/dev/null -o Dir::Etc::preferences=/dev/null \
        -o "APT::Architecture=$arch" -o "APT::Architectures::=$arch" -o APT::Sandbox::User= -o Acquire::Languages=none \
        -o Acquire::Retries=2 -o Binary::apt-get::APT::Keep-Downloaded-Packages=true "$@" >"$work/log" 2>&1 || status=$?
    if [ "$status" != 0 ]; then
        fail "apt: $(sed -nE 's/^ ([^ ].*(Depends|Breaks|Conflicts): )/\1/p; s/^E: //p' "$work/log" | head -n 3 | tr -s '\n ' ' ')"
    fi
}

run_apt -o APT::Update::Error-Mode=any update
run_apt -y --no-install-recommends --no-remove --download-only install -- "$@"

cd "$work/cache/archives"
packages=
for file in *.deb; do
    [ -e "$file" ] || continue
    # shellcheck disable=SC2016  # dpkg-deb's placeholders
    about=$(dpkg-deb --show --showformat '"name": "${Package}", "version": "${Version}"' "$file")
    packages="$packages${packages:+, }{$about, \"sha256\": \"$(sha256sum "$file" | cut -d' ' -f1)\", \"file\": \"$file\"}"
done
printf '{"tool": "%s", "language": "debian %s", "packages": [%s]}\n' "$(apt-get --version | head -n 1 | cut -d' ' -f1,2)" \
    "$arch" "$packages" >lock.json
find . -maxdepth 1 \( -name '*.deb' -o -name lock.json \) -printf '%f\0' | sort -z |
    tar --create --file=- --null --files-from=- --owner=0 --group=0 --numeric-owner --mode=0644 >&9
