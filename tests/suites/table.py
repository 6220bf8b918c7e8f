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
               "python3-setuptools openssl file tzdata-legacy").split()
SESSION_TREE = "python3 libpython3.13-testsuite python3-ipykernel gcc libc6-dev python3-dev netbase tzdata procps locales locales-all openssl file".split()
NODE_TREE = "nodejs python3 procps openssl netbase ca-certificates tzdata".split()
GO_TREE = "golang-1.24-go golang-1.24-src gcc libc6-dev netbase tzdata procps git ca-certificates".split()
TREES = {"c": C_TREE, "python": PYTHON_TREE, "session": SESSION_TREE, "node": NODE_TREE, "go": GO_TREE}

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
    way: str = "cold"        # see places.Side; `run` of the others is Python, with the units in UNITS
    # A long suite names here, by a regular expression, its units that touch the kernel. Only these run by default.
    main: str = ""
    seen: str = ""           # how far it has been seen to run: a number of tests, or a part; empty where it has not


def automake(name, where="", build="./configure --disable-silent-rules && make -j2", gnulib="", **more):
    """A package whose tests are those of automake: the variable TESTS of the Makefile in src/@where. Those of its
    subfolders are others."""
    place = "src/" + where if where else "src"
    return Suite(name=name, package=more.pop("package", name), tree="c", read=reading.automake(where),
                 build="cd src && export FORCE_UNSAFE_CONFIGURE=1 && %s && make -j2 %s check SUBDIRS=. TESTS=" % (
                     build, "-C " + where if where else ""),
                 units=WORDS_OF + "words %s TESTS | sed 's/ *$//' | sort -u" % place,
                 run="cd %s && make -j2 -k check SUBDIRS=. TESTS=\"$*\" %s" % (place, gnulib), **more)


def gnulib(name, **more):
    return automake(name + "-gnulib", where="gnulib-tests", package=name, tests="gnulib's tests, as %s has them" % name, at_once=60,
                    **more)


def installed(name, package, **more):
    """A package of Debian's Python that has its tests with it: pytest, a file at a time."""
    return Suite(name=name, tests="%s's, as the package %s has them, by pytest" % (name, package), package="", tree="python", read=reading.junit,
                 build="mkdir -p out",
                 units="cd /usr/lib/python3/dist-packages && find %s -name 'test_*.py' | sort" % name,
                 run="""cd /tmp
for unit in "$@"; do
    xml=/mnt/data/out/$(echo $unit | tr / _).xml; rm -f $xml
    timeout 600 python3 -m pytest -q -p no:cacheprovider --rootdir=/tmp --junit-xml=$xml --durations=0 --durations-min=60 \\
        /usr/lib/python3/dist-packages/$unit >/tmp/said 2>&1; status=$?
    tail -n 3 /tmp/said; [ $status != 5 ] || status=77; echo "=== $status $unit"
done""", at_once=25, seconds=3000, **more)


# 4 is "no tests ran": all of the module was skipped.
REGRTEST = """mkdir -p out; cd /tmp
for unit in "$@"; do
    rm -f /mnt/data/out/$unit.xml
    timeout 240 python3 -m test -u none --junit-xml /mnt/data/out/$unit.xml $unit >/tmp/said 2>&1; status=$?
    grep -E '^(ERROR|FAIL|OSError|PermissionError|[a-zA-Z.]*Error):' /tmp/said | head -n 40
    [ $status != 4 ] || status=77; echo "=== $status $unit"
done"""
# The same in forks of one interpreter: where a cell of a session runs, that is a warm one.
FORKED = """
import os, runpy, signal, sys, time, traceback


def child(unit):
    os.setsid()
    said = os.open("/tmp/said", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for fd in (1, 2):
        os.dup2(said, fd)
    os.chdir("/tmp")
    sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
    sys.argv = ["test", "-u", "none", "--junit-xml", "/mnt/data/out/%s.xml" % unit, unit]
    status = 0
    try:
        runpy.run_module("test", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        status = 255
    finally:
        os._exit(status)


os.makedirs("/mnt/data/out", exist_ok=True)
for unit in UNITS:
    pid = os.fork()
    if not pid:
        child(unit)
    signal.signal(signal.SIGALRM, lambda *_: os.killpg(pid, signal.SIGKILL))
    signal.alarm(240)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    signal.alarm(0)
    print("===", {4: 77}.get(status, status if status >= 0 else 128 - status), unit, flush=True)
"""
# What a warm interpreter, a fork or its files could have changed; the others are run cold.
FORKED_UNITS = ("python3 -m test --list-tests | grep -E '^(test_(array|ast|asyncgen|atexit|bytes|builtin|capi|class|codecs|contextlib|coroutines|csv|ctypes|"
                "datetime|decimal|dict|email|enum|eintr|exceptions|faulthandler|fcntl|fileio|float|fork1|functools|gc|generators|glob|hashlib|heapq|importlib|"
                "inspect|io|itertools|json|locale|logging|marshal|memoryview|mmap|os|pathlib|pickle|pipes|posix|pty|queue|random|re|resource|select|"
                "selectors|shutil|signal|socket|sqlite3|ssl|stat|struct|subprocess|sys|sysconfig|tarfile|tempfile|termios|thread|threading|time|traceback|"
                "types|unittest|uuid|venv|warnings|weakref|xml_etree|zipfile|zlib)|test[.]test_(asyncio|concurrent_futures)[.].*)$'")
