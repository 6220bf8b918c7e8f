#include "runtime/cli/option.h"

#include "runtime/config/limits.h"
#include "sandbox/fd.h"

#include <stdio.h>
#include <string.h>

/* --- rows ------------------------------------------------------------------------------------------------------- */

static bool has_row_of_its_own(const struct command *command, const char *name)
{
    for (size_t i = 0; i < command->n_rows; i++)
        if (command->rows[i].commands & command->bit && command->rows[i].name &&
            strcmp(command->rows[i].name, name) == 0)
            return true;
    return false;
}

/* The option of the limit @limit, at its place in the array that @all has. */
static struct option_row limit_row(const struct option_row *all, size_t limit)
{
    return (struct option_row){
        .commands = all->commands,
        .name = hutch_limit_rows[limit].option,
        .argument = hutch_limit_argument(hutch_limit_rows[limit].unit),
        .kind = OPTION_TEXT,
        .offset = all->offset + limit * sizeof(const char *),
        .help = hutch_limit_rows[limit].help,
    };
}

/* @at counts each row as LIMIT_COUNT places, of which all but one that stands for all limits need the first only. */
bool hutch_option_next(const struct command *command, size_t *at, struct option_row *ret)
{
    for (; *at / LIMIT_COUNT < command->n_rows; ++*at) {
        const struct option_row *row = &command->rows[*at / LIMIT_COUNT];
        size_t limit = *at % LIMIT_COUNT;

        if (!(row->commands & command->bit))
            continue;
        if (row->kind == OPTION_LIMITS && hutch_limit_rows[limit].option &&
            !has_row_of_its_own(command, hutch_limit_rows[limit].option))
            *ret = limit_row(row, limit);
        else if (row->kind != OPTION_LIMITS && limit == 0)
            *ret = *row;
        else
            continue;
        ++*at;
        return true;
    }
    return false;
}

/* --- the command line ------------------------------------------------------------------------------------------- */

/* -v takes SRC:DST as docker's does, and means verbose as elsewhere. What follows tells: DST is absolute. */
static bool is_volume(const char *next)
{
    return next && strstr(next, ":/");
}

static int take_repeated(struct option_list *list, const struct option_row *row, const char *value,
                         struct hutch_err *err)
{
    if (list->n == OPTION_MAX_REPEATED)
        return hutch_err_set(err, 0, "option '%s' is given more than %d times", row->name, OPTION_MAX_REPEATED);
    list->values[list->n++] = value;
    return 0;
}

static int take_value(void *opts, const struct option_row *row, const char *value, struct hutch_err *err)
{
    void *field = (char *)opts + row->offset;

    if (row->kind == OPTION_REPEATED || row->kind == OPTION_VOLUME)
        return take_repeated(field, row, value, err);
    *(const char **)field = value;
    return 0;
}

/* The option @row at argv[*i]; @inside is the part of that word that can be its value. */
static int take_row(void *opts, const struct option_row *row, const char *inside, int argc, char **argv, int *i,
                    struct hutch_err *err)
{
    bool is_long = argv[*i][1] == '-';
    const char *value = inside, *name = argv[*i];

    if (row->kind == OPTION_VOLUME && !is_long && !inside && !is_volume(*i + 1 < argc ? argv[*i + 1] : NULL)) {
        *(bool *)((char *)opts + row->also) = true;
        return 0;
    }
    if (row->kind == OPTION_FLAG || row->kind == OPTION_OPTIONAL) {
        if (inside && row->kind == OPTION_FLAG)
            return hutch_err_set(err, 0, "option '%s' takes no value", row->name);
        *(bool *)((char *)opts + row->offset) = true;
        if (inside)
            *(const char **)((char *)opts + row->also) = inside;
        return 0;
    }
    if (!value && *i + 1 < argc)
        value = argv[++*i];
    if (!value)
        return hutch_err_set(err, 0, "option '%s' needs a value: %s", name, row->argument);
    return take_value(opts, row, value, err);
}

static int take_option(const struct command *command, void *opts, int argc, char **argv, int *i, struct hutch_err *err)
{
    const char *arg = argv[*i], *equals = strchr(arg, '='), *space = strchr(command->name, ' ');
    size_t name_len = equals ? (size_t)(equals - arg) : strlen(arg), at = 0;
    struct option_row row;

    while (hutch_option_next(command, &at, &row)) {
        bool is_long = row.name && strlen(row.name) == name_len && strncmp(arg, row.name, name_len) == 0;
        bool is_short = row.letter && arg[1] == row.letter;

        if (is_long)
            return take_row(opts, &row, equals ? equals + 1 : NULL, argc, argv, i, err);
        if (is_short && !(row.kind == OPTION_FLAG && arg[2])) /* -eA=1, but not -qz */
            return take_row(opts, &row, arg[2] ? arg + 2 : NULL, argc, argv, i, err);
    }
    return hutch_err_set(err, 0, "there is no option '%s'%s (see: hutch %.*s --help)", arg, space ? " here" : "",
                         space ? (int)(space - command->name) : (int)strlen(command->name), command->name);
}

int hutch_option_take(const struct command *command, void *opts, int argc, char **argv, int *i, struct hutch_err *err)
{
    for (; *i < argc; ++*i) {
        if (strcmp(argv[*i], "--") == 0) {
            ++*i;
            return 1;
        }
        if (argv[*i][0] != '-' || argv[*i][1] == '\0')
            break;
        if (take_option(command, opts, argc, argv, i, err) < 0)
            return -1;
    }
    return 0;
}

/* --- help ------------------------------------------------------------------------------------------------------- */

void hutch_option_print_row(FILE *to, const struct option_row *row, const char *behind)
{
    const char *before = row->kind == OPTION_OPTIONAL ? "[=" : row->argument ? " " : "";
    char left[48], letter[] = { row->letter, '\0' };

    snprintf(left, sizeof(left), "%s%s%s%s%s%s%s", row->letter ? "-" : "    ", letter,
             row->letter && row->name ? ", " : "", row->name ? row->name : "", before,
             row->argument ? row->argument : "", row->kind == OPTION_OPTIONAL ? "]" : "");
    fprintf(to, "  %-26s %s%s\n", left, row->help, behind);
}

void hutch_option_print(const struct command *command)
{
    struct option_row row;
    size_t at = 0;

    while (hutch_option_next(command, &at, &row))
        hutch_option_print_row(stdout, &row, "");
}
