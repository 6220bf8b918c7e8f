/* Real programs below the filters of the default and the strict policy.
 *
 * Finds the profiles in $HUTCH_POLICY_DIR, else in policies/ below the working directory. */
#include "sandbox/fd.h"
#include "tests/unit/place.h"
#include "sandbox/seccomp.h"
#include "runtime/config/seccomp_profile.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <cmocka.h>

static void skip_because(const char *why)
{
    const char *strict = getenv("HUTCH_STRICT_TESTS");

    if (strict && strcmp(strict, "1") == 0)
        fail_msg("%s", why);
    print_message("skip: %s\n", why);
    skip();
}

static void load_profile(const char *name, struct seccomp_rules *ret)
{
    const char *dir = getenv("HUTCH_POLICY_DIR");
    struct hutch_err err;
    char path[512];

    snprintf(path, sizeof(path), "%s/%s", dir && *dir ? dir : "policies", name);
    if (hutch_seccomp_profile_load(path, ret, &err) < 0)
        fail_msg("%s", err.msg);
}

static void compile_profile(const char *name, struct seccomp_program *ret)
{
    struct seccomp_rules rules;
    struct hutch_err err;

    load_profile(name, &rules);
    if (hutch_seccomp_compile(&rules, ret, &err) < 0)
        fail_msg("%s: %s", name, err.msg);
    hutch_seccomp_rules_done(&rules);
}

/* In a child: no_new_privs and the filter. */
static void confine_or_die(const struct seccomp_program *program)
{
    struct hutch_err err;

    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || hutch_seccomp_load(program, &err) < 0)
        _exit(99);
}

