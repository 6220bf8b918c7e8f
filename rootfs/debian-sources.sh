#!/bin/bash
# debian-sources.sh SUITE - prints from where packages of a release of Debian come, as lines of apt's sources.list: the file
# that HUTCH_APT_SOURCES names, or what this machine's apt knows as Debian's own main section of the release, its
# updates and security fixes. A release that it does not know but packages.txt does is looked for where the machine's own
# comes from. Needs: apt-get.
set -euo pipefail
export LC_ALL=C

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

die() {
    echo "debian-sources.sh: $*" >&2
    exit 1
}

[ $# -eq 1 ] || die "usage: debian-sources.sh SUITE"
suite=$1
[[ $suite =~ ^[a-z0-9][a-z0-9.-]{0,63}$ ]] || die "'$suite' is not a release of Debian"
if [ -n "${HUTCH_APT_SOURCES-}" ]; then
    [ -r "$HUTCH_APT_SOURCES" ] || die "HUTCH_APT_SOURCES: cannot read '$HUTCH_APT_SOURCES'"
    exec cat "$HUTCH_APT_SOURCES"
fi
command -v apt-get >/dev/null || die "this machine has no apt-get (HUTCH_APT_SOURCES can name a file with sources)"
releases=$("$here/packages.sh" releases)
released=$("$here/packages.sh" released "$suite") # nothing for a release that was not tried

# Which sources those are stands in the package lists; where none were fetched yet, they are, to a place of our own.
print_sources() { # [apt-get's OPTIONS]
    local all known
    known="(${releases//$'\n'/|})"
    # shellcheck disable=SC2016  # apt's placeholders
    all=$(apt-get "$@" indextargets --format 'deb $(REPO_URI) $(RELEASE) $(COMPONENT)' \
        'Created-By: Packages' 'Origin: Debian' 'Component: main')
    grep -E "^deb [^ ]+ ${suite}(-updates|-security)? main$" <<<"$all" | sort -u ||
        { [ -n "$released" ] && sed -nE "s/^(deb [^ ]+) $known(-updates|-security)? main$/\\1 $suite\\3 main/p" <<<"$all" |
            sort -u | grep .; }
}
print_sources && exit
work=$(mktemp -d "${TMPDIR:-/tmp}/hutch-sources.XXXXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM
mkdir -p "$work/lists/partial" "$work/cache/archives/partial"
private=(-o "Dir::State::lists=$work/lists" -o "Dir::Cache=$work/cache" -o APT::Sandbox::User= -o 'Acquire::Languages=none')
apt-get -q=2 "${private[@]}" update >&2 || die "apt-get update failed"
print_sources "${private[@]}" ||
    die "apt on this machine knows no Debian sources for '$suite'" \
        "(apt-get update, or name a file with sources in HUTCH_APT_SOURCES)"
