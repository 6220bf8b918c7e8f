/* The rows of runtime/cli/commands.c: whether they can be parsed, printed, and are what docs/hutch.1 describes. Works
 * in the directory that holds docs/. */
#include "runtime/cli/commands.h"

#include "runtime/batch/format.h"
#include "runtime/config/limits.h"
#include "runtime/lang/program.h"
#include "sandbox/fd.h"
#include "sandbox/spec.h"

#include <ctype.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define FOR_EACH_ROW(command, row) for (size_t at_ = 0; hutch_option_next(command, &at_, row);)

/* --- the manual ------------------------------------------------------------------------------------------------- */

/* An option as the manual names it, and where: "run" for the section about hutch run, "" elsewhere. */
struct named {
    char section[16], option[32];
};

struct manual {
    struct named *named; /* owned */
    size_t n;
};

static bool is_macro(const char *word)
{
    return isupper((unsigned char)word[0]) && islower((unsigned char)word[1]) && word[2] == '\0';
}

/* mdoc(7) writes "Fl e , \-env" for "-e, --env": the first '-' of each is Fl's. */
static void add_option(struct manual *m, const char *section, const char *word)
{
    struct named *bigger = realloc(m->named, (m->n + 1) * sizeof(*bigger));
    char *to;

    assert_non_null(bigger);
    m->named = bigger;
    snprintf(bigger[m->n].section, sizeof(bigger->section), "%s", section);
    to = bigger[m->n++].option;
    *to++ = '-';
    for (; *word && to < bigger[m->n - 1].option + sizeof(bigger->option) - 1; word++)
        if (*word != '\\')
            *to++ = *word;
    *to = '\0';
}

static void read_manual(struct manual *m)
{
    auto_free char *text = NULL;
    char section[16] = "";
    struct hutch_err err;
    size_t len;

    if (hutch_fd_slurp_path("docs/hutch.1", 1 << 20, &text, &len, &err) < 0)
        fail_msg("%s", err.msg);
    for (char *next, *line = text; line && *line; line = next) {
        bool is_flag = false;

        next = strchr(line, '\n');
        if (next)
            *next++ = '\0';
        if (strncmp(line, ".Ss hutch ", 10) == 0)
            snprintf(section, sizeof(section), "%s", line + 10);
        else if (strncmp(line, ".Sh ", 4) == 0)
            section[0] = '\0';
        if (line[0] != '.')
            continue;
        for (char *save = NULL, *word = strtok_r(line + 1, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
            if (strcmp(word, "Fl") == 0)
                is_flag = true;
            else if (is_macro(word))
                is_flag = false;
            else if (is_flag && (isalnum((unsigned char)word[0]) || word[0] == '\\'))
                add_option(m, section, word);
        }
    }
}

static bool manual_has(const struct manual *m, const char *section, size_t section_len, const char *option)
{
    for (size_t i = 0; i < m->n; i++)
        if (strlen(m->named[i].section) == section_len && strncmp(m->named[i].section, section, section_len) == 0 &&
            strcmp(m->named[i].option, option) == 0)
            return true;
    return false;
}

static bool row_is(const struct option_row *row, const char *option)
{
    char letter[] = { '-', row->letter, '\0' };

    return (row->name && strcmp(row->name, option) == 0) || (row->letter && strcmp(letter, option) == 0);
}

static void test_manual_has_every_option(void **state)
{
    struct manual m = { NULL, 0 };
    struct option_row row;

    (void)state;
    read_manual(&m);
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        const char *name = hutch_commands[i].name;
        size_t len = strcspn(name, " ");

        FOR_EACH_ROW(&hutch_commands[i], &row) {
            char letter[] = { '-', row.letter, '\0' };
            const char *option = row.name ? row.name : letter;
            /* hutch repl and hutch mcp have the sandbox's options from hutch run, and their sections say so. */
            bool is_there = manual_has(&m, name, len, option) ||
                            ((i == COMMAND_REPL || i == COMMAND_MCP) && manual_has(&m, "run", 3, option));

            if (!is_there)
                fail_msg("docs/hutch.1 does not describe %s of hutch %s", option, name);
        }
    }
    free(m.named);
}

static void test_manual_has_no_other_option(void **state)
{
    struct manual m = { NULL, 0 };
    struct option_row row;

    (void)state;
    read_manual(&m);
    assert_true(m.n > 50);
    for (size_t k = 0; k < m.n; k++) {
        const char *section = m.named[k].section, *option = m.named[k].option;
        bool is_known = !section[0] && (strcmp(option, "--help") == 0 || strcmp(option, "--version") == 0);

        for (size_t i = 0; i < COMMAND_COUNT && !is_known; i++)
            if (!section[0] || (strncmp(hutch_commands[i].name, section, strlen(section)) == 0 &&
                                strchr(" ", hutch_commands[i].name[strlen(section)])))
                FOR_EACH_ROW(&hutch_commands[i], &row)
                    is_known |= row_is(&row, option);
        if (!is_known)
            fail_msg("docs/hutch.1 names %s, which hutch %s does not have", option, section);
    }
    free(m.named);
}

