#include "runtime/cli/completion.h"

#include "runtime/cli/commands.h"
#include "sandbox/fd.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define MAX_VALUES 256

/* The parts of the scripts that are the same whatever the options are. The assembler reads them, so their paths are
 * relative to the top of the tree, where make compiles. */
#define EMBED(name, path)                                                                                              \
    __asm__(".pushsection .rodata\n" #name ":\n.incbin \"" path "\"\n.byte 0\n.popsection\n");                         \
    extern const char name[] __attribute__((visibility("hidden")))

EMBED(completion_bash, "runtime/cli/completion.bash");
EMBED(completion_zsh, "runtime/cli/completion.zsh");
EMBED(completion_fish, "runtime/cli/completion.fish");

/* --- what can be completed -------------------------------------------------------------------------------------- */

/* What @row's value can be, in the words of struct command: "none host", "host DIR", "FILE"; "": nothing is known. */
static const char *values_of(const struct option_row *row, char text[MAX_VALUES])
{
    size_t len = 0;

    snprintf(text, MAX_VALUES, "%s", row->values ? row->values : row->argument ? row->argument : "");
    for (char *p = text; !row->values && *p; p++)
        if (*p == '|')
            *p = ' ';
    /* "NAME=VALUE" and the like leave nothing. */
    for (char *save = NULL, *word = strtok_r(text, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
        bool is_known = !isupper((unsigned char)word[0]) || strcmp(word, "FILE") == 0 || strcmp(word, "DIR") == 0 ||
                        strcmp(word, "IMAGE") == 0;
        size_t n = strlen(word);

        if (!is_known)
            continue;
        if (len)
            text[len++] = ' ';
        memmove(text + len, word, n);
        len += n;
    }
    text[len] = '\0';
    return text;
}

/* Calls @each for the commands of one word, "rootfs" among them once. */
static void for_each_first_word(void (*each)(const char *name, const char *summary))
{
    bool has_rootfs = false;

    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        if (!strchr(hutch_commands[i].name, ' '))
            each(hutch_commands[i].name, hutch_commands[i].summary);
        else if (!has_rootfs)
            each("rootfs", hutch_command_summary("rootfs"));
        has_rootfs |= strchr(hutch_commands[i].name, ' ') != NULL;
    }
}

/* "build" of "rootfs build", NULL for a command of one word. */
static const char *second_word(const struct command *command)
{
    const char *space = strchr(command->name, ' ');

    return space ? space + 1 : NULL;
}

/* Inside single quotes; @special are characters that need a backslash there. */
static void print_quoted(const char *text, const char *special)
{
    for (; *text; text++) {
        if (*text == '\'')
            fputs("'\\'", stdout);
        else if (strchr(special, *text))
            putchar('\\');
        putchar(*text);
    }
}

/* --- bash ------------------------------------------------------------------------------------------------------- */

static void print_word(const char *name, const char *summary)
{
    (void)summary;
    printf(" %s", name);
}

static void print_bash_tables(void)
{
    struct option_row row;
    char values[MAX_VALUES];

    printf("_hutch_commands='");
    for_each_first_word(print_word);
    printf("'\n_hutch_rootfs_commands='");
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        if (second_word(&hutch_commands[i]))
            printf(" %s", second_word(&hutch_commands[i]));
    printf("'\n\n# The options of a command.\n_hutch_options()\n{\n    case $1 in\n");
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        printf("    '%s') echo '", hutch_commands[i].name);
        for (size_t at = 0; hutch_option_next(&hutch_commands[i], &at, &row);) {
            if (row.letter)
                printf(" -%c", row.letter);
            if (row.name)
                printf(" %s", row.name);
        }
        printf("' ;;\n");
    }
    printf("    esac\n}\n\n# What can follow an option that takes a value; fails for one that takes none.\n"
           "_hutch_values()\n{\n    case $1 in\n");
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        for (size_t at = 0; hutch_option_next(&hutch_commands[i], &at, &row);) {
            if (!row.argument || row.kind == OPTION_OPTIONAL)
                continue;
            printf("    ");
            if (row.letter)
                printf("'%s -%c'%s", hutch_commands[i].name, row.letter, row.name ? " | " : "");
            if (row.name)
                printf("'%s %s'", hutch_commands[i].name, row.name);
            printf(") echo '%s' ;;\n", values_of(&row, values));
        }
    printf("    *) return 1 ;;\n    esac\n}\n\n"
           "# What the words of a command can be.\n_hutch_words()\n{\n    case $1 in\n");
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        printf("    '%s') echo '%s' ;;\n", hutch_commands[i].name, hutch_commands[i].words);
    printf("    esac\n}\n");
}

