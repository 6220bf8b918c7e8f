#!/bin/sh
# extend_apt.sh - makes a layer of an image: installs Debian packages by the image's own dpkg, and writes what that has changed
# to standard output as a tar archive: lock.json, which says what was installed, and the directory tree. What comes out is
# judged by hutch as an archive from a stranger: scripts of packages ran here.
#
# It runs in the image that is to be extended, without a network, where the root can be written and the caller seems to be
# root: docs/policy.md, root_changes. /mnt/in has debs.tar, /mnt/builder the dpkg.cfg of hutch's images.
set -eu
exec 9>&1 >&2
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C
export DEBIAN_FRONTEND=noninteractive DEBCONF_NONINTERACTIVE_SEEN=true

work=/mnt/data
began=$work/began
policy=/usr/sbin/policy-rc.d

fail() { # hutch shows the last line
    echo "$*"
    exit 1
}

parts=
for part in usr opt etc var bin sbin lib lib32 lib64 libx32; do
    [ ! -d "/$part" ] || [ -L "/$part" ] || parts="$parts /$part"
done
# Of when a file was made the overlay says what the file system says that has the changes; 0 where it does not know.
sleep 0.1
: >/.began
made=$(stat -c %.9W /.began)
rm /.began

# What its user may not use is empty and has no mode in an image, and is root's to use.
# shellcheck disable=SC2086  # a list of words
find $parts -xdev ! -type l -perm 0000 -exec chmod u+rwX {} \;

# What has changed since then is the layer. No file of the image is as young, as it was unpacked before this began; a clock
# of the kernel's is read for both, which may stand still for some milliseconds. A link that is made outside to a file of the
# image is such a change, too, and none of this layer's: what is changed here was copied for it, and so made here.
sleep 0.1
: >"$began"
sleep 0.1
changed() { # DIRECTORY TEST...: the names of what has changed below it, each with NUL at its end
    directory=$1
    shift
    find "$directory" -xdev -cnewer "$began" "$@" -print0 >"$work/younger" || return 1
    case $made in
    0 | 0.* | -*) cat "$work/younger" ;;
    *)
        xargs -0 -r stat --printf '%.9W %n\0' -- <"$work/younger" >"$work/made" || return 1
        { printf '%s \0' "$made" && cat "$work/made"; } | sort -z | sed -z '0,/^[0-9.]* $/d; s/^[^ ]* //'
        ;;
    esac
}

mkdir "$work/debs"
tar --extract --file=/mnt/in/debs.tar --directory="$work/debs" || fail "what was fetched cannot be read"

# 1. What hutch's images lack of dpkg's own files. What it is to know of this layer alone is taken away at the end.
mkdir -p /run/lock /var/lib/dpkg/info /var/lib/dpkg/updates /var/lib/dpkg/triggers /var/lib/dpkg/alternatives /var/cache/debconf /var/log
[ ! -e /var/lib/dpkg/statoverride ] || cp /var/lib/dpkg/statoverride "$work/statoverride"
find /etc/alternatives -type l -printf '%f %l\n' 2>/dev/null | sort >"$work/alternatives" || :
[ -e "$policy" ] || { printf '#!/bin/sh\nexit 101\n' >"$policy" && chmod 755 "$policy" && : >"$work/own_policy"; } # no services

# update-alternatives links manuals, too, and fails where the directory was left out with them.
[ -d /usr/share/man ] || { mkdir -p /usr/share/man/man1 /usr/share/man/man5 /usr/share/man/man7 /usr/share/man/man8 && : >"$work/own_man"; }