CPYTHON_LIMITS = {"pids": 512, "tmp_size": "2G", "file_size": None}
CPYTHON_LEFT_OUT = {name: "it takes several minutes, and test_multiprocessing_fork has the same tests" for name in (
    *("test.test_multiprocessing_%s.test_%s" % (way, part) for way in ("spawn", "forkserver")
      for part in ("manager", "misc", "processes", "threads")),)}
# The field `main` of the long suites: units about files, processes, signals, memory, terminals, networks, threads, time and users.
def one_of(words):
    """A regular expression that matches any of these words."""
    return "(%s)" % "|".join(words.split())


# The rest is the language itself, and what takes minutes for little of that: test_capi, test_importlib, test_regrtest and test_venv.
CPYTHON_MAIN = r"^(test_%s|test[.]test_(asyncio|concurrent_futures|multiprocessing_\w+|pathlib)[.].*)$" % one_of("""
    atexit audit builtin bz2 c_locale_coercion cmd_line cmd_line_script code_module compileall ctypes curses dbm
    dbm_dumb dbm_gnu dbm_ndbm dbm_sqlite3 devpoll eintr ensurepip epoll external_inspection faulthandler fcntl
    file file_eintr filecmp fileinput fileio fileutils fork1 ftplib genericpath getpass glob grp gzip httplib
    httpservers imaplib io ioctl largefile linecache locale logging lzma mailbox mmap
    multiprocessing_main_handling netrc openpty os perf_profiler perfmaps platform poll popen poplib posix
    posixpath pty pwd py_compile pyrepl queue random readline repl resource runpy sched script_helper select
    selectors shelve shutil signal site smtplib socket socketserver sqlite3 ssl stat subprocess support sys
    sysconfig syslog tarfile tempfile termios thread threadedtempfile threading threading_local threadsignals
    time timeit timeout tracemalloc tty unicode_file unicode_file_functions urllib2_localnet urllibnet utf8_mode
    uuid wait3 wait4 webbrowser wsgiref xmlrpc zipapp zipfile zipfile64 zipimport""")
# In forks: what a warm interpreter, its descriptors, signals, threads, terminal and limits could change.
FORKED_MAIN = "^(test_%s|test[.]test_asyncio[.].*)$" % one_of("""
    atexit builtin eintr faulthandler fcntl fileio fork1 gc glob hashlib importlib io locale logging mmap os
    posix pty queue random resource select selectors shutil signal socket sqlite3 ssl stat struct subprocess sys
    sysconfig tarfile tempfile termios thread threading time traceback uuid warnings weakref zipfile zlib""")
# What these four have besides is arithmetic and drawing.
NUMPY_MAIN = "^numpy/(f2py/tests|testing|tests|%s[.]py$)" % one_of("""
    _core/tests/test_(array_interface|cpu_dispatcher|cpu_features|cython|limited_api|longdouble|mem_overlap|mem_policy)
    _core/tests/test_(memmap|multiarray|multithreading|print|records|regression)
    lib/tests/test_(_datasource|format|io|loadtxt|regression|utils) linalg/tests/test_linalg
    random/tests/test_(direct|extending|generator_mt19937|random|seed_sequence|smoke)""")
