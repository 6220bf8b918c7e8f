#include "runtime/mcp/face.h"

#include "runtime/mcp/tool.h"
#include "sandbox/inside.h"

#include <stddef.h>

static const struct mcp_tool *const all_tools[] = {
    &hutch_mcp_run_python, &hutch_mcp_run_command, &hutch_mcp_list_files, &hutch_mcp_read_file, &hutch_mcp_write_file,
    NULL,
};

const struct mcp_face hutch_mcp_usual_face = {
    .name = "hutch",
    .title = "hutch",
    .instructions =
        "A sandbox for code: run_python keeps variables and files from call to call, run_command is a shell beside "
        "it, and list_files, read_file and write_file reach the files in " INSIDE_DATA_DIR ". Figures come back as "
        "images. An error of the code is a result: read it, mend the code, and call again.",
    .tools = all_tools,
};

static const struct mcp_tool *const one_tool[] = { &hutch_mcp_python, NULL };

const struct mcp_face hutch_mcp_python_face = {
    .name = "python",
    .title = "Python",
    .instructions =
        "A message to python is Python source text, which an interpreter in a sandbox executes. What it prints, the "
        "value of its last line and the traceback of an error come back as text. Variables and the files in "
        INSIDE_DATA_DIR " stay from message to message. There is no network, and nothing can be installed.",
    .tools = one_tool,
};
