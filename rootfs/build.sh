#!/bin/bash
# build.sh FLAVOUR OUT.tar - builds a root file system from Debian packages and writes it as an OCI image
# layout archive (one layer, zstd). Prints the manifest's digest. The same packages give the same digest,
# the user who builds.
#
# As root, or as an ordinary user who has a range in /etc/subuid and /etc/subgid (mmdebstrap's "unshare" mode).
# No daemon. Needs: mmdebstrap, zstd, tar; uidmap for ordinary users.
#
#   HUTCH_APT_SOURCES   a file with apt sources to install from; without it, the machine's own sources of Debian
#   HUTCH_SUITE         Debian release, default the first of packages.txt; the image of another is called FLAVOUR-RELEASE
#   SOURCE_DATE_EPOCH   newest time that any file may carry, in seconds; default: the day of the release
#   TMPDIR              where to work: about twice the size of the image, readable for others
set -euo pipefail
export LC_ALL=C
umask 022

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
releases=$("$here/packages.sh" releases)
usual=${releases%%$'\n'*}
suite=${HUTCH_SUITE:-$usual}
released=$("$here/packages.sh" released "$suite") # nothing for a release that was not tried
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-${released:-$(date +%s)}}

die() {
    echo "build.sh: $*" >&2
    exit 1
}

[ $# -eq 2 ] || die "usage: build.sh FLAVOUR OUT.tar (flavours: $("$here/packages.sh" flavours | tr '\n' ' '))"
flavour=$1
out=$2
[[ $suite =~ ^[a-z0-9][a-z0-9.-]{0,63}$ ]] || die "HUTCH_SUITE is '$suite', not a release of Debian"
packages=$("$here/packages.sh" "$flavour" "$suite") || exit 1
[[ $SOURCE_DATE_EPOCH =~ ^[0-9]{1,11}$ ]] || die "SOURCE_DATE_EPOCH is '$SOURCE_DATE_EPOCH', not a number of seconds"

# mmdebstrap and its tools sit in sbin directories that an ordinary user may not have in PATH.
PATH=$PATH:/usr/sbin:/sbin
{ : >"$out.part"; } 2>/dev/null || die "cannot write '$out'" # now, not when all is built
rm "$out.part"
missing=
for tool in mmdebstrap zstd tar sha256sum apt-get; do
    command -v "$tool" >/dev/null || missing="$missing $tool"
done
[ -z "$missing" ] || die "not installed:$missing (apt-get install mmdebstrap zstd)"

mode=root
if [ "$(id -u)" != 0 ]; then
    mode=unshare
    user=$(id -un)
    command -v newuidmap >/dev/null || die "not installed: newuidmap (apt-get install uidmap), needed to build without root"
    free=$("$here/free-ids.sh" /etc/subuid /etc/subgid) || free=FIRST-LAST # every id is taken
    for file in /etc/subuid /etc/subgid; do
        awk -F: -v u="$user" -v i="$(id -u)" '($1 == u || $1 == i) && $3 >= 65536 { ok = 1 } END { exit !ok }' "$file" 2>/dev/null ||
            die "user '$user' has no range of 65536 ids in $file, which building without root needs" \
                "(as root: usermod --add-subuids $free --add-subgids $free $user)"
    done
fi

work=$(mktemp -d "${TMPDIR:-/tmp}/hutch-build.XXXXXXXX")
builder=
clean_up() {
    if [ -n "$builder" ]; then
        kill -TERM -- "-$builder" 2>/dev/null || kill -TERM "$builder" 2>/dev/null || :
        wait "$builder" 2>/dev/null || :
    fi
    rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM
chmod 755 "$work"
# ext4: the tree in a part of the disk where nothing was deleted lately; creating files is much slower elsewhere.
chattr +T "$work" 2>/dev/null || :

# mmdebstrap's child in its own user namespace may not be allowed to read the place where this script lies.
mkdir "$work/rootfs"
cp "$here"/packages.txt "$here"/packages.sh "$here"/dpkg.cfg "$here"/prepare.sh "$here"/trim.sh "$here"/hosts "$here"/externally-managed "$work/rootfs"
chmod -R u=rwX,go=rX "$work/rootfs"

"$here/debian-sources.sh" "$suite" >"$work/sources" || exit 1

name=$flavour
[ "$suite" = "$usual" ] || name=$flavour-$suite

started=$SECONDS
say() { [ -n "${HUTCH_BUILD_QUIET-}" ] || printf 'build.sh: %3d s  %s\n' $((SECONDS - started)) "$*" >&2; }

# 1. The tree, as one tar stream sorted by name, owners as in the image, no device nodes.
say "build '$name' ($(wc -w <<<"$packages") packages and what they depend on)"
args=(--mode="$mode" --variant=essential --format=tar --skip=output/dev --skip=cleanup)
args+=(--aptopt='Acquire::Languages "none"')
args+=(--setup-hook="$work/rootfs/prepare.sh \"\$1\"")
args+=(--customize-hook="SOURCE_DATE_EPOCH=$SOURCE_DATE_EPOCH $work/rootfs/trim.sh \"\$1\"")
args+=(--include="$(paste -sd, <<<"$packages")")
mkfifo "$work/log.fifo"
tee "$work/log" <"$work/log.fifo" | while IFS= read -r line; do
    case $line in
    "I: running apt"* | "I: download"* | "I: extract"* | "I: install"* | "I: creat"* | "trim.sh: "*) say "  ${line#*: }" ;;
    esac
done &
reader=$!
# In the background, because bash obeys a signal only between two commands, and wait is one that it interrupts. In a session
# of its own, because mmdebstrap told to stop waits until apt is done: with its group, apt is told too.
(cd / && TMPDIR=$work exec setsid mmdebstrap "${args[@]}" "$suite" - "$work/sources" >"$work/layer.tar" 2>"$work/log.fifo" </dev/null) &
builder=$!
failed=0
wait "$builder" || failed=1
builder=
wait "$reader" || :
if [ "$failed" = 1 ]; then
    # dpkg's first complaint is the cause, what follows from it fills pages.
    grep -E -i -m 5 -B 2 '(^E:|^W:|error)' "$work/log" >&2 || tail -n 20 "$work/log" >&2
    die "mmdebstrap failed"
fi

# 2. The layer's two digests: of the tar ("diff id") and of what is stored.
say "compress"
mkdir -p "$work/oci/blobs/sha256"
diff_id=$(sha256sum <"$work/layer.tar" | cut -d' ' -f1)
unpacked=$(stat -c %s "$work/layer.tar")
# One worker thread or many write the same bytes; no worker thread writes others.
zstd -q -T2 -6 --rm "$work/layer.tar" -o "$work/layer.zst"

digest=''
size=''
add_blob() { # FILE: moves it among the blobs, sets digest and size
    digest=$(sha256sum <"$1" | cut -d' ' -f1)
    size=$(stat -c %s "$1")
    mv "$1" "$work/oci/blobs/sha256/$digest"
}

# 3. The image's configuration, manifest and index. Every value below is made here and needs no escaping:
# digests, numbers, a flavour's name that packages.txt knows, Debian's name of the architecture.
case $(dpkg --print-architecture) in
arm64) arch=arm64 variant=',"variant":"v8"' ;;
i386) arch=386 variant= ;;
armhf) arch=arm variant=',"variant":"v7"' ;;
ppc64el) arch=ppc64le variant= ;;
*) arch=$(dpkg --print-architecture) variant= ;;
esac
created=$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)

