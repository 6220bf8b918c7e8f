#include "runtime/cli/commands.h"

#include "sandbox/fd.h"
#include "sandbox/inside.h"

#include <string.h>

#define ONE 1u /* the bit of a command whose rows are its own */

/* --- hutch run, hutch repl, hutch mcp --------------------------------------------------------------------------- */

enum { RUN = 1u << 0, REPL = 1u << 1, MCP = 1u << 2, ALL = RUN | REPL | MCP };

#define AT(field) offsetof(struct run_opts, field)

static const struct option_row run_rows[] = {
    { RUN, 'c', NULL, "CODE", OPTION_TEXT, AT(code), .help = "run this Python text instead of a file" },
    { RUN, 'm', NULL, "MODULE", OPTION_TEXT, AT(module),
      .help = "run this Python module, of the project or the image" },
    { RUN, 0, "--project", "DIR", OPTION_TEXT, AT(project),
      .help = "show this directory, read-only: FILE is in it, and it is where the program starts", .values = "FILE" },
    { RUN, 0, "--writable", NULL, OPTION_FLAG, AT(writable),
      .help = "the program has a copy of the project to write to, which is not kept" },
    { RUN, 0, "--language", "NAME", OPTION_TEXT, AT(language),
      .help = "what the program is written in (default: as its name ends, or Python)",
      .values = "python sh bash js typescript perl ruby r lua" },
    { ALL, 0, "--image", "NAME", OPTION_TEXT, AT(image),
      .help = "image to run in (default: python)", .values = "IMAGE" },
    { ALL, 0, "--with", "PACKAGES", OPTION_REPEATED, AT(with),
      .help = "laid over the image: 'rich,polars>=1' of Python, a requirements file, a wheel", .values = "FILE" },
    { ALL, 0, "--index", "URL|none", OPTION_TEXT, AT(index),
      .help = "where they come from (PIP_INDEX_URL, or pip's own)", .values = "none" },
    { ALL, 0, "--wheels", "DIR", OPTION_TEXT, AT(wheels),
      .help = "a directory of wheels; without --index they are all there is, and no network" },
    { RUN, 0, "--entrypoint", "PROGRAM", OPTION_TEXT, AT(entrypoint),
      .help = "after it '-- ARGS': run this program of the image, in place of its own" },
    { RUN, 0, "--yes", NULL, OPTION_FLAG, AT(yes),
      .help = "build the image where it is missing, fetch what the script wants: without a question" },
    { ALL, 0, "--rootfs", "host|DIR", OPTION_TEXT, AT(rootfs),
      .help = "the host's own /usr, or a root tree, instead of an image" },
    { ALL, 0, "--policy", "NAME|FILE", OPTION_TEXT, AT(policy), .help = "isolation and limits (default: default)",
      .values = "default strict trusted FILE" },
    { ALL, .kind = OPTION_LIMITS, .offset = AT(limits) },
    { REPL, 0, "--timeout", "TIME", OPTION_TEXT, AT(limits[LIMIT_WALL]),
      .help = "wall clock limit of each cell, e.g. 30s (default: none)" },
    { MCP, 0, "--timeout", "TIME", OPTION_TEXT, AT(limits[LIMIT_WALL]),
      .help = "wall clock limit of each call, e.g. 2m (default: the policy's)" },
    { ALL, 0, "--network", "none|host", OPTION_TEXT, AT(network), .help = "loopback only, or the host's network" },
    { ALL, 0, "--gpu", NULL, OPTION_FLAG, AT(gpu),
      .help = "hand in NVIDIA's GPUs of this host, and their driver's libraries" },
    { ALL, 'e', "--env", "NAME=VALUE", OPTION_REPEATED, AT(env), .help = "set an environment variable" },
    { ALL, 'v', "--volume", "SRC:DST[:ro]", OPTION_VOLUME, AT(volumes), .help = "make a host path visible inside",
      .values = "FILE", .also = AT(verbose) },
    { ALL, 0, "--tmpfs", "DST[:SIZE]", OPTION_REPEATED, AT(tmpfs), .help = "an empty, private, writable directory" },
    { ALL, 'w', "--workdir", "DIR", OPTION_TEXT, AT(workdir),
      .help = "working directory inside (default: " INSIDE_DATA_DIR ")",
      .values = INSIDE_DATA_DIR },
    { ALL, 0, "--data", "DIR", OPTION_TEXT, AT(data),
      .help = "host directory for " INSIDE_DATA_DIR " (default: a fresh one)" },
    { REPL, 0, "--context", "NAME", OPTION_TEXT, AT(context), .help = "whose variables cells have (default: main)" },
    { REPL, 0, "--images", "WAY", OPTION_TEXT, AT(images),
      .help = "how the terminal shows images: kitty, sixel, blocks or none",
      .values = "kitty sixel blocks none" },
    { RUN, 0, "--json", NULL, OPTION_FLAG, AT(json), .help = "print one JSON object as the result" },
    { RUN, 0, "--raw", NULL, OPTION_FLAG, AT(raw),
      .help = "the terminal obeys every escape sequence of the program, not colours alone" },
    { RUN, 0, "--rich", NULL, OPTION_FLAG, AT(rich),
      .help = "run in IPython's shell: with the last value, figures and displays" },
    { RUN, 0, "--llm", "BUDGET", OPTION_OPTIONAL, AT(llm),
      .help = "likewise, and print the result as text for a language model",
      .also = AT(llm_budget) },
    { MCP, 0, "--budget", "TOKENS", OPTION_TEXT, AT(llm_budget),
      .help = "of the text of one result, and of each stream in it (default: 4000)" },
    { RUN, 'o', NULL, "FILE", OPTION_TEXT, AT(output),
      .help = "where an executed notebook is written (default: NAME.out.ipynb)" },
    { RUN, 0, "--param", "NAME=VALUE", OPTION_REPEATED, AT(params), .help = "a parameter of a notebook" },
    { RUN, 0, "--cell-timeout", "TIME", OPTION_TEXT, AT(cell_timeout),
      .help = "wall clock limit of each cell of a notebook" },
    { RUN, 0, "--allow-errors", NULL, OPTION_FLAG, AT(allow_errors), .help = "a notebook goes on after an exception" },
    { RUN, 0, "--interrupt-on-timeout", NULL, OPTION_FLAG, AT(interrupt_on_timeout),
      .help = "a cell of a notebook that takes too long has an exception for it" },
    { RUN, 0, "--warm", NULL, OPTION_FLAG, AT(warm),
      .help = "by way of an engine, for comparing: slow to start, then fast" },
    { RUN | REPL, 0, "--no-server", NULL, OPTION_FLAG, AT(no_server),
      .help = "not by the server on the default socket, if one listens there" },
    { ALL & ~MCP, 'q', "--quiet", NULL, OPTION_FLAG, AT(quiet), .help = "print nothing but what the program prints" },
    { MCP, 'q', "--quiet", NULL, OPTION_FLAG, AT(quiet), .help = "no hint for a person who starts it at a terminal" },
    { ALL, 0, "--verbose", NULL, OPTION_FLAG, AT(verbose),
      .help = "say on stderr what is done (also -v, before anything but SRC:DST)" },
    { ALL, 'h', "--help", NULL, OPTION_FLAG, AT(help), .help = "this list" },
};

