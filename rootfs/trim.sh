#!/bin/sh
# trim.sh ROOT - the last step of an image, the same in build.sh and in the Dockerfile: takes out what a
# sandbox never needs, prepares what is slow at first use (the tree is read-only at run time), and makes the
# result depend on nothing but the packages.
set -eu

root=${1%/}
here=$(dirname "$0")
export LC_ALL=C PYTHONHASHSEED=0
: "${SOURCE_DATE_EPOCH:=0}"
export SOURCE_DATE_EPOCH

say() { echo "trim.sh: $*" >&2; }

# 1. What dpkg.cfg keeps out, for packages that were unpacked without it (the essential ones; a base image).
sed -n 's|^path-exclude=\(/[^*]*\)/\*$|\1|p' "$here/dpkg.cfg" | grep -vx /usr/share/doc | while IFS= read -r dir; do
    rm -rf "$root$dir"
done
find "$root"/usr/share/doc -mindepth 2 ! -name copyright ! -type d -delete 2>/dev/null || :
find "$root"/usr/share/doc -mindepth 1 -type d -empty -delete 2>/dev/null || :
find "$root"/usr/lib \( -name '*.a' -o -name '*.la' -o -name '*.h' -o -name '*.hpp' \) -type f -delete

# 2. The package manager's own working state. /var/lib/dpkg/status stays: it says what is in the image.
rm -rf "$root"/var/lib/apt "$root"/var/cache/apt "$root"/var/cache/debconf "$root"/var/cache/ldconfig \
    "$root"/var/lib/dpkg/info "$root"/var/lib/dpkg/updates "$root"/var/lib/dpkg/triggers \
    "$root"/var/lib/dpkg/alternatives "$root"/var/lib/dpkg/*-old "$root"/var/lib/dpkg/lock* \
    "$root"/var/lib/systemd "$root"/var/lib/python "$root"/var/backups "$root"/etc/apt \
    "$root"/etc/dpkg/dpkg.cfg.d "$root"/usr/lib/python3.[0-9]*/config-3.*
find "$root"/var/log "$root"/var/cache "$root"/tmp "$root"/run "$root"/var/tmp -mindepth 1 ! -type d -delete
find "$root"/tmp "$root"/run "$root"/var/tmp "$root"/var/cache -mindepth 1 -type d -empty -delete

# 3. Files that would carry the build machine, or a secret, into the image.
rm -f "$root"/etc/machine-id "$root"/etc/hostname "$root"/etc/resolv.conf "$root"/etc/shadow* \
    "$root"/etc/gshadow* "$root"/etc/.pwd.lock "$root"/etc/passwd- "$root"/etc/group- "$root"/etc/subuid* "$root"/etc/subgid* \
    "$root"/var/lib/dbus/machine-id "$root"/.dockerenv
cp "$here/hosts" "$root/etc/hosts"
# What pip prints instead of trying: Debian's advice is about apt and venv, which need a network, too.
for managed in "$root"/usr/lib/python3*/EXTERNALLY-MANAGED; do
    [ ! -e "$managed" ] || cp "$here/externally-managed" "$managed"
done

# 4. The sandbox user. Nobody has a password, whether or not a package has moved them to /etc/shadow.
sed -i 's/^\([^:]*\):x:/\1:*:/' "$root/etc/passwd" "$root/etc/group"
grep -q '^user:' "$root/etc/passwd" || echo 'user:x:1000:1000:user:/tmp:/bin/bash' >>"$root/etc/passwd"
grep -q '^user:' "$root/etc/group" || echo 'user:x:1000:' >>"$root/etc/group"
mkdir -p "$root/mnt/data"
sort -u -o "$root/etc/shells" "$root/etc/shells" # in the order in which packages came

# 5. No program changes who it runs as.
find "${root:-/}" -xdev -type f -perm /6000 -exec chmod ug-s {} +

# 6. A locale of a language, for programs that format by one: en_US.UTF-8. Its sources go again.
if [ -e "$root/usr/share/i18n/locales/en_US" ]; then
    say "make the locale en_US.UTF-8"
    chroot "$root/" /usr/bin/localedef --no-archive --no-hard-links -i en_US -f UTF-8 en_US.UTF-8
    rm -rf "$root/usr/share/i18n"