add_blob "$work/layer.zst"
layer="{\"mediaType\":\"application/vnd.oci.image.layer.v1.tar+zstd\",\"digest\":\"sha256:$digest\",\"size\":$size}"

printf '{"created":"%s","architecture":"%s"%s,"os":"linux","config":{"User":"1000:1000","Env":["PATH=%s","HOME=/tmp","LANG=C.UTF-8"],"Cmd":["python3"],"WorkingDir":"/mnt/data"},"rootfs":{"type":"layers","diff_ids":["sha256:%s"]},"history":[{"created":"%s","created_by":"hutch rootfs build %s"}]}' \
    "$created" "$arch" "$variant" /usr/local/bin:/usr/bin:/bin "$diff_id" "$created" "$name" >"$work/config.json"
add_blob "$work/config.json"
config="{\"mediaType\":\"application/vnd.oci.image.config.v1+json\",\"digest\":\"sha256:$digest\",\"size\":$size}"

printf '{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":%s,"layers":[%s]}' \
    "$config" "$layer" >"$work/manifest.json"
add_blob "$work/manifest.json"
manifest=$digest

printf '{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":"sha256:%s","size":%s,"platform":{"architecture":"%s","os":"linux"%s},"annotations":{"org.opencontainers.image.ref.name":"%s"}}]}' \
    "$manifest" "$size" "$arch" "$variant" "$name" >"$work/oci/index.json"
printf '{"imageLayoutVersion":"1.0.0"}' >"$work/oci/oci-layout"

# 4. The archive, complete or not there.
say "write '$out'"
tar -C "$work/oci" --format=ustar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner \
    --mode=u=rwX,go=rX -cf "$out.part" blobs index.json oci-layout || {
    rm -f "$out.part"
    die "cannot write '$out'"
}
mv "$out.part" "$out"
say "done: $((unpacked / 1000000)) MB unpacked, $(($(stat -c %s "$out") / 1000000)) MB archive"
echo "sha256:$manifest"