#undef AT

/* --- hutch batch ------------------------------------------------------------------------------------------------ */

#define AT(field) offsetof(struct batch_opts, field)

static const struct option_row batch_rows[] = {
    { ONE, 0, "--format", "NAME", OPTION_TEXT, AT(format),
      .help = "generic, humaneval, mbpp, stdio; or auto, the default",
      .values = "auto generic humaneval mbpp stdio" },
    { ONE, 0, "--samples", "FILE", OPTION_TEXT, AT(samples), .help = "programs to judge, instead of the tasks' own" },
    { ONE, 'j', "--jobs", "NUMBER", OPTION_TEXT, AT(jobs),
      .help = "runs at the same time (default: one for each CPU)" },
    { ONE, 'o', "--output", "FILE", OPTION_TEXT, AT(output), .help = "where results go (default: standard output)" },
    { ONE, 0, "--resume", NULL, OPTION_FLAG, AT(resume),
      .help = "go on with an output file: do not repeat what it has" },
    { ONE, 0, "--order", "input|finish", OPTION_TEXT, AT(order), .help = "of the results (default: input)" },
    { ONE, 0, "--cpu-time", "TIME", OPTION_TEXT, AT(cpu_time),
      .help = "CPU time limit of a run (default: 6s; 15s for mbpp)" },
    { ONE, 0, "--timeout", "TIME", OPTION_TEXT, AT(timeout),
      .help = "wall clock limit of a run (default: 10 times the CPU time and 10s)" },
    { ONE, 0, "--memory", "SIZE", OPTION_TEXT, AT(memory), .help = "memory limit of a run (default: the policy's)" },
    { ONE, 0, "--image", "NAME", OPTION_TEXT, AT(image),
      .help = "image to run in (default: python)", .values = "IMAGE" },
    { ONE, 0, "--with", "PACKAGES", OPTION_REPEATED, AT(with),
      .help = "laid over the image: 'rich,polars>=1', a requirements file, a wheel", .values = "FILE" },
    { ONE, 0, "--index", "URL|none", OPTION_TEXT, AT(index),
      .help = "where they come from (PIP_INDEX_URL, or pip's own)", .values = "none" },
    { ONE, 0, "--wheels", "DIR", OPTION_TEXT, AT(wheels),
      .help = "a directory of wheels; without --index they are all there is, and no network" },
    { ONE, 0, "--policy", "NAME|FILE", OPTION_TEXT, AT(policy), .help = "isolation and limits (default: default)",
      .values = "default strict trusted FILE" },
    { ONE, 0, "--k", "LIST", OPTION_TEXT, AT(k), .help = "pass@k to print (default: 1,10,100)" },
    { ONE, 0, "--compare", "MODE", OPTION_TEXT, AT(compare),
      .help = "exact, rstrip-newlines, lines, words, decimal, exit0 (default: the format's)",
      .values = "exact rstrip-newlines lines words decimal exit0" },
    { ONE, 0, "--judge", "apart|together", OPTION_TEXT, AT(judge),
      .help = "tests in a process of their own (default), or in the program's" },
    { ONE, 0, "--all-cases", NULL, OPTION_FLAG, AT(all_cases), .help = "go on after a sample's first failing case" },
    { ONE, 0, "--challenge", NULL, OPTION_FLAG, AT(challenge), .help = "MBPP: the challenge tests too" },
    { ONE, 0, "--partial", NULL, OPTION_FLAG, AT(partial), .help = "tasks without samples are no error" },
    { ONE, 'q', "--quiet", NULL, OPTION_FLAG, AT(quiet), .help = "no progress, no summary" },
    { ONE, 'h', "--help", NULL, OPTION_FLAG, AT(help), .help = "this list" },
};

