#include "soak.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SETTLE_S  60
#define INNOCENTS 4 /* for each hostile run, before and after it */

#define BIT(verdict) (1u << (verdict))
#define EXITED       (BIT(HUTCH_OK) | BIT(HUTCH_ERROR))
#define ANY_END                                                                                                        \
    (EXITED | BIT(HUTCH_TIMEOUT) | BIT(HUTCH_CPU_TIME) | BIT(HUTCH_OUTPUT_LIMIT) | BIT(HUTCH_OUT_OF_MEMORY) |          \
     BIT(HUTCH_KILLED))

/* Descriptor 3 is what a worker has of hutch: its job came there, and a record of an exception goes back. */
static const struct {
    const char *what, *code;
    unsigned verdicts; /* those that it may end with */
} attacks[] = {
    { "garbage on 3", "import os\nfor _ in range(64): os.write(3, os.urandom(4096))\n", EXITED },
    { "too much on 3",
      "import os\nb = b'A' * 65536\ntry:\n  for _ in range(4096): os.write(3, b)\nexcept OSError: pass\n",
      EXITED | BIT(HUTCH_TIMEOUT) },
    { "a byte at a time on 3",
      "import os\ntry:\n  for i in range(20000): os.write(3, bytes([i % 256]))\nexcept OSError: pass\n", EXITED },
    { "a long length on 3", "import os\nos.write(3, b'\\xff' * 64)\nos.write(3, b'\\x7f\\xff\\xff\\xff' * 64)\n",
      EXITED },
    { "closed 3", "import os\nos.close(3)\nprint('closed')\nraise ValueError('unheard')\n", EXITED },
    { "closed all", "import os\nos.closerange(0, 1024)\n", EXITED },
    { "closed all, and lives on", "import os, time\nos.closerange(0, 1024)\ntime.sleep(30)\n", BIT(HUTCH_TIMEOUT) },
    { "shut 3 down", "import socket\ns = socket.socket(fileno=3)\ns.shutdown(2)\nprint('shut')\n", EXITED },
    { "reads 3", "import os\nos.set_blocking(3, False)\ntry: print(os.read(3, 65536))\nexcept OSError: pass\n",
      EXITED },
    { "waits for 3", "import os\nprint(os.read(3, 65536))\n", EXITED | BIT(HUTCH_TIMEOUT) },
    { "descriptors on 3",
      "import array, os, socket\ns = socket.socket(fileno=3)\nfds = array.array('i', [os.open('/dev/null', "
      "os.O_RDONLY) for _ in range(200)])\n"
      "try:\n  for _ in range(100): s.sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])\nexcept OSError: "
      "pass\n",
      EXITED },
    { "an end without exit", "import os\nos._exit(7)\n", BIT(HUTCH_ERROR) },
    { "forks and dies", "import os\nfor _ in range(20):\n  if os.fork() == 0: os.setsid()\nos._exit(0)\n", ANY_END },
    { "children that keep everything open",
      "import os, time\nfor _ in range(5):\n  if os.fork() == 0:\n    os.setsid(); time.sleep(60); os._exit(0)\n"
      "print('left')\n",
      EXITED },
    { "stops itself", "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)\n", BIT(HUTCH_TIMEOUT) },
    { "stops all", "import os, signal\nos.kill(-1, signal.SIGSTOP)\nos.kill(os.getpid(), signal.SIGSTOP)\n",
      BIT(HUTCH_TIMEOUT) },
    { "kills all", "import os, signal\nos.kill(-1, signal.SIGKILL)\nos.kill(os.getpid(), signal.SIGKILL)\n", ANY_END },
    { "kills init", "import os, signal\nfor s in range(1, 65):\n  try: os.kill(1, s)\n  except OSError: pass\n",
      ANY_END },
    { "dies of a signal", "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n", BIT(HUTCH_ERROR) },
    { "another program",
      "import os\nos.execv('/bin/sh', ['sh', '-c', 'echo junk >&3; exec 3>&-; sleep 0.05; exit 5'])\n",
      BIT(HUTCH_ERROR) },
    { "endless output", "import os\nwhile True: os.write(1, b'y' * 65536)\n",
      BIT(HUTCH_OUTPUT_LIMIT) | BIT(HUTCH_OK) | BIT(HUTCH_TIMEOUT) | BIT(HUTCH_CPU_TIME) },
    { "endless output on all",
      "import os\nwhile True:\n  for fd in (1, 2, 3):\n    try: os.write(fd, b'z' * 4096)\n    except OSError: pass\n",
      BIT(HUTCH_OUTPUT_LIMIT) | BIT(HUTCH_TIMEOUT) | BIT(HUTCH_CPU_TIME) },
    { "an odd exception",
      "class E(Exception):\n  def __str__(self): raise RuntimeError('no')\nraise E('x' * 10_000_000)\n",
      BIT(HUTCH_ERROR) },
    { "a huge exception", "raise ValueError('x' * 10_000_000)\n", BIT(HUTCH_ERROR) | BIT(HUTCH_OUTPUT_LIMIT) },
    { "deep recursion", "import sys\nsys.setrecursionlimit(10**9)\ndef f(): f()\nf()\n", ANY_END },
    { "many threads that go on",
      "import threading, time\nfor _ in range(8): threading.Thread(target=time.sleep, args=(60,), "
      "daemon=True).start()\nprint(1)\n",
      EXITED },
    { "waits for ever",
      "import signal\nfor s in (1, 2, 3, 15): signal.signal(s, signal.SIG_IGN)\nwhile True: signal.pause()\n",
      BIT(HUTCH_TIMEOUT) },
};
#define N_ATTACKS (sizeof(attacks) / sizeof(*attacks))