fi

# 7. Bytecode. "unchecked-hash": Python neither looks at the source's time nor reads it. What marshal writes
# depends on which strings the compiling process happens to hold already, so each of a fixed number of
# processes compiles a fixed share of the files in a fixed order; two of them at a time.
say "compile Python files"
find "$root"/usr -name __pycache__ -type d -prune -exec rm -rf {} +
cat >"$root/tmp/compile.py" <<'END'
import gc, os, py_compile, sys
gc.disable()
share, shares = int(sys.argv[1]), int(sys.argv[2])
files = []
for top in ("/usr/lib/python3", os.path.dirname(os.__file__), "/usr/share/python3"):
    for where, dirs, names in os.walk(top):
        files += [os.path.join(where, n) for n in names if n.endswith(".py")]
for name in sorted(files)[share::shares]:
    if os.path.islink(name) and not os.path.exists(name):
        continue
    try:
        py_compile.compile(name, doraise=True, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    except py_compile.PyCompileError:
        pass    # templates and lib2to3's Python 2 samples
END
chroot "$root/" /usr/bin/python3 -IBS /tmp/compile.py 0 2 &
chroot "$root/" /usr/bin/python3 -IBS /tmp/compile.py 1 2
wait $!
rm "$root/tmp/compile.py"

# 8. matplotlib looks for fonts for about a second unless it finds a list in its cache directory, which a
# fresh sandbox does not have. It gets one beside its own data, where its loader is told to look too. And whatever
# font a text asks for, a character that it lacks comes from one that has CJK, or symbols and emoji.
fonts=$root/usr/lib/python3/dist-packages/matplotlib/font_manager.py
if [ -e "$fonts" ]; then
    say "list matplotlib's fonts"
    cat >"$root/tmp/fonts.py" <<'END'
import os, re, sys
os.environ["MPLCONFIGDIR"] = "/tmp/mpl"
import matplotlib
from matplotlib import font_manager as fm
path = os.path.join(matplotlib.get_data_path(), "fontlist.json")
fm.fontManager.ttflist.sort(key=lambda f: (f.fname, f.name, f.style, str(f.weight)))
fm.fontManager.afmlist.sort(key=lambda f: (f.fname, f.name, f.style, str(f.weight)))
fm.json_dump(fm.fontManager, path)
source = open(fm.__file__).read()
old = '''            fm = json_load(fm_path)
'''
new = '''            fm = json_load(fm_path if fm_path.exists() else
                           Path(mpl.get_data_path(), "fontlist.json"))
'''
more = [path for path in ("/usr/share/fonts/truetype/wqy/wqy-zenhei.ttc",
                          "/usr/share/fonts/truetype/ancient-scripts/Symbola_hint.ttf") if os.path.exists(path)]
old_found = "        return fpaths\n"
new_found = "        fpaths += [path for path in %r if fontext == 'ttf' and path not in fpaths]\n%s" % (more, old_found)
if source.count(old) != 1 or source.count(old_found) != 1:
    sys.exit("trim.sh: matplotlib's font_manager.py is not as expected, its font list would not be read")
os.chmod(fm.__file__, 0o644)
open(fm.__file__, "w").write(source.replace(old, new).replace(old_found, new_found))
import py_compile
py_compile.compile(fm.__file__, doraise=True, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
END
    chroot "$root/" /usr/bin/python3 -IB /tmp/fonts.py
    rm -rf "$root/tmp/fonts.py" "$root/tmp/mpl"
fi

# 9. wordcloud's default font is a link into a package that is left out.
cloud=$root/usr/lib/python3/dist-packages/wordcloud/DroidSansMono.ttf
if [ -L "$cloud" ] && [ ! -e "$cloud" ]; then
    ln -sf ../../../../share/fonts/truetype/dejavu/DejaVuSansMono.ttf "$cloud"
fi

# 10. Other caches that programs would otherwise make at every start.
chroot "$root/" /sbin/ldconfig
rm -rf "$root/var/cache/ldconfig"
if [ -x "$root/usr/bin/fc-cache" ]; then
    say "list fonts for fontconfig"
    find "$root"/usr/share/fonts -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
    rm -rf "$root/var/cache/fontconfig"
    chroot "$root/" /usr/bin/fc-cache -s
fi