#undef AT

/* --- hutch serve ------------------------------------------------------------------------------------------------ */

#define AT(field) offsetof(struct serve_opts, field)

static const struct option_row serve_rows[] = {
    { ONE, 0, "--config", "FILE", OPTION_TEXT, AT(config),
      .help = "options from a JSON file; those given here go first" },
    { ONE, 0, "--check", NULL, OPTION_FLAG, AT(check),
      .help = "read options, tokens, image, policy and functions, and end" },
    { ONE, 'l', "--listen", "ADDRESS", OPTION_REPEATED, AT(listen),
      .help = "where: unix:PATH, HOST:PORT or [ADDRESS]:PORT" },
    { ONE, 0, "--tokens", "FILE", OPTION_TEXT, AT(tokens), .help = "who may ask: names, and hashes of tokens" },
    { ONE, 0, "--insecure-no-auth", NULL, OPTION_FLAG, AT(insecure),
      .help = "TCP without tokens: anybody may run code" },
    { ONE, 0, "--allow-host", "NAME", OPTION_REPEATED, AT(hosts),
      .help = "a name under which TCP clients know this server, besides addresses" },
    { ONE, 0, "--allow-origin", "ORIGIN", OPTION_REPEATED, AT(origins),
      .help = "pages in browsers that may ask, e.g. https://example.org" },
    { ONE, 0, "--id-header", "NAME", OPTION_TEXT, AT(id_header),
      .help = "a header in which the proxy in front gives new sessions their names" },
    { ONE, 0, "--format", "NAME[=/PREFIX]", OPTION_REPEATED, AT(formats),
      .help = "others' wire formats to speak, and below which path (default: all but azure)" },
    { ONE, 0, "--ui", NULL, OPTION_FLAG, AT(ui), .help = "a page for browsers at /ui/, to try it" },
    { ONE, 0, "--function", "NAME=FILE", OPTION_REPEATED, AT(functions),
      .help = "a Python file with 'def handler(event)' that clients may call by this name" },
    { ONE, 0, "--image", "NAME", OPTION_TEXT, AT(sandbox.image),
      .help = "image to run in (default: python)", .values = "IMAGE" },
    { ONE, 0, "--rootfs", "host|DIR", OPTION_TEXT, AT(sandbox.rootfs),
      .help = "the host's own /usr, or a root tree, instead of an image" },
    { ONE, 0, "--policy", "NAME|FILE", OPTION_TEXT, AT(sandbox.policy),
      .help = "isolation and limits (default: default)", .values = "default strict trusted FILE" },
    { ONE, 0, "--data-target", "PATH", OPTION_REPEATED, AT(data_targets),
      .help = "a further name of /mnt/data inside, e.g. /workspace" },
    { ONE, .kind = OPTION_LIMITS, .offset = AT(sandbox.limits) },
    { ONE, 'j', "--jobs", "NUMBER", OPTION_TEXT, AT(jobs),
      .help = "runs at the same time (default: one for each CPU)" },
    { ONE, 0, "--workers", "NUMBER", OPTION_TEXT, AT(workers),
      .help = "processes that serve, each with an engine and its share of --jobs and --queue (default: 1)" },
    { ONE, 0, "--queue", "NUMBER", OPTION_TEXT, AT(queue), .help = "runs that may wait beyond those (default: 1024)" },
    { ONE, 0, "--max-body", "SIZE", OPTION_TEXT, AT(max_body), .help = "largest body of a request (default: 16m)" },
    { ONE, 0, "--max-connections", "NUMBER", OPTION_TEXT, AT(max_connections),
      .help = "open connections; more wait (default: 1024)" },
    { ONE, 0, "--request-timeout", "TIME", OPTION_TEXT, AT(request_timeout),
      .help = "for headers to arrive, and each 64 KiB of a body (default: 15s)" },
    { ONE, 0, "--idle-timeout", "TIME", OPTION_TEXT, AT(idle_timeout),
      .help = "for the next request on a connection (default: 75s)" },
    { ONE, 0, "--drain", "TIME", OPTION_TEXT, AT(drain), .help = "for what runs to end, after SIGTERM (default: 30s)" },
    { ONE, 'q', "--quiet", NULL, OPTION_FLAG, AT(quiet), .help = "no log on standard error" },
    { ONE, 0, "--log-code", NULL, OPTION_FLAG, AT(log_code),
      .help = "with the beginning of programs and cells, and the secrets in it" },
    { ONE, 'h', "--help", NULL, OPTION_FLAG, AT(help), .help = "this list" },
};

