/* soak.c - long and rough treatment of an engine.
 *
 *     soak SCENARIO [--image I] [--dir D] [--seed N] [--kills N] [--runs N] [--samples N] [--jobs N] [--pool N]
 *
 *   kills    --kills times SIGKILL of one of an engine's own processes while runs are under way: each run gets one
 *            result, none begins twice, none is killed that nobody killed, and the pool fills again, after times that
 *            are printed
 *   flat     --runs runs; what the engine has and holds is counted again and again when nothing is under way, and does
 *            not grow
 *   hostile  programs that do what they can with what they have of hutch, among others, which must not notice
 *   sessions sessions that work, are copied, go back and end, while --kills times one of the engine's processes is
 *   killed: each cell and each
 *            order has one answer, each session one end, none loses its state that nobody killed, and nothing grows
 *   hold     runs for ever, after the line "ready": for whoever wants to kill it
 *
 * tests/soak/test_soak.py calls it. Ends with 1 when something was not as it should be. */
#include "soak.h"

#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

unsigned complaints;

static uint64_t random_state;

void die(const char *fmt, ...)
{
    va_list args;

    fflush(stdout);
    fprintf(stderr, "soak: ");
    va_start(args, fmt);
    vfprintf(stderr, fmt, args);
    va_end(args);
    fputc('\n', stderr);
    exit(2);
}

void complain(const char *fmt, ...)
{
    va_list args;

    complaints++;
    printf("WRONG: ");
    va_start(args, fmt);
    vprintf(fmt, args);
    va_end(args);
    putchar('\n');
    fflush(stdout);
}

double now_ms(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec * 1e3 + (double)ts.tv_nsec / 1e6;
}

uint32_t random_below(uint32_t bound)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u; /* Knuth's MMIX */
    return (uint32_t)((random_state >> 33) % bound);
}

static unsigned long number(const char *option, const char *text)
{
    char *end;
    unsigned long value = strtoul(text, &end, 10);

    if (end == text || *end)
        die("--%s: '%s' is no number", option, text);
    return value;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*run)(const struct settings *);
    } scenarios[] = { { "kills", soak_kills },
                      { "flat", soak_flat },
                      { "hostile", soak_hostile },
                      { "sessions", soak_sessions },
                      { "hold", soak_hold } };
    static const struct option options[] = {
        { "image", required_argument, NULL, 'i' }, { "dir", required_argument, NULL, 'd' },
        { "seed", required_argument, NULL, 's' },  { "kills", required_argument, NULL, 'k' },
        { "runs", required_argument, NULL, 'r' },  { "samples", required_argument, NULL, 'n' },
        { "jobs", required_argument, NULL, 'j' },  { "pool", required_argument, NULL, 'p' },
        { 0 },
    };
    struct settings settings = {
        .image = "minimal", .dir = ".", .kills = 40, .runs = 1000, .samples = 10, .jobs = 4, .pool = 3, .seed = 1
    };
    int c;

    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1)
        switch (c) {
        case 'i': settings.image = optarg; break;
        case 'd': settings.dir = optarg; break;
        case 's': settings.seed = number("seed", optarg); break;
        case 'k': settings.kills = (unsigned)number("kills", optarg); break;
        case 'r': settings.runs = (unsigned)number("runs", optarg); break;
        case 'n': settings.samples = (unsigned)number("samples", optarg); break;
        case 'j': settings.jobs = (unsigned)number("jobs", optarg); break;
        case 'p': settings.pool = (unsigned)number("pool", optarg); break;
        default: return 2;
        }
    random_state = settings.seed;
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); /* whoever loses his parent stays below us */
    for (size_t i = 0; optind == argc - 1 && i < sizeof(scenarios) / sizeof(*scenarios); i++)
        if (strcmp(argv[optind], scenarios[i].name) == 0)
            return scenarios[i].run(&settings) < 0 || complaints ? 1 : 0;
    die("the scenarios are: kills, flat, hostile, sessions, hold");
}