/* The manual names a command in its synopsis, in its list of commands, and in the title of a section. */
static void test_manual_has_every_command(void **state)
{
    auto_free char *text = NULL;
    struct hutch_err err;
    char line[80];
    size_t len;

    (void)state;
    if (hutch_fd_slurp_path("docs/hutch.1", 1 << 20, &text, &len, &err) < 0)
        fail_msg("%s", err.msg);
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        for (size_t form = 0; form < 3; form++) {
            const char *name = hutch_commands[i].name;
            int word = (int)strcspn(name, " ");

            if (form == 0)
                snprintf(line, sizeof(line), "\n.Cm %s\n", name);
            else
                snprintf(line, sizeof(line), form == 1 ? "\n.It Cm %.*s\n" : "\n.Ss hutch %.*s\n", word, name);
            if (!strstr(text, line))
                fail_msg("docs/hutch.1 has no line '%.*s'", (int)strlen(line) - 2, line + 1);
        }
}

/* --- rows ------------------------------------------------------------------------------------------------------- */

static void test_rows(void **state)
{
    struct option_row row, other;

    (void)state;
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        const struct command *command = &hutch_commands[i];
        bool has_help = false;

        FOR_EACH_ROW(command, &row) {
            size_t n = 0;

            assert_true(row.letter || (row.name && strncmp(row.name, "--", 2) == 0));
            assert_non_null(row.help);
            assert_int_equal(row.argument == NULL, row.kind == OPTION_FLAG);
            has_help |= row_is(&row, "--help") && row_is(&row, "-h");
            for (size_t at = 0; hutch_option_next(command, &at, &other);)
                n += (row.name && other.name && strcmp(row.name, other.name) == 0) ||
                     (row.letter && row.letter == other.letter);
            if (n != 1)
                fail_msg("hutch %s has %zu options %s", command->name, n, row.name ? row.name : "of one letter");
        }
        if (!has_help)
            fail_msg("hutch %s has no --help", command->name);
    }
}

/* Each limit that has an option has it in hutch run, hutch repl and hutch mcp, once, and at its own place. */
static void test_limits(void **state)
{
    static const enum command_id ids[] = { COMMAND_RUN, COMMAND_REPL, COMMAND_MCP };
    struct option_row row;

    (void)state;
    for (size_t c = 0; c < ARRAY_SIZE(ids); c++)
        for (unsigned i = 0; i < LIMIT_COUNT; i++) {
            size_t n = 0;

            FOR_EACH_ROW(&hutch_commands[ids[c]], &row)
                if (row.name && hutch_limit_rows[i].option && strcmp(row.name, hutch_limit_rows[i].option) == 0) {
                    n++;
                    assert_true(row.offset == offsetof(struct run_opts, limits[i]));
                    assert_string_equal(row.argument, hutch_limit_argument(hutch_limit_rows[i].unit));
                }
            assert_int_equal(n, hutch_limit_rows[i].option != NULL);
        }
}

static const char *values_of(enum command_id id, const char *option)
{
    struct option_row row;

    FOR_EACH_ROW(&hutch_commands[id], &row)
        if (row_is(&row, option))
            return row.values;
    fail_msg("hutch %s has no %s", hutch_commands[id].name, option);
    return NULL;
}

/* What shells complete is what there is. */
static void test_values(void **state)
{
    char formats[100] = "", languages[200], want[200] = "";
    struct sandbox_spec spec;
    struct hutch_err err;
    const char *at;

    (void)state;
    for (int i = 0; i < BATCH_FORMAT_COUNT; i++)
        snprintf(formats + strlen(formats), sizeof(formats) - strlen(formats), "%s%s", i ? " " : "",
                 hutch_batch_format_name((enum batch_format)i));
    assert_string_equal(values_of(COMMAND_BATCH, "--format"), formats);
    /* The sentence about a language that is not there lists those that are. */
    assert_int_equal(hutch_spec_init(&spec, &err), 0);
    assert_int_equal(hutch_program_set_text(&spec, "none", "a", "1", 1, NULL, &err), -1);
    hutch_spec_done(&spec);
    at = strstr(err.msg, "(there are ");
    assert_non_null(at);
    snprintf(languages, sizeof(languages), "%.*s", (int)strcspn(at + 11, ")"), at + 11);
    for (char *save = NULL, *word = strtok_r(languages, ", ", &save); word; word = strtok_r(NULL, ", ", &save))
        snprintf(want + strlen(want), sizeof(want) - strlen(want), "%s%s", want[0] ? " " : "", word);
    assert_string_equal(values_of(COMMAND_RUN, "--language"), want);
}