# 2. No program changes who it runs as, so that none gets the mode with which that is asked for: neither by dpkg nor by scripts.
mkdir "$work/bin"
cat >"$work/bin/chmod" <<'END'
#!/bin/sh
# chmod, install and dpkg-statoverride without setuid and setgid
for word; do
    shift
    case $word in
    [2467][0-7][0-7][0-7] | 0[2467][0-7][0-7][0-7]) word=0${word#"${word%???}"} ;;
    [ugoa+]*[+=]*s*) word=$(printf '%s\n' "$word" | sed -E 's/^([ugoa]*[+=][rwxX]*)s+/\1/; s/,([ugoa]*[+=][rwxX]*)s+/,\1/g') ;;
    -m[2467][0-7][0-7][0-7] | -m0[2467][0-7][0-7][0-7] | --mode=[2467][0-7][0-7][0-7] | --mode=0[2467][0-7][0-7][0-7])
        word=${word%%[0-7]*}0${word#"${word%???}"}
        ;;
    esac
    set -- "$@" "$word"
done
exec "/usr/bin/${0##*/}" "$@"
END
chmod 755 "$work/bin/chmod"
cp "$work/bin/chmod" "$work/bin/install"
cp "$work/bin/chmod" "$work/bin/dpkg-statoverride"
export PATH="$work/bin:$PATH"
for deb in "$work"/debs/*.deb; do
    [ -e "$deb" ] || continue
    dpkg-deb --fsys-tarfile "$deb" | tar --list --verbose --numeric-owner --quoting-style=escape
done | awk '
    function digit(from,   n) {
        n = substr($1, from, 1) == "r" ? 4 : 0
        n += substr($1, from + 1, 1) == "w" ? 2 : 0
        return n + (substr($1, from + 2, 1) ~ /[xst]/ ? 1 : 0)
    }
    $1 ~ /^[-d].*[sS]/ && $6 ~ /^\.\// {
        path = substr($6, 2)
        sub(/\/$/, "", path)
        print "root root 0" digit(2) digit(5) digit(8) " " path
    }' | sort -u >>/var/lib/dpkg/statoverride

# 3. dpkg. Of what hutch leaves out of its images, headers and libraries to link with are wanted here.
set -f
# shellcheck disable=SC2046  # one option a line
set -- --auto-deconfigure $(grep -E '^path-[a-z]*=/usr/share/(doc|bug|doc-base|gtk-doc|info|lintian|linda|locale|man)/' /mnt/builder/dpkg.cfg | sed 's/^/--/')
set +f
run_dpkg() {
    dpkg --force-unsafe-io --force-confold "$@" >"$work/log" 2>&1 </dev/null 9>&-
}
complain() { # with what the script said before dpkg did
    fail "dpkg: $(awk '/^dpkg: error/ { print said; print; getline; print; found = 1; exit } { said = $0 } END { if (!found) print said }' "$work/log" |
        tr -s '\n ' ' ')"
}
# A package may want another to be configured before it is unpacked, whose name comes later: again, then.
is_unpacked=
if [ -z "$(find "$work/debs" -name '*.deb')" ]; then
    is_unpacked=yes
fi
for _ in 1 2 3 4 5; do
    [ -z "$is_unpacked" ] || break
    if run_dpkg "$@" --unpack --recursive "$work/debs"; then
        is_unpacked=yes
    else
        dpkg --force-unsafe-io --force-confold --configure --pending >/dev/null 2>&1 </dev/null 9>&- || :
    fi
done
[ -n "$is_unpacked" ] || complain
# Root opens a file whatever its mode, and here the mode counts, as of /etc/gshadow, which systemd-sysusers makes without any and
# opens when the next package calls it. A script that fails is run again when what is closed was opened, as dpkg has it run
# again in a system where it was interrupted. What its owner alone may read is empty in an image, so nothing is given away.
open_closed() {
    {
        find /etc /var -xdev \( -type f ! -perm -u=rw -o -type d ! -perm -u=rwx \) -print0
        for part in $parts; do
            changed "$part" \( -type f ! -perm -u=rw -o -type d ! -perm -u=rwx \) || return 1
        done
    } >"$work/closed"
    [ -s "$work/closed" ] && xargs -0 -r chmod u+rwX -- <"$work/closed"
}
n_failed=0
until run_dpkg --configure --pending; do
    n_failed=$((n_failed + 1))
    [ "$n_failed" -lt 20 ] || complain
    open_closed || complain
done

# 4. What the images' own packages would have done: their scripts are not there any more.
ldconfig || fail "ldconfig failed"
[ ! -x /usr/bin/fc-cache ] || [ -z "$(changed /usr/share/fonts | head -c 1)" ] || fc-cache -s || fail "fc-cache failed"
# Which of several programs has a common name stays the image's choice.
while read -r name target; do
    [ "$(readlink "/etc/alternatives/$name")" = "$target" ] || ln -sfn "$target" "/etc/alternatives/$name"
done <"$work/alternatives"
# Python is told not to compare bytecode with its source, as in the images.
changed /usr -type f -name '*.py' -path '*/python3*' >"$work/sources"
if [ -s "$work/sources" ] && [ -x /usr/bin/python3 ]; then
    python3 -ISBc '
import py_compile, sys
for name in filter(None, sys.stdin.buffer.read().split(b"\0")):
    try:
        py_compile.compile(name.decode(), doraise=True, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    except (py_compile.PyCompileError, OSError, ValueError):
        pass' <"$work/sources"
fi

# What a script has left running could write while it is looked at what has changed.
kill -KILL -1 2>/dev/null || :

# 5. What belongs to this machine, or to the work.
rm -rf /var/lib/apt /var/cache/apt /var/cache/debconf /var/cache/ldconfig /var/cache/man /var/lib/dpkg/updates /var/lib/dpkg/lock* /var/lib/dpkg/triggers/Lock \
    /var/lib/dpkg/*-old /var/lib/systemd /var/lib/python /var/backups /etc/machine-id /etc/hostname /etc/resolv.conf \
    /etc/shadow- /etc/gshadow- /etc/passwd- /etc/group- /etc/.pwd.lock /etc/subuid* /etc/subgid*
find /var/log -type f -delete 2>/dev/null || :
rm -f /var/lib/dpkg/statoverride
[ ! -e "$work/statoverride" ] || cp "$work/statoverride" /var/lib/dpkg/statoverride
[ ! -e "$work/own_policy" ] || rm -f "$policy"
[ ! -e "$work/own_man" ] || rm -rf /usr/share/man

# 6. The archive. A file of the image that was taken away is seen again, as a layer lies over it. One that its owner may not
# read becomes nobody's, and empty, when hutch unpacks it; here it has to be read all the same.
for part in $parts; do
    find "$part" -xdev -type d ! -perm -u=rx -exec chmod u+rx {} \;
    changed "$part" -type f ! -perm -u=r >"$work/unreadable" || fail "what has changed cannot be listed"
    xargs -0 -r chmod u+r -- <"$work/unreadable"
done
mkdir -p "$work/out/tree"
cp "$work/debs/lock.json" "$work/out/lock.json"
for part in $parts; do
    changed "$part" \( -type f -o -type d -o -type l \) >>"$work/found" || fail "what has changed cannot be listed"
done
sed -z 's,^,.,' "$work/found" | sort -z >"$work/names"
tar --create --file="$work/layer.tar" --owner=0 --group=0 --numeric-owner --format=gnu --transform='s,^\./,tree/,S' \
    --directory="$work/out" lock.json tree --directory=/ --null --no-recursion --files-from="$work/names" 2>"$work/log" ||
    fail "the layer cannot be written: $(tail -n 1 "$work/log")"
cat "$work/layer.tar" >&9