static void print_bash(void)
{
    print_bash_tables();
    fwrite(completion_bash, 1, strlen(completion_bash), stdout);
}

/* --- zsh -------------------------------------------------------------------------------------------------------- */

/* Characters that have a meaning in the descriptions of _arguments and _describe. */
#define ZSH_SPECIAL ":[]\\"

static void print_zsh_description(const char *name, const char *summary)
{
    printf("        '%s:", name);
    print_quoted(summary, ":\\");
    printf("'\n");
}

/* What completes a value of one of @values. The blank keeps _arguments from adding words to the command. */
static void print_zsh_action(const char *values)
{
    bool has_words = false;
    char copy[MAX_VALUES];

    snprintf(copy, sizeof(copy), "%s", values);
    if (strchr(values, ' ') && (strstr(values, "FILE") || strstr(values, "DIR"))) {
        printf(" _alternative \"words\\:word\\:(");
        for (char *save = NULL, *word = strtok_r(copy, " ", &save); word; word = strtok_r(NULL, " ", &save))
            if (!isupper((unsigned char)word[0])) {
                printf("%s%s", has_words ? " " : "", word);
                has_words = true;
            }
        printf(")\" \"files\\:file\\:_files%s\"", strstr(values, "DIR") ? " -/" : "");
    } else if (strcmp(values, "FILE") == 0)
        printf("_files");
    else if (strcmp(values, "DIR") == 0)
        printf("_files -/");
    else if (strcmp(values, "IMAGE") == 0)
        printf("_hutch_images");
    else
        printf("%s%s%s", values[0] ? "(" : " ", values, values[0] ? ")" : "");
}

/* '(-e --env)'{-e+,--env=}'[set …]:NAME=VALUE:…' */
static void print_zsh_option(const struct option_row *row)
{
    const char *after_letter = row->argument ? "+" : "";
    const char *after_name = row->kind == OPTION_OPTIONAL ? "=-" : row->argument ? "=" : "";
    bool is_repeated = row->kind == OPTION_REPEATED || row->kind == OPTION_VOLUME;
    char values[MAX_VALUES];

    printf("            ");
    if (row->letter && row->name)
        printf("'%s'{-%c%s,%s%s}'", is_repeated ? "*" : "", row->letter, after_letter, row->name, after_name);
    else if (row->letter)
        printf("'-%c%s", row->letter, after_letter);
    else
        printf("'%s%s%s", is_repeated ? "*" : "", row->name, after_name);
    putchar('[');
    print_quoted(row->help, ZSH_SPECIAL);
    putchar(']');
    if (row->argument) {
        printf(row->kind == OPTION_OPTIONAL ? "::" : ":");
        print_quoted(row->argument, ZSH_SPECIAL);
        putchar(':');
        print_zsh_action(values_of(row, values));
    }
    printf("' \\\n");
}

static void print_zsh(void)
{
    struct option_row row;

    puts("#compdef hutch\n\n_hutch_commands=(");
    for_each_first_word(print_zsh_description);
    puts(")\n_hutch_rootfs_commands=(");
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        if (second_word(&hutch_commands[i]))
            print_zsh_description(second_word(&hutch_commands[i]), hutch_commands[i].summary);
    puts(")\n\n_hutch_arguments()\n{\n    case $1 in");
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        printf("    '%s')\n        _arguments -S %s\\\n", hutch_commands[i].name,
               hutch_commands[i].ends_options ? "-A '-*' " : "");
        for (size_t at = 0; hutch_option_next(&hutch_commands[i], &at, &row);)
            print_zsh_option(&row);
        printf("            '*:word:");
        print_zsh_action(hutch_commands[i].words);
        printf("' ;;\n");
    }
    puts("    esac\n}\n");
    fwrite(completion_zsh, 1, strlen(completion_zsh), stdout);
}

