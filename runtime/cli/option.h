/* option.h - the options of a command as rows, from which its command line is parsed, its --help and the completions of
 * shells are printed, and its manual is checked. runtime/cli/commands.c has the rows. */
#ifndef HUTCH_CLI_OPTION_H
#define HUTCH_CLI_OPTION_H

#include "sandbox/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#define OPTION_MAX_REPEATED 256

/* What OPTION_REPEATED fills. */
struct option_list {
    const char *values[OPTION_MAX_REPEATED + 1]; /* ends with NULL */
    size_t n;
};

enum option_kind {
    OPTION_FLAG,     /* bool */
    OPTION_TEXT,     /* const char * */
    OPTION_REPEATED, /* struct option_list */
    OPTION_VOLUME,   /* likewise; without SRC:DST behind it its letter is the flag at @also */
    OPTION_OPTIONAL, /* bool; a value can only follow '=', and is the const char * at @also */
    OPTION_LIMITS,   /* const char *[LIMIT_COUNT]: stands for the options of all limits that have no row of their own */
};

struct option_row {
    unsigned commands;    /* bits of those that have it */
    char letter;          /* 0: none */
    const char *name;     /* "--memory"; NULL: it has a letter only */
    const char *argument; /* "SIZE"; NULL: it takes none */
    enum option_kind kind;
    size_t offset;        /* of the field in the command's struct */
    const char *help;
    const char *values;   /* what can be completed, see struct command; NULL: as @argument tells */
    size_t also;
};

struct command {
    const char *name;     /* "run", "rootfs build" */
    const char *summary;
    const char *usage;    /* what follows the name; NULL: the command's own --help says it */
    /* What its words can be: one of those in small letters, a FILE, a DIR, an IMAGE. */
    const char *words;
    bool ends_options;    /* by the first word, what follows is a program's own */
    const struct option_row *rows;
    size_t n_rows;
    unsigned bit;         /* in option_row.commands */
};

/* Puts the next option of @command into @ret; @at begins with 0. False at the end. */
bool hutch_option_next(const struct command *command, size_t *at, struct option_row *ret);

/* Takes options from argv[*i] on into @opts, the command's struct, and leaves *i at the first word that is none. 1 when
 * "--" has ended the options, else 0. */
int hutch_option_take(const struct command *command, void *opts, int argc, char **argv, int *i, struct hutch_err *err);

/* The list for --help; one line: "    --memory SIZE        memory limit, e.g. 512m; 0 for none". */
void hutch_option_print(const struct command *command);
void hutch_option_print_row(FILE *to, const struct option_row *row, const char *behind);

#endif
