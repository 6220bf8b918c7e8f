"""The suites: one row each. docs/suites.md is made of this table by `tests/suites/run --page`.

Every command is a script of sh that runs in /mnt/data, with the sources in src/. `build` runs once, outside, without a network; `units`
prints the names of what can be run alone, one a line; `run` gets some of these names as "$@"."""
import dataclasses

import reading

C_TREE = ("build-essential bison flex gettext autoconf automake texinfo python3 pkgconf libpcre2-dev libacl1-dev libattr1-dev libgmp-dev libssl-dev "
          "libcurl4-openssl-dev libexpat1-dev zlib1g-dev libreadline-dev libncurses-dev libmpfr-dev locales locales-all tzdata procps tcl-dev bc file "
          "xz-utils bzip2 zstd less ed git unzip zip gawk netbase acl attr libbz2-dev libdb-dev libgdbm-dev libgdbm-compat-dev tcsh time "
          "libjson-pp-perl libffi-dev libyaml-dev ruby stunnel4 nghttp2-proxy strace gdb- man-db-").split()
PYTHON_TREE = ("python3 libpython3.13-testsuite python3-pytest python3-numpy python3-psutil python3-twisted python3-pandas python3-sklearn "
               "python3-matplotlib gcc libc6-dev python3-dev netbase tzdata procps locales locales-all ca-certificates python3-hypothesis "
               "python3-setuptools openssl file").split()
NODE_TREE = "nodejs python3 procps openssl netbase ca-certificates tzdata".split()
GO_TREE = "golang-1.24-go golang-1.24-src gcc libc6-dev netbase tzdata procps git ca-certificates".split()
TREES = {"c": C_TREE, "python": PYTHON_TREE, "node": NODE_TREE, "go": GO_TREE}

# Prints a variable of an automake Makefile, one word a line.
WORDS_OF = """words() { printf 'hutch-print:\\n\\t@printf "%%s\\\\n" $($(VARIABLE))\\n' | make -s -C "$1" -f Makefile -f - hutch-print VARIABLE="$2"; }
"""


@dataclasses.dataclass(frozen=True)
class Suite:
    name: str
    tests: str               # what it is, for people
    package: str             # the source package, or "" where the tree has the tests
    tree: str
    build: str
    units: str
    run: str
    read: object
    limits: dict = dataclasses.field(default_factory=dict)  # raised besides places.RAISED
    at_once: int = 20        # units in one run of each side
    seconds: int = 1200      # for one such run
    left_out: dict = dataclasses.field(default_factory=dict)  # unit: reason
    environment: dict = dataclasses.field(default_factory=dict)
    note: str = ""           # what has not been seen to work yet


def automake(name, where="", build="./configure --disable-silent-rules && make -j2", gnulib="", **more):
    """A package whose tests are those of automake: the variable TESTS of the Makefile in src/@where."""
    place = "src/" + where if where else "src"
    return Suite(name=name, package=more.pop("package", name), tree="c", read=reading.automake(where),
                 build="cd src && export FORCE_UNSAFE_CONFIGURE=1 && %s && make -j2 %s check TESTS=" % (build, "-C " + where if where else ""),
                 units=WORDS_OF + "words %s TESTS | sed 's/ *$//' | sort -u" % place,
                 run="cd %s && make -j2 -k check TESTS=\"$*\" %s" % (place, gnulib), **more)


def gnulib(name, **more):
    return automake(name + "-gnulib", where="gnulib-tests", package=name, tests="gnulib's tests, as %s has them" % name, at_once=60,
                    **more)


SUITES = [
    automake("grep", where="tests", tests="GNU grep's"),
    gnulib("grep"),
    automake("sed", tests="GNU sed's"),
    automake("coreutils", tests="GNU coreutils'", at_once=60),
    automake("findutils", where="tests", tests="GNU findutils'"),
    gnulib("findutils"),
    gnulib("coreutils"),
    Suite(name="bash", tests="bash's", package="bash", tree="c", read=reading.statuses,
          build="cd src && ./configure && make -j2 && make -j2 recho zecho printenv xcase 2>/dev/null; cd tests && (cd .. && make -j2 tests/recho 2>/dev/null); ls ../bash",
          units="cd src/tests && ls run-* | grep -v -E '~$|run-all|run-minimal|run-gprof'",
          # What a test prints is its difference from what it should print.
          run="""cd src/tests && PATH=$PWD/..:$PATH THIS_SH=$PWD/../bash BUILD_DIR=$PWD/.. BASH_TSTOUT=/tmp/bash-tst && export PATH THIS_SH BUILD_DIR BASH_TSTOUT
for unit in "$@"; do
    rm -f $BASH_TSTOUT; TMPDIR=/tmp timeout 120 sh ./$unit >/tmp/said 2>&1; status=$?
    cat /tmp/said
    if [ $status != 0 ] || grep -q '^[<>]' /tmp/said; then status=1; fi
    echo "=== $status $unit"
done""", limits={"file_size": None}),
    Suite(name="gawk", tests="GNU awk's", package="gawk", tree="c", read=reading.statuses,
          build="cd src && ./configure && make -j2 && make -C test -n check >/dev/null",
          units="cd src/test && ls *.ok | sed 's/[.]ok$//' | sort -u",
          run="""cd src/test
for unit in "$@"; do
    rm -f _$unit
    timeout 120 make -s -k $unit; status=$?
    # A test that fails leaves what it printed.
    if [ -e _$unit ]; then status=1; fi
    echo "=== $status $unit"
done""", at_once=120),
    Suite(name="tar", tests="GNU tar's", package="tar", tree="c", read=reading.autotest,
          build="cd src && export FORCE_UNSAFE_CONFIGURE=1 && ./configure && make -j2 && make -C tests testsuite genfile checkseekhole ckmtime ttyemu; ls tests/testsuite",
          units="cd src/tests && ./testsuite --list | sed -n 's/^ *\\([0-9][0-9]*\\):.*/\\1/p'",
          run="cd src/tests && ./testsuite AUTOTEST_PATH=src -j1 \"$@\"", at_once=60),
    Suite(name="git", tests="git's t/", package="git", tree="c", read=reading.files_of_tap("t"),
          build="cd src && make -j2 NO_GETTEXT=1 CFLAGS='-O1 -g0' all && make -C t/helper 2>/dev/null; make -j2 NO_GETTEXT=1 CFLAGS='-O1 -g0' -C . t/helper/test-tool; ls -l git t/helper/test-tool",
          units="cd src/t && ls t[0-9]*.sh",
          run="""cd src/t
one() { timeout 300 sh ./$1 --root=/tmp/git-$1 >$1.tap 2>/dev/null; echo "=== $? $1"; rm -rf /tmp/git-$1; }
for unit in "$@"; do one $unit; done""",
          limits={"tmp_size": "1G"}, at_once=25, seconds=2400, environment={"GIT_TEST_OPTS": "", "DEFAULT_TEST_TARGET": "test"}),
]
