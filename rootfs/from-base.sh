#!/bin/sh
# from-base.sh FLAVOUR TREE - for the Dockerfile: makes in TREE, from Debian's base image that it runs in, what build.sh
# makes from nothing.
set -eu

flavour=$1
tree=$2
here=$(cd "$(dirname "$0")" && pwd)
export DEBIAN_FRONTEND=noninteractive LC_ALL=C
# shellcheck disable=SC1091  # the base image's own
. /etc/os-release
work=$(mktemp -d)

# 1. The packages that build.sh would install: Debian's essential ones, those of the flavour, and what they depend on, as
# apt finds them for a system that has nothing but the record of what is absent. What the base has besides goes again.
"$here/prepare.sh" /
awk -v RS= -v ORS='\n\n' '/^Package: hutch-absent\n/' /var/lib/dpkg/status >"$work/status"
# Users as no package has added any yet.
for file in passwd group; do
    cp "/usr/share/base-passwd/$file.master" "/etc/$file"
    rm -f "/etc/$file-"
done
rm -f /etc/shadow* /etc/gshadow*
apt-get update
packages=$("$here/packages.sh" "$flavour" "$VERSION_CODENAME")
# shellcheck disable=SC2086  # a list of words, on purpose
apt-get install --simulate --no-install-recommends -o "Dir::State::status=$work/status" -o pkgCacheGen::ForceEssential=, \
    -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= '?essential' $packages >"$work/plan" # apt itself is not essential
sed -n 's/^Inst \([^ :]*\).*/\1/p' "$work/plan" | sort -u >"$work/wanted"
[ -s "$work/wanted" ]
xargs apt-get install -y --no-install-recommends <"$work/wanted"
dpkg-query -W -f '${Package}\n' | sort -u | grep -vxF -e hutch-absent -f "$work/wanted" >"$work/beyond" || :
[ ! -s "$work/beyond" ] ||
    xargs dpkg --purge --force-depends --force-remove-essential --force-remove-protected <"$work/beyond"

# 2. The tree, without what the builder has mounted into this one: /proc, /dev, /etc/hosts, /run/.containerenv and the
# like, which nobody can remove from it.
awk '$5 != "/" { print "." $5 }' /proc/self/mountinfo >"$work/mounted"
if grep '[\\]' "$work/mounted" >&2; then
    echo "from-base.sh: the builder mounts something whose name has spaces or the like" >&2
    exit 1
fi
mkdir -p "$tree/proc" "$tree/sys" "$tree/dev"
{
    tar -C / --one-file-system --anchored --no-wildcards --exclude-from="$work/mounted" --exclude="./${tree#/}" \
        --exclude="./${here#/}" --exclude="./${work#/}" -c . || : >"$work/incomplete"
} | tar -C "$tree" --numeric-owner -xp
[ ! -e "$work/incomplete" ]
rm -rf "$work"

# 3. As for build.sh. Programs open /dev/null, and no builder lets a rootless one make it.
: >"$tree/dev/null"
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$("$here/packages.sh" released "$VERSION_CODENAME")} "$here/trim.sh" "$tree"
rm -r "${tree:?}/dev"
