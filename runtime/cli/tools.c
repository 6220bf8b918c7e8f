#include "runtime/cli/tools.h"

#include "runtime/cli/commands.h"
#include "runtime/tools/tool.h"
#include "sandbox/fd.h"

#include <stdio.h>
#include <string.h>

#define MAX_TOOLS 16

static void print_help(void)
{
    struct text_buffer t = TEXT_BUFFER_INIT;

    hutch_tool_list(&t);
    printf("usage: hutch tools [--format FORMAT] [NAME...]\n\n"
           "Prints the definitions of tools that run Python, as the API of a model takes them under \"tools\": of\n"
           "run_python, or of those that are named. There are %s.\n"
           "POST /v1/tools of hutch serve takes the calls that the model makes of them.\n\n",
           t.data ? t.data : "some");
    hutch_text_done(&t);
    hutch_option_print(&hutch_commands[COMMAND_TOOLS]);
}

static int find_format(const char *name, enum tool_format *ret, struct hutch_err *err)
{
    for (int i = 0; i < TOOLS_FORMAT_COUNT; i++) {
        if (strcmp(hutch_tool_formats[i], name) == 0) {
            *ret = (enum tool_format)i;
            return 0;
        }
    }
    return hutch_err_set(err, 0, "option '--format': there is no '%s' (there are openai, openai-responses, anthropic, "
                                 "gemini, mcp)", name);
}

static int find_tools(char **names, size_t n, const struct tool **ret, size_t *ret_n, struct hutch_err *err)
{
    static char usual[] = "run_python";
    static char *usual_names[] = { usual };
    struct text_buffer known = TEXT_BUFFER_INIT;

    if (n > MAX_TOOLS)
        return hutch_err_set(err, 0, "at most %d tools can be named", MAX_TOOLS);
    if (n == 0)
        names = usual_names;
    *ret_n = n ? n : 1;
    for (size_t i = 0; i < *ret_n; i++) {
        ret[i] = hutch_tool_find(names[i], strlen(names[i]));
        if (ret[i])
            continue;
        hutch_tool_list(&known);
        hutch_err_set(err, 0, "there is no tool '%s' (there are %s)", names[i], known.data ? known.data : "others");
        hutch_text_done(&known);
        return -1;
    }
    return 0;
}

static int print_tools(enum tool_format format, const struct tool *const *tools, size_t n, struct hutch_err *err)
{
    struct text_buffer t = TEXT_BUFFER_INIT;
    auto_free char *text = NULL;

    hutch_tools_write(&t, format, tools, n);
    text = hutch_text_take(&t, NULL);
    if (!text)
        return hutch_err_set(err, ENOMEM, "print the tools");
    if (fputs(text, stdout) < 0 || fflush(stdout) != 0)
        return hutch_err_set(err, errno, "print the tools");
    return 0;
}

int hutch_cmd_tools(int argc, char **argv, struct hutch_err *err)
{
    const struct tool *tools[MAX_TOOLS];
    struct tools_opts opts = { .format = "openai" };
    enum tool_format format = TOOLS_OPENAI;
    size_t n = 0;
    int i = 1;

    if (hutch_option_take(&hutch_commands[COMMAND_TOOLS], &opts, argc, argv, &i, err) < 0)
        return -1;
    if (opts.help) {
        print_help();
        return 0;
    }
    if (find_format(opts.format, &format, err) < 0 ||
        find_tools(argv + i, (size_t)(argc - i), tools, &n, err) < 0)
        return -1;
    return print_tools(format, tools, n, err);
}
