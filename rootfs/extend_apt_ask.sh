#!/bin/sh
# extend_apt_ask.sh - prints what packages of Debian can be laid over this image: a line with its release and its
# architecture, and dpkg's list of what it has. It runs in the image, and hutch takes what comes out for a stranger's word.
set -u

fail() {
    echo "$*" >&2
    exit 1
}

[ -r /var/lib/dpkg/status ] || fail "the image was not made of Debian's packages: it has no /var/lib/dpkg/status"
arch=$(dpkg --print-architecture) || fail "the image has no dpkg that can be run"
# shellcheck disable=SC1091  # it is the image's
suite=$(. /etc/os-release && echo "${VERSION_CODENAME-}")
[ -n "$suite" ] || fail "the image does not say which release of Debian it is: /etc/os-release has no VERSION_CODENAME"
echo "$suite $arch"
exec cat /var/lib/dpkg/status