SKLEARN_MAIN = "^sklearn/(datasets|%s[.]py$)" % one_of("""
    cluster/tests/test_(birch|dbscan|feature_agglomeration|hdbscan|hierarchical|k_means|mean_shift|optics)
    decomposition/tests/test_(dict_learning|online_lda) ensemble/tests/test_(bagging|base|forest|iforest|voting)
    feature_extraction/tests/test_(feature_hasher|text) inspection/tests/test_permutation_importance
    linear_model/tests/test_(coordinate_descent|least_angle|logistic) manifold/tests/test_mds metrics/tests/test_pairwise
    model_selection/tests/test_(search|validation) neighbors/tests/test_neighbors
    (?:tests)/test_(build|check_build|config|init|min_dependencies_readme|multioutput|pipeline)
    utils/tests/test_(parallel|pprint|show_versions|testing|utils|validation)""")
MATPLOTLIB_MAIN = "^matplotlib/tests/test_%s[.]py$" % one_of("""
    agg animation backend_.* backends_interactive basic cbook compare_images determinism doc dviread figure
    font_manager ft2font getattr image matplotlib pickle png preprocess_data pyplot rcparams sphinxext style
    testing texmanager textpath type1font usetex""")
PANDAS_MAIN = "^pandas/tests/(io|computation|config|%s[.]py$)" % one_of("""
    test_downstream test_expressions test_optional_dependency util/test_show_versions
    plotting/test_(backend|common|converter|misc) (frame|series)/methods/test_to_csv""")
TWISTED_MAIN = "^twisted[.](internet[.].*|%s)$" % one_of("""
    application[.]runner[.].* conch[.]test[.]test_(agent|cftp|conch|session|unix) mail[.]test[.]test_mail
    names[.]test[.]test_(client|hosts) pair[.].* python[.]test[.]test_(fakepwd|inotify|runtime|sendmsg|syslog|systemd|zip.*)
    runner[.].* scripts[.].* trial[.]_dist[.].* trial[.]test[.]test_(runner|script|util)
    test[.]test_(application|dirdbm|fdesc|finger|ftp|ident|internet|iutils|lockfile|log|logfile|loopback|main|modules)
    test[.]test_(plugin|process|randbytes|rebuild|roots|sob|socks|ssl|sslverify|stdio|strerror|strports|tcp|tcp_internals)
    test[.]test_(threadable|threadpool|threads|twistd|twisted|udp|unix) web[.]test[.]test_(cgi|distrib|static|tap|webclient|wsgi)""")
NODE_MAIN = "^(parallel|sequential)/test-%s[-.]" % one_of("""
    child-process cluster cpu cwd debugger dgram directory dns dotenv env file filehandle fs handle heapdump
    https? inspector kill listen memory net os perf permission pipe priority process readline release resource
    setproctitle sigint signal single socket spawn stdin stdio stdout strace tcp tls tty ttywrap tz uv watch
    worker""")
GO_MAIN = "^%s(/|$)" % one_of("""
    archive crypto/(rand|tls|x509) debug embed go/build
    internal/(filepathlite|godebug|poll|runtime|synctest|sysinfo|syscall|testenv|testpty|trace) io log mime net os path plugin
    runtime sync syscall testing time""")
GO = "export GOCACHE=/mnt/data/gocache GOTMPDIR=/mnt/data/tmp GOFLAGS= GOTOOLCHAIN=local PATH=/usr/lib/go-1.24/bin:$PATH; cd /usr/lib/go-1.24/src"

GIT_MAIN = "^t(00[01345679]|0021|03|06|13|55[3-7]|57|65|7005|7006|7063|7516|7519|7527|79)"
PERL_MAIN = (
    "^(t/io/|t/op/(alarm|chdir|dbm|die_exit|dump|exec|fh|filehandle|filetest|fork|getpid|"
    "getppid|glob|grent|groups|kill0|lfs|magic|mkdir|print|pwent|"
    "read|require_errors|runlevel|select|setpgrpstack|sig|sleep|sselect|stat|sysio|taint|threads|time|umask|unlink|"
    "waitpid)|"
    "lib/(AnyDBM_File|DirHandle|File|filetest|Net/|SelectSaver|sigtrap|Thread|Time/|User/)|"
    "ext/(POSIX|DynaLoader|Errno|Fcntl|File|GDBM|I18N-Langinfo|IPC-Open3|NDBM|ODBM|SDBM|Sys-Hostname)|"
    "cpan/(Archive-Tar|DB_File|File-|HTTP-Tiny|IO-Socket-IP|IPC-|libnet|Socket|Sys-Syslog|Time-|autodie)|"
    "dist/(IO|Net-Ping|PathTools|Storable|Thread|threads|Tie-File|Time-HiRes))")