/* --- fish ------------------------------------------------------------------------------------------------------- */

static void print_fish_command(const char *name, const char *summary)
{
    printf("complete -c hutch -n '__hutch_is' -f -a %s -d '", name);
    print_quoted(summary, "\\");
    printf("'\n");
}

/* -a and -F or -f for what is in @values. */
static void print_fish_values(const char *values)
{
    bool has_files = strstr(values, "FILE") != NULL, has_words = false;
    char copy[MAX_VALUES];

    snprintf(copy, sizeof(copy), "%s", values);
    printf(has_files ? " -F" : " -f");
    for (char *save = NULL, *word = strtok_r(copy, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
        if (strcmp(word, "FILE") == 0)
            continue;
        printf("%s", has_words ? " " : " -a '");
        if (strcmp(word, "DIR") == 0)
            printf("(__fish_complete_directories)");
        else if (strcmp(word, "IMAGE") == 0)
            printf("(__hutch_images)");
        else
            printf("%s", word);
        has_words = true;
    }
    if (has_words)
        putchar('\'');
}

static void print_fish_option(const struct command *command, const struct option_row *row)
{
    char values[MAX_VALUES];

    printf("complete -c hutch -n '__hutch_is %s'", command->name);
    if (row->letter)
        printf(" -s %c", row->letter);
    if (row->name)
        printf(" -l %s", row->name + 2);
    if (row->argument && row->kind != OPTION_OPTIONAL) {
        printf(" -r");
        print_fish_values(values_of(row, values));
    }
    printf(" -d '");
    print_quoted(row->help, "\\");
    printf("'\n");
}

static void print_fish(void)
{
    struct option_row row;

    fwrite(completion_fish, 1, strlen(completion_fish), stdout);
    putchar('\n');
    for_each_first_word(print_fish_command);
    puts("complete -c hutch -n '__hutch_is' -l help -d 'what commands there are'\n"
         "complete -c hutch -n '__hutch_is' -l version -d 'which hutch this is'");
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        const struct command *command = &hutch_commands[i];

        if (second_word(command)) {
            printf("complete -c hutch -n '__hutch_is_rootfs' -f -a %s -d '", second_word(command));
            print_quoted(command->summary, "\\");
            printf("'\n");
        }
        printf("complete -c hutch -n '__hutch_is %s'", command->name);
        print_fish_values(command->words);
        printf("\n");
        for (size_t at = 0; hutch_option_next(command, &at, &row);)
            print_fish_option(command, &row);
    }
}

/* --- the command ------------------------------------------------------------------------------------------------ */

static const struct { const char *name; void (*print)(void); } shells[] = {
    { "bash", print_bash }, { "zsh", print_zsh }, { "fish", print_fish },
};

static void print_help(void)
{
    printf("usage: hutch completion bash|zsh|fish\n\n"
           "Prints what makes a shell complete hutch's command line; 'make install' puts it where the shells look\n"
           "for it. For this shell alone: source <(hutch completion bash), or hutch completion fish | source.\n\n");
    hutch_option_print(&hutch_commands[COMMAND_COMPLETION]);
}

int hutch_cmd_completion(int argc, char **argv, struct hutch_err *err)
{
    const struct command *command = &hutch_commands[COMMAND_COMPLETION];
    struct completion_opts opts = { 0 };
    int i = 1;

    if (hutch_option_take(command, &opts, argc, argv, &i, err) < 0)
        return -1;
    if (opts.help) {
        print_help();
        return 0;
    }
    if (argc - i != 1)
        return hutch_err_set(err, 0, "for which shell? (hutch completion bash, zsh or fish)");
    for (size_t s = 0; s < ARRAY_SIZE(shells); s++) {
        if (strcmp(argv[i], shells[s].name) != 0)
            continue;
        shells[s].print();
        return fflush(stdout) == 0 && !ferror(stdout) ? 0 : hutch_err_set(err, errno, "print the completions");
    }
    return hutch_err_set(err, 0, "hutch completion knows bash, zsh and fish, not '%s'", argv[i]);
}