#undef AT

/* --- hutch rootfs ----------------------------------------------------------------------------------------------- */

enum { BUILD = 1u << 0, UNPACK = 1u << 1, LIST = 1u << 2, VERIFY = 1u << 3, REMOVE = 1u << 4, SHARE = 1u << 5,
       PRUNE = 1u << 6, PULL = 1u << 7, EXTEND = 1u << 8, EACH = 511u };

#define AT(field) offsetof(struct rootfs_opts, field)

static const struct option_row rootfs_rows[] = {
    { BUILD | UNPACK | PULL, 0, "--name", "NAME", OPTION_TEXT, AT(name), .help = "what to call the image" },
    { BUILD, 0, "--suite", "RELEASE", OPTION_TEXT, AT(suite),
      .help = "of Debian, the first by default: " HUTCH_RELEASES, .values = HUTCH_RELEASES },
    { BUILD, 0, "--output", "FILE", OPTION_TEXT, AT(output), .help = "keep the archive (an OCI image layout) as FILE" },
    { UNPACK, 0, "--select", "NAME|NUMBER", OPTION_TEXT, AT(select), .help = "which image of an archive with several" },
    { UNPACK | PULL, 0, "--platform", "linux/ARCH[/VARIANT]", OPTION_TEXT, AT(platform),
      .help = "take the image that is made for it (this machine)" },
    { EXTEND, 0, "--as", "NAME", OPTION_TEXT, AT(as), .help = "what to call the extended image" },
    { EXTEND, 0, "--pip", "WHAT", OPTION_REPEATED, AT(pip),
      .help = "packages of Python, 'rich,polars>=1', a requirements file (.txt) or a wheel (.whl)", .values = "FILE" },
    { EXTEND, 0, "--npm", "WHAT", OPTION_REPEATED, AT(npm),
      .help = "packages of Node, 'chalk@5,express', or a package.json", .values = "FILE" },
    { EXTEND, 0, "--apt", "WHAT", OPTION_REPEATED, AT(apt),
      .help = "packages of Debian, 'graphviz,tesseract-ocr', over an image that was made of such" },
    { EXTEND, 0, "--index", "URL|none", OPTION_TEXT, AT(index),
      .help = "where packages of Python or Node come from (PIP_INDEX_URL, or the tool's own)", .values = "none" },
    { EXTEND, 0, "--wheels", "DIR", OPTION_TEXT, AT(wheels),
      .help = "a directory of wheels; without --index they are all there is, and no network" },
    { EXTEND, 0, "--allow-build", NULL, OPTION_FLAG, AT(allow_build),
      .help = "also packages that are built from source, which runs their code while the layer is made" },
    { UNPACK | PULL | EXTEND, 0, "--max-size", "SIZE", OPTION_TEXT, AT(max_size),
      .help = "most that the image or layer may unpack to (16g)" },
    { UNPACK | PULL | EXTEND, 0, "--max-entries", "NUMBER", OPTION_TEXT, AT(max_entries),
      .help = "most files and directories (1000000; of a layer 200000)" },
    { PULL | EXTEND, 0, "--timeout", "TIME", OPTION_TEXT, AT(timeout),
      .help = "for the image to be fetched, or the layer to be made (30m)" },
    { PULL, 0, "--authfile", "FILE", OPTION_TEXT, AT(authfile),
      .help = "passwords of registries, as skopeo login writes them (its own places)" },
    { PULL, 0, "--insecure", NULL, OPTION_FLAG, AT(insecure),
      .help = "take a registry without TLS, or one whose certificate nobody vouches for" },
    { PRUNE, 0, "--dry-run", NULL, OPTION_FLAG, AT(dry_run), .help = "say what would be removed" },
    { LIST | VERIFY | PRUNE, 0, "--json", NULL, OPTION_FLAG, AT(json), .help = "print JSON" },
    { BUILD | UNPACK | PULL | EXTEND | VERIFY | REMOVE | SHARE | PRUNE, 'q', "--quiet", NULL, OPTION_FLAG, AT(quiet),
      .help = "print only what is asked for, and errors" },
    { EACH, 'h', "--help", NULL, OPTION_FLAG, AT(help), .help = "this list" },
};