struct attack_run {
    unsigned index, results;
};

static void on_result(void *user, uint64_t id, const struct hutch_result *result)
{
    struct attack_run *run = user;

    (void)id;
    run->results++;
    if (!(attacks[run->index].verdicts & BIT(result->verdict)))
        complain("'%s' ended as %s, exit code %d, signal %d: %s %.300s", attacks[run->index].what,
                 hutch_verdict_text(result->verdict), result->exit_code, result->signal, result->message, result->err);
}

static void attack(struct load *load, struct attack_run *run)
{
    struct hutch_request request;
    struct hutch_error err;
    uint64_t id;

    hutch_request_init(&request);
    request.code = attacks[run->index].code;
    /* Only those are cut short that may be: the others are given the time that a busy machine takes. */
    request.wall_ms = attacks[run->index].verdicts & BIT(HUTCH_TIMEOUT) ? 700 : 20000;
    request.output_bytes = 1 << 20;
    request.on_result = on_result;
    request.user = run;
    while (hutch_engine_submit(load->engine, &request, &id, &err) < 0) {
        if (err.code != EAGAIN)
            die("submit '%s': %s", attacks[run->index].what, err.message);
        load_turn(load, now_ms() + 10);
    }
}

int soak_hostile(const struct settings *settings)
{
    unsigned n = settings->runs > N_ATTACKS ? settings->runs : (unsigned)N_ATTACKS;
    struct hutch_engine_stats stats = { .size = sizeof(stats) };
    struct attack_run *runs = calloc(n, sizeof(*runs));
    struct load load;

    if (!runs)
        die("out of memory");
    load_open(&load, settings, n * INNOCENTS);
    if (!load_settle(&load, SETTLE_S))
        return -1;
    for (unsigned i = 0; i < n; i++) {
        unsigned until = load.n + INNOCENTS;

        runs[i].index = i % N_ATTACKS;
        attack(&load, &runs[i]);
        load.room = until;
        while (load.n < until)
            load_turn(&load, now_ms() + 50);
    }
    load_settle(&load, SETTLE_S);
    for (unsigned i = 0; i < n; i++)
        if (runs[i].results != 1)
            complain("'%s' got %u results", attacks[runs[i].index].what, runs[i].results);
    hutch_engine_get_stats(load.engine, &stats);
    if (stats.lost_zygotes + stats.lost_launchers + stats.lost_sandboxes > 0)
        complain("the engine lost %llu zygotes, %llu launchers, %llu sandboxes", (unsigned long long)stats.lost_zygotes,
                 (unsigned long long)stats.lost_launchers, (unsigned long long)stats.lost_sandboxes);
    printf("hostile: %u hostile runs of %zu kinds, %u innocent ones among them: %u as they should\n", n, N_ATTACKS,
           load.n, load.ok);
    load_close(&load);
    free(runs);
    return 0;
}