/* Runs @argv below the filter with its output on a pipe. The text, or a skip when the program is not there. */
static void expect_program(const char *profile, char *const *argv, const char *want)
{
    auto_free char *got = NULL;
    struct seccomp_program program;
    struct hutch_err err;
    int pipe_fds[2], status;
    size_t len;
    pid_t pid;

    if (access(argv[0], X_OK) < 0) {
        char why[128];

        snprintf(why, sizeof(why), "there is no %s", argv[0]);
        skip_because(why);
    }
    compile_profile(profile, &program);
    assert_int_equal(pipe2(pipe_fds, O_CLOEXEC), 0);
    fflush(NULL);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        char *envp[] = { (char[]){ "PATH=/usr/bin:/bin" }, (char[]){ "HOME=/tmp" }, (char[]){ "LANG=C.UTF-8" }, NULL };

        if (chdir("/tmp") < 0 || dup2(pipe_fds[1], 1) < 0 || dup2(pipe_fds[1], 2) < 0)
            _exit(96);
        confine_or_die(&program);
        execve(argv[0], argv, envp);
        _exit(95);
    }
    close(pipe_fds[1]);
    hutch_seccomp_program_done(&program);
    if (hutch_fd_slurp(pipe_fds[0], 1 << 20, "the program's output", &got, &len, &err) < 0)
        fail_msg("%s", err.msg);
    close(pipe_fds[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (status != 0 || strcmp(got, want) != 0)
        fail_msg("%s below %s: wait status %#x, output:\n%s", argv[0], profile, (unsigned)status, got);
}

static char python_script[] =
    "import asyncio, concurrent.futures, ctypes, fcntl, hashlib, mmap, multiprocessing, os, resource, select, shutil\n"
    "import signal, sqlite3, stat, subprocess, sys, tempfile, termios, threading, time, zipfile\n"
    "def square(x): return x * x\n"
    "def main():\n"
    "    assert subprocess.run(['/bin/echo', 'a'], capture_output=True).stdout == b'a\\n'\n"
    "    assert subprocess.run('exit 3', shell=True, close_fds=False).returncode == 3\n"
    "    assert os.waitstatus_to_exitcode(os.waitpid(os.posix_spawn('/bin/true', ['true'], {}), 0)[1]) == 0\n"
    "    seen = []\n"
    "    ts = [threading.Thread(target=seen.append, args=(i,)) for i in range(8)]\n"
    "    [t.start() for t in ts]; [t.join() for t in ts]; assert sorted(seen) == list(range(8))\n"
    "    with concurrent.futures.ProcessPoolExecutor(2) as p: assert list(p.map(square, range(5))) == [0, 1, 4, 9, "
    "16]\n"
    "    for how in ('fork', 'spawn', 'forkserver'):\n"
    "        c = multiprocessing.get_context(how); q = c.SimpleQueue(); p = c.Process(target=q.put, args=(how,)); "
    "p.start()\n"
    "        assert q.get() == how; p.join(); assert p.exitcode == 0\n"
    "    from multiprocessing import shared_memory\n"
    "    s = shared_memory.SharedMemory(create=True, size=4096); s.buf[0] = 7; s.close(); s.unlink()\n"
    "    async def echo():\n"
    "        p = await asyncio.create_subprocess_exec('/bin/cat', stdin=-1, stdout=-1)\n"
    "        return (await p.communicate(b'x'))[0]\n"
    "    assert asyncio.run(echo()) == b'x'\n"
    "    d = tempfile.mkdtemp()\n"
    "    f = os.path.join(d, 'f')\n"
    "    with open(f, 'w') as o: o.write('data'); o.flush(); os.fsync(o.fileno()); fcntl.lockf(o, fcntl.LOCK_EX)\n"
    "    os.chmod(f, 0o640); shutil.copy2(f, f + '2'); os.replace(f + '2', f); os.utime(f); os.truncate(f, 2)\n"
    "    os.symlink('f', f + 'l'); os.link(f, f + 'h'); assert sorted(os.listdir(d)) == ['f', 'fh', 'fl']\n"
    "    for bits in (0o4755, 0o2755):\n"
    "        try: os.chmod(f, bits)\n"
    "        except PermissionError: pass\n"
    "        else: raise SystemExit('chmod got through')\n"
    "    c = sqlite3.connect(os.path.join(d, 'db')); c.execute('pragma journal_mode=wal'); c.execute('create table "
    "t(x)')\n"
    "    c.execute('insert into t values (1)'); c.commit(); c.close()\n"
    "    with zipfile.ZipFile(os.path.join(d, 'z.zip'), 'w') as z: z.write(f, 'f')\n"
    "    shutil.copytree(d, d + 'copy', symlinks=True); shutil.rmtree(d); shutil.rmtree(d + 'copy')\n"
    "    m = mmap.mmap(-1, 8192); m[0] = 1; m.close()\n"
    "    assert ctypes.CFUNCTYPE(ctypes.c_int)(lambda: 5)() == 5\n"
    "    got = []; signal.signal(signal.SIGALRM, lambda *a: got.append(1)); signal.setitimer(signal.ITIMER_REAL, "
    "0.01)\n"
    "    signal.pause(); assert got == [1]\n"
    "    resource.setrlimit(resource.RLIMIT_CORE, (0, 0)); os.nice(1); os.getloadavg(); os.sched_getaffinity(0); "
    "os.getrandom(8)\n"
    "    assert not os.isatty(1)\n"
    "    hashlib.sha256(b'x').hexdigest(); time.sleep(0.001)\n"
    "    e = select.epoll(); e.close(); r, w = os.pipe(); os.set_blocking(r, False); os.close(r); os.close(w)\n"
    "    print('fine')\n"
    "if __name__ == '__main__': main()\n";

/* multiprocessing's spawn reads the main module again, so the script has to be a file. */
static void run_python(const struct place *p, const char *profile, const char *script)
{
    char path[128];
    char *argv[] = { (char[]){ "/usr/bin/python3" }, path, NULL };

    put(p->data, "script.py", script);
    snprintf(path, sizeof(path), "%s/data/script.py", p->path);
    expect_program(profile, argv, "fine\n");
}

static void test_python_below_default(void **state)
{
    run_python(*state, "seccomp-default.json", python_script);
}

static void test_python_below_strict(void **state)
{
    run_python(*state, "seccomp-strict.json", python_script);
}

static void test_python_network_below_default(void **state)
{
    run_python(*state, "seccomp-default.json",
               "import socket, threading\n"
               "assert socket.if_nameindex()\n"
               "assert socket.getaddrinfo('127.0.0.1', 80)\n"
               "s = socket.create_server(('127.0.0.1', 0)); a = s.getsockname()\n"
               "t = threading.Thread(target=lambda: s.accept()[0].sendall(b'hi')); t.start()\n"
               "assert socket.create_connection(a).recv(2) == b'hi'; t.join()\n"
               "u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.bind(('127.0.0.1', 0))\n"
               "a, b = socket.socketpair(); a.send(b'x'); assert b.recv(1) == b'x'\n"
               "print('fine')\n");
}

static void test_bash_below_both(void **state)
{
    char script[] =
        "set -e; d=$(mktemp -d); cd \"$d\"; echo a b | tr ' ' '\\n' | sort -r > f; cp f g; mv g h; ln -s h l; "
        "chmod 755 f; cat <(echo sub) > s; ls -la > /dev/null; tar cf t.tar f h l; mkdir x; "
        "tar xf t.tar --no-same-owner -C x; "
        "cmp f x/f; (sleep 0 & wait); trap 'echo trapped' USR1; kill -USR1 $$; cd /; rm -r \"$d\"; echo fine";
    char *argv[] = { (char[]){ "/bin/bash" }, (char[]){ "-c" }, script, NULL };

    (void)state;
    expect_program("seccomp-default.json", argv, "trapped\nfine\n");
    expect_program("seccomp-strict.json", argv, "trapped\nfine\n");
}

static void test_perl_below_both(void **state)
{
    char script[] = "use POSIX; my $p = fork; if (!$p) { exit 3 } waitpid $p, 0; die unless $? >> 8 == 3; "
                    "die unless `echo a` eq qq(a\\n); pipe my $r, my $w; print qq(fine\\n);";
    char *argv[] = { (char[]){ "/usr/bin/perl" }, (char[]){ "-e" }, script, NULL };

    (void)state;
    expect_program("seccomp-default.json", argv, "fine\n");
    expect_program("seccomp-strict.json", argv, "fine\n");
}

static char node_script[] =
    "const cp = require('child_process'), fs = require('fs'), os = require('os');"
    "const { Worker } = require('worker_threads');"
    "if (cp.execFileSync('/bin/echo', ['a']).toString() !== 'a\\n') throw 1;"
    "fs.readdirSync('/tmp'); os.cpus(); os.totalmem();"
    "fs.promises.readFile('/proc/self/stat').then(() => new Worker('1+1', { eval: true }).on('exit', "
    "() => console.log('fine')));";

static void test_node_below_both(void **state)
{
    char *argv[] = { (char[]){ "/usr/bin/node" }, (char[]){ "-e" }, node_script, NULL };

    (void)state;
    expect_program("seccomp-default.json", argv, "fine\n");
    expect_program("seccomp-strict.json", argv, "fine\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_python_below_default, place_set_up, place_tear_down),
        cmocka_unit_test_setup_teardown(test_python_below_strict, place_set_up, place_tear_down),
        cmocka_unit_test_setup_teardown(test_python_network_below_default, place_set_up, place_tear_down),
        cmocka_unit_test(test_bash_below_both),
        cmocka_unit_test(test_perl_below_both),
        cmocka_unit_test(test_node_below_both),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