#undef AT

/* --- hutch bundle ----------------------------------------------------------------------------------------------- */

#define AT(field) offsetof(struct bundle_opts, field)

static const struct option_row bundle_rows[] = {
    { ONE, 0, "--copy", NULL, OPTION_FLAG, AT(copy),
      .help = "a copy of the image in the bundle, instead of the path of the store's" },
    { ONE, 0, "--entrypoint", "PROGRAM", OPTION_TEXT, AT(sandbox.entrypoint),
      .help = "after it '-- ARGS': run this program of the image, in place of its own" },
    { ONE, 0, "--policy", "NAME|FILE", OPTION_TEXT, AT(sandbox.policy),
      .help = "isolation and limits (default: default)", .values = "default strict trusted FILE" },
    { ONE, .kind = OPTION_LIMITS, .offset = AT(sandbox.limits) },
    { ONE, 0, "--network", "none|host", OPTION_TEXT, AT(sandbox.network),
      .help = "loopback only, or the host's network" },
    { ONE, 'e', "--env", "NAME=VALUE", OPTION_REPEATED, AT(sandbox.env), .help = "set an environment variable" },
    { ONE, 'w', "--workdir", "DIR", OPTION_TEXT, AT(sandbox.workdir),
      .help = "working directory inside (default: " INSIDE_DATA_DIR ")", .values = INSIDE_DATA_DIR },
    { ONE, 'h', "--help", NULL, OPTION_FLAG, AT(help), .help = "this list" },
};

#undef AT

/* --- hutch tools ------------------------------------------------------------------------------------------------ */

static const struct option_row tools_rows[] = {
    { ONE, 0, "--format", "FORMAT", OPTION_TEXT, offsetof(struct tools_opts, format),
      .help = "openai (default), openai-responses, anthropic, gemini, mcp",
      .values = "openai openai-responses anthropic gemini mcp" },
    { ONE, 'h', "--help", NULL, OPTION_FLAG, offsetof(struct tools_opts, help), .help = "this list" },
};

/* --- hutch doctor, hutch completion ----------------------------------------------------------------------------- */

static const struct option_row doctor_rows[] = {
    { ONE, 0, "--json", NULL, OPTION_FLAG, offsetof(struct doctor_opts, json), .help = "print one JSON object" },
    { ONE, 'h', "--help", NULL, OPTION_FLAG, offsetof(struct doctor_opts, help), .help = "this list" },
};