/* --- the command line ------------------------------------------------------------------------------------------- */

static const struct {
    enum command_id id;
    const char *words[5];
    int rc;            /* what hutch_option_take() returns */
    int left;          /* words behind what it took; of an error: not looked at */
    const char *error;
} lines[] = {
    { COMMAND_BATCH, { "-j4", "--samples=x", "tasks" }, 0, 1, NULL },
    { COMMAND_BATCH, { "-j", "4", "--samples", "x" }, 0, 0, NULL },
    { COMMAND_BATCH, { "--", "-j" }, 1, 1, NULL },
    { COMMAND_BATCH, { "-" }, 0, 1, NULL },
    { COMMAND_BATCH, { "" }, 0, 1, NULL },
    { COMMAND_BATCH, { "-j" }, -1, 0, "option '-j' needs a value: NUMBER" },
    { COMMAND_BATCH, { "--resume=no" }, -1, 0, "option '--resume' takes no value" },
    { COMMAND_BATCH, { "--judg", "apart" }, -1, 0, "there is no option '--judg' (see: hutch batch --help)" },
    { COMMAND_BATCH, { "-qq" }, -1, 0, "there is no option '-qq' (see: hutch batch --help)" },
    /* hutch rootfs build has it. */
    { COMMAND_ROOTFS_LIST, { "-q" }, -1, 0, "there is no option '-q' here (see: hutch rootfs --help)" },
    { COMMAND_ROOTFS_VERIFY, { "-q", "--json", "python" }, 0, 1, NULL },
    { COMMAND_RUN, { "-v", "/a:/b", "-v", "-q", "x" }, 0, 1, NULL },
    { COMMAND_RUN, { "--llm", "5" }, 0, 1, NULL },
    { COMMAND_RUN, { "--llm=5" }, 0, 0, NULL },
    { COMMAND_RUN, { "--context", "x" }, -1, 0, "there is no option '--context' (see: hutch run --help)" },
    { COMMAND_REPL, { "--context", "x" }, 0, 0, NULL },
    { COMMAND_MCP, { "--budget=9", "--timeout", "1m" }, 0, 0, NULL },
    { COMMAND_MCP, { "--context", "x" }, -1, 0, "there is no option '--context' (see: hutch mcp --help)" },
    { COMMAND_DOCTOR, { "--json", "-h" }, 0, 0, NULL },
};

static void test_lines(void **state)
{
    (void)state;
    for (size_t row = 0; row < ARRAY_SIZE(lines); row++) {
        union {
            struct run_opts run;
            struct batch_opts batch;
            struct rootfs_opts rootfs;
            struct doctor_opts doctor;
        } opts;
        struct hutch_err err = { .msg = "" };
        int argc = 0, i = 0, rc;

        memset(&opts, 0, sizeof(opts));
        while (argc < 5 && lines[row].words[argc])
            argc++;
        rc = hutch_option_take(&hutch_commands[lines[row].id], &opts, argc, (char **)(uintptr_t)lines[row].words, &i,
                               &err);
        print_message("  %s\n", rc < 0 ? err.msg : "taken");
        assert_int_equal(rc, lines[row].rc);
        if (rc < 0)
            assert_string_equal(err.msg, lines[row].error);
        else
            assert_int_equal(argc - i, lines[row].left);
    }
}

static void test_values_arrive(void **state)
{
    static const char *const words[] = { "--memory=64m",   "--cpus", "0",       "-eA=1",  "--env",   "B=2",
                                         "--volume=/a:/b", "-v",     "--llm=7", "--json", "--image", "x" };
    struct run_opts opts = { .image = NULL };
    struct hutch_err err;
    int i = 0;

    (void)state;
    assert_int_equal(
        hutch_option_take(&hutch_commands[COMMAND_RUN], &opts, ARRAY_SIZE(words), (char **)(uintptr_t)words, &i, &err),
        0);
    assert_string_equal(opts.limits[LIMIT_MEMORY], "64m");
    assert_string_equal(opts.limits[LIMIT_CPUS], "0");
    assert_null(opts.limits[LIMIT_PIDS]);
    assert_int_equal(opts.env.n, 2);
    assert_string_equal(opts.env.values[1], "B=2");
    assert_null(opts.env.values[2]);
    assert_int_equal(opts.volumes.n, 1);
    assert_true(opts.verbose && opts.json && opts.llm && !opts.quiet);
    assert_string_equal(opts.llm_budget, "7");
    assert_string_equal(opts.image, "x");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_manual_has_every_option), cmocka_unit_test(test_manual_has_no_other_option),
        cmocka_unit_test(test_manual_has_every_command), cmocka_unit_test(test_rows), cmocka_unit_test(test_limits),
        cmocka_unit_test(test_values), cmocka_unit_test(test_lines), cmocka_unit_test(test_values_arrive),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