RUBY_MAIN = (
    "^((etc|fileutils|io|logger|open3|pathname|socket|tempfile|tmpdir)/|"
    "test_(open3|pty|syslog|tempfile|timeout|tmpdir)|"
    "ruby/test_(argf|beginendblock|dir|env|fiber|file|io|pipe|process|readpartial|signal|sleep|system|thread|time))")
SQLITE_MAIN = (
    "^(atomic|attach|avfs|backup|big(file|mmap|row)|busy|cachespill|chunksize|close|crashM|delete_db|diskfull|"
    "exclusive|external_reader|fallocate|filectrl|io|journal|jrnlmode|loadext|lock|manydb|memdb|mjournal|mmap|"
    "multiplex|nockpt|nolock|notify|openv2|oserror|pager|pendingrace|quota|rdonly|readonly|recover|rollback|shared|"
    "shell|shmlock|shortread|snapshot|superlock|symlink|sync|syscall|"
    "temp(db|table)|unixexcl|uri|wal|writecrash|zipfile)")

SUITES = [
    automake("grep", where="tests", tests="GNU grep's", seen="all 127 tests"),
    gnulib("grep", seen="all 226 tests"),
    automake("sed", tests="GNU sed's", seen="all 68 tests"),
    automake("coreutils", tests="GNU coreutils'", at_once=60, limits={"file_size": None}, seen="all 658 tests"),
    automake("findutils", tests="GNU findutils'", seen="all 23 tests of automake"),
    gnulib("findutils", seen="all 362 tests"),
    gnulib("coreutils", seen="all 527 tests"),
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
done""", limits={"file_size": None}, seen="all 83 tests"),
    Suite(name="gawk", tests="GNU awk's", package="gawk", tree="c", read=reading.statuses,
          # Debian's archive has the source without the manual.
          build="cd src && ./configure && { make -j2 -k; test -x gawk && test -e extension/.libs/time.so; }",
          units="cd src/test && ls *.ok | sed 's/[.]ok$//' | sort -u",
          run="""cd src/test
for unit in "$@"; do
    rm -f _$unit
    timeout 120 make -s -k $unit; status=$?
    # A test that fails leaves what it printed.
    if [ -e _$unit ]; then status=1; fi
    echo "=== $status $unit"
done""", at_once=120, seen="all 620 tests"),
    Suite(name="tar", tests="GNU tar's", package="tar", tree="c", read=reading.autotest,
          build="cd src && export FORCE_UNSAFE_CONFIGURE=1 && ./configure && make -j2 && make -C tests testsuite genfile checkseekhole ckmtime ttyemu; ls tests/testsuite",
          units="cd src/tests && ./testsuite --list | sed -n 's/^ *\\([0-9][0-9]*\\):.*/\\1/p'",
          run="cd src/tests && ./testsuite AUTOTEST_PATH=src -j1 \"$@\"", limits={"file_size": None}, at_once=60,
          seen="all 244 tests"),
    Suite(name="git", tests="git's t/", package="git", tree="c", read=reading.files_of_tap("src/t"),
          build="cd src && make -j2 NO_GETTEXT=1 CFLAGS='-O1 -g0' all && make -C t/helper 2>/dev/null; make -j2 NO_GETTEXT=1 CFLAGS='-O1 -g0' -C . t/helper/test-tool; ls -l git t/helper/test-tool",
          units="cd src/t && ls t[0-9]*.sh",
          run="""cd src/t
one() { timeout 300 sh ./$1 --root=/tmp/git-$1 >$1.tap 2>/dev/null; echo "=== $? $1"; rm -rf /tmp/git-$1; }
for unit in "$@"; do one $unit; done""",
          limits={"pids": 256, "tmp_size": "1G"}, at_once=25, seconds=2400,
          environment={"GIT_TEST_OPTS": "", "DEFAULT_TEST_TARGET": "test"}, main=GIT_MAIN,
          seen="139 of 1,007 files, with the 122 that run by default: 4,644 tests"),
    Suite(name="perl", tests="perl's t/, lib/, ext/, dist/ and cpan/", package="perl", tree="c",
          read=reading.files_of_tap("tap", perl=True),
          build="mkdir tap; cd src && ./Configure -des -Dman1dir=none -Dman3dir=none -Doptimize=-O1 && make -j2 && make -j2 test_prep",
          units="cd src && sed -n -E 's/[[:space:]].*//; /^(t|lib|ext|dist|cpan)\\/.*[.]t$/p' MANIFEST | grep -v -E '^t/(bigmem|benchmark|porting|japh)/'",
          run="""cd src/t
for unit in "$@"; do
    file=../$unit; file=${file#../t/}
    timeout 200 ./perl harness -v $file >/mnt/data/tap/$(echo $unit | tr / _).tap 2>/dev/null; echo "=== $? $unit"
done""", limits={"pids": 128, "tmp_size": "512M", "file_size": None}, at_once=50, seconds=2400, main=PERL_MAIN,
          left_out={"lib/perl5db.t": "it skips all of its tests without /dev/tty, which is not there inside"},
          seen="the 575 of 2,893 files that run by default"),
    Suite(name="cpython", tests="CPython's, each module in a process of its own", package="", tree="python", read=reading.junit,
          build="python3 -c 'import test.libregrtest'", units="python3 -m test --list-tests", run=REGRTEST, limits=CPYTHON_LIMITS,
          at_once=20, seconds=3600, left_out=CPYTHON_LEFT_OUT, main=CPYTHON_MAIN,
          seen="160 modules, all that touch the kernel: 13,136 tests"),
    *(Suite(name="cpython-" + way, tests="CPython's, each module in a fork of %s" % whose, package="", tree="session", read=reading.junit,
            build="python3 -c 'import test.libregrtest'", units=FORKED_UNITS, run=FORKED, limits=CPYTHON_LIMITS, at_once=20, seconds=3600,
            left_out=CPYTHON_LEFT_OUT, way=way, main=FORKED_MAIN, seen=seen)
      for way, whose, seen in (("session", "a warm session's interpreter", "76 modules, all that touch the kernel: 10,956 tests"),
                               ("server", "the interpreter of a session of `hutch serve`", "53 of 76 modules that touch the kernel: 6,769 tests"))),
    installed("psutil", "python3-psutil", limits={"pids": 256}, seen="all 703 tests"),
    Suite(name="twisted", tests="Twisted's, by its own trial", package="", tree="python", read=reading.trial, build="mkdir out",
          units="cd /usr/lib/python3/dist-packages && find twisted -path '*/test/test_*.py' | sed 's/[.]py$//; s,/,.,g' | sort",
          run="""for unit in "$@"; do
    timeout 300 python3 -m twisted.trial --reporter=verbose --temp-directory=/tmp/trial-$unit $unit >/mnt/data/out/$unit.txt 2>&1
    echo "=== $? $unit"; rm -rf /tmp/trial-$unit
done""", limits={"pids": 256, "tmp_size": "512M"}, at_once=40, main=TWISTED_MAIN,
          seen="123 modules that touch the kernel: 4,773 tests"),
    installed("numpy", "python3-numpy", limits={"pids": 256, "file_size": None, "tmp_size": "8G", "memory": "8G"},
              main=NUMPY_MAIN, seen="26 of 70 files that touch the kernel: 1,614 tests"),
    installed("sklearn", "python3-sklearn", limits={"pids": 256, "tmp_size": "512M"}, main=SKLEARN_MAIN,
              seen="25 of 52 files that touch the kernel: 1,240 tests"),
    installed("matplotlib", "python3-matplotlib", limits={"pids": 256, "tmp_size": "512M"}, main=MATPLOTLIB_MAIN,
              seen="22 of 43 files that touch the kernel: 1,008 tests"),
    installed("pandas", "python3-pandas", limits={"pids": 256, "tmp_size": "512M"}, main=PANDAS_MAIN,
              seen="27 of 132 files that touch the kernel: 4,367 tests"),
    Suite(name="node", tests="node's test/parallel and test/sequential, each file by Debian's node", package="nodejs", tree="node",
          read=reading.statuses, build="node --version && ls src/test/parallel >/dev/null",
          units="cd src/test && ls parallel/test-*.js parallel/test-*.mjs sequential/test-*.js sequential/test-*.mjs",
          run="""cd src; export NODE_TEST_DIR=/tmp NODE_SKIP_FLAG_CHECK=1
for unit in "$@"; do
    flags=$(sed -n 's,^// Flags: ,,p' test/$unit | tr '\\n' ' ')
    timeout 60 node $flags test/$unit >/tmp/said 2>&1; status=$?
    if [ $status = 0 ] && grep -q '^1[.][.]0 # [Ss]kip' /tmp/said; then status=77; fi
    [ $status = 0 ] || tail -n 12 /tmp/said
    rm -rf /tmp/.tmp.*; echo "=== $status $unit"
done""", limits={"pids": 1024, "tmp_size": "4G", "memory": "8G", "file_size": None}, at_once=50, seconds=3000,
          main=NODE_MAIN,
          seen="1,844 files, all that touch the kernel"),
    Suite(name="go", tests="the packages of Go's standard library with -short, as golang-1.24-src has them", package="", tree="go", read=reading.go,
          # What the packages below cmd/ test is the compiler; it takes hours.
          build="mkdir tmp && " + GO + " && go list std >/dev/null && { go test -short -vet=off -run='^$' std >/dev/null || true; }",
          units=GO + " && go list std | grep -v -E 'vendor/'",
          run=GO + " && go test -json -short -vet=off -count=1 -p=1 -timeout=300s \"$@\" 2>&1",
          limits={"pids": 1024, "open_files": 4096, "tmp_size": "1G", "memory": "8G", "file_size": None}, at_once=30, seconds=3000,
          main=GO_MAIN,
          seen="108 packages, all that touch the kernel: 8,554 tests"),
    Suite(name="sqlite", tests="SQLite's, each file of test/ by testfixture", package="sqlite3", tree="c", read=reading.statuses,
          build="cd src && ./configure --with-tcl=/usr/lib/tcl8.6 && make -j2 testfixture sqlite3 CFLAGS=-O1",
          units="cd src/test && ls *.test | grep -v -E '^(all|async2?|crash[0-9]*|full|fuzz.*|misuse|mutex.*|quick|veryquick|extraquick|soak|memsubsys.*|"
                "permutations|savepoint6|speed.*|.*fault.*|malloc.*|.*malloc|.*oom.*|thread.*|"
                "walcrash3|walslow|walthread|vacuum.*|.*_ioerr|sort4|corrupt.*|selectG|tt3_.*)[.]test$'",
          run="""mkdir -p /tmp/sqlite; cd /tmp/sqlite
for unit in "$@"; do
    timeout 120 /mnt/data/src/testfixture /mnt/data/src/test/$unit >/tmp/said 2>&1; status=$?
    [ $status = 0 ] || grep -E '^!|expected|Got' /tmp/said | tail -n 6
    rm -rf /tmp/sqlite/*; echo "=== $status $unit"
done""", limits={"tmp_size": "1G", "file_size": None}, at_once=200, seconds=3000, main=SQLITE_MAIN,
          seen="the 161 of 997 files that run by default"),
    Suite(name="curl", tests="curl's tests/data; by default every fifth, as all speak with a server in the same way",
          package="curl", tree="c", read=reading.curl,
          build="cd src && ./configure --with-openssl --without-libpsl --disable-shared --disable-manual && make -j2 && make -j2 -C tests all || make -j2 -C tests",
          units="cd src/tests/data && ls test* | sed -n 's/^test\\([0-9][0-9]*\\)$/\\1/p' | sort -n",
          run="cd src/tests && timeout 2400 perl runtests.pl -a -n -k !flaky !timing-dependent \"$@\" 2>&1",
          limits={"pids": 256, "open_files": 4096}, at_once=200, seconds=2600, main="[05]$",
          seen="all 1,839 tests, of which 1,615 are run and the others skipped on both sides"),
    Suite(name="ruby", tests="Ruby's test/ruby and those of its libraries", package="ruby3.3", tree="c", read=reading.ruby,
          build="mkdir out; cd src && ./configure --disable-install-doc --disable-yjit optflags=-O1 && make -j2",
          units="cd src/test && find ruby socket io fileutils open3 logger pathname tempfile tmpdir etc -name 'test_*.rb' 2>/dev/null | sort; ls test_*.rb",
          run="""cd src
for unit in "$@"; do
    timeout 300 ./miniruby -I./lib -I. -I.ext/common ./tool/runruby.rb --extout=.ext -- --disable-gems \\
        ./test/runner.rb --ruby=./ruby -v --show-skip --seed=1 test/$unit \\
        >/mnt/data/out/$(echo $unit | tr / _).txt 2>&1; echo "=== $? $unit"
done""", limits={"pids": 256, "tmp_size": "1G"}, at_once=30, seconds=3600, main=RUBY_MAIN,
          seen="the 56 of 212 files that run by default"),
]