static const struct option_row completion_rows[] = {
    { ONE, 'h', "--help", NULL, OPTION_FLAG, offsetof(struct completion_opts, help), .help = "this list" },
};

/* --- commands --------------------------------------------------------------------------------------------------- */

#define ROWS(rows) rows, ARRAY_SIZE(rows)

const struct command hutch_commands[] = {
    [COMMAND_RUN] = { "run", "run a program or a notebook in a sandbox", NULL, "FILE", true, ROWS(run_rows), RUN },
    [COMMAND_REPL] = { "repl", "a prompt for Python in a sandbox", NULL, "", true, ROWS(run_rows), REPL },
    [COMMAND_MCP] = { "mcp", "serve the Model Context Protocol to one client, on standard input and output", NULL, "",
                      true, ROWS(run_rows), MCP },
    [COMMAND_BATCH] = { "batch", "judge many programs, each in a sandbox of its own", NULL, "FILE", false,
                        ROWS(batch_rows), ONE },
    [COMMAND_SERVE] = { "serve", "answer requests to run programs, over HTTP", NULL, "", false, ROWS(serve_rows), ONE },
    [COMMAND_TOOLS] = { "tools", "print the definitions of tools that run Python, for a model", "[NAME...]",
                        "run_python run_python_code execute_python_code code_interpreter code_interpreter_call", false,
                        ROWS(tools_rows), ONE },
    [COMMAND_ROOTFS_BUILD] = { "rootfs build",
                               "build an image from Debian packages and unpack it: " HUTCH_FLAVOURS,
                               "[FLAVOUR]", HUTCH_FLAVOURS, false, ROWS(rootfs_rows), BUILD },
    [COMMAND_ROOTFS_UNPACK] = { "rootfs unpack", "unpack an OCI image layout, or what docker save or skopeo writes",
                                "ARCHIVE [NAME]", "FILE", false, ROWS(rootfs_rows), UNPACK },
    [COMMAND_ROOTFS_PULL] = { "rootfs pull", "fetch an image by skopeo, from a registry or another tool, and unpack it",
                              "SOURCE", "", false, ROWS(rootfs_rows), PULL },
    [COMMAND_ROOTFS_EXTEND] = { "rootfs extend", "make another image: this one, with packages over it", "IMAGE",
                                 "IMAGE", false, ROWS(rootfs_rows), EXTEND },
    [COMMAND_ROOTFS_LIST] = { "rootfs list", "list the images in the store", "", "", false, ROWS(rootfs_rows), LIST },
    [COMMAND_ROOTFS_VERIFY] = { "rootfs verify",
                                "compare images (all of them) with what was unpacked; 1 when one differs", "[NAME...]",
                                "IMAGE", false, ROWS(rootfs_rows), VERIFY },
    [COMMAND_ROOTFS_REMOVE] = { "rootfs remove", "remove images that no sandbox runs on", "NAME...", "IMAGE", false,
                                ROWS(rootfs_rows), REMOVE },
    [COMMAND_ROOTFS_SHARE] = { "rootfs share", "let other users of this host read images, by HUTCH_IMAGES", "NAME...",
                               "IMAGE", false, ROWS(rootfs_rows), SHARE },
    [COMMAND_ROOTFS_PRUNE] = { "rootfs prune", "remove images that have no name and that no sandbox runs on", "", "",
                               false, ROWS(rootfs_rows), PRUNE },
    [COMMAND_BUNDLE] = { "bundle", "write an OCI bundle: an image and a policy for runc and crun", NULL,
                         "IMAGE DIR FILE", false, ROWS(bundle_rows), ONE },
    [COMMAND_DOCTOR] = { "doctor", "say what this host offers, what is missing, and how to mend it", NULL, "", false,
                         ROWS(doctor_rows), ONE },
    [COMMAND_COMPLETION] = { "completion", "print what completes hutch's command line in bash, zsh or fish", "SHELL",
                             "bash zsh fish", false, ROWS(completion_rows), ONE },
};
_Static_assert(ARRAY_SIZE(hutch_commands) == COMMAND_COUNT, "every command has a row");

const char *hutch_command_summary(const char *word)
{
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        if (strcmp(hutch_commands[i].name, word) == 0)
            return hutch_commands[i].summary;
    return "build, unpack, pull, extend, list, verify, remove, share and prune images"; /* rootfs has two words */
}
