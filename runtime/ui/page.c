#include "runtime/ui/page.h"

#include "runtime/gateway/exchange.h"
#include "sandbox/fd.h"

#include <stdlib.h>
#include <string.h>

/* Read by the assembler, so its path is relative to the top of the tree, where make compiles. */
#define EMBED(symbol, file)                                  \
    __asm__(".pushsection .rodata\n"                         \
            ".type " #symbol ", @object\n"                   \
            #symbol ":\n"                                    \
            ".incbin \"runtime/ui/" file "\"\n"              \
            ".byte 0\n"                                      \
            ".size " #symbol ", . - " #symbol "\n"           \
            ".popsection\n");                                \
    extern const char symbol[] __attribute__((visibility("hidden")))

EMBED(ui_page_html, "page.html");
EMBED(ui_page_css, "page.css");
EMBED(ui_page_js, "page.js");
EMBED(ui_server_js, "server.js");
EMBED(ui_editor_js, "editor.js");
EMBED(ui_output_js, "output.js");
EMBED(ui_ansi_js, "ansi.js");
EMBED(ui_frame_js, "frame.js");
EMBED(ui_pool_js, "pool.js");

#define HTML "text/html; charset=utf-8"
#define CSS "text/css; charset=utf-8"
#define JS "text/javascript; charset=utf-8"

static const struct {
    const char *name, *type, *text;
} files[] = {
    { "page.css", CSS, ui_page_css },     { "page.js", JS, ui_page_js },     { "server.js", JS, ui_server_js },
    { "editor.js", JS, ui_editor_js },    { "output.js", JS, ui_output_js }, { "ansi.js", JS, ui_ansi_js },
    { "frame.js", JS, ui_frame_js },      { "pool.js", JS, ui_pool_js },
};

/* What the page may do. Its scripts are those of this room, it talks to this server alone, and nobody frames it.
 * "data:" is for images that code has made. "unsafe-inline" is for the styles of tables that code has made: the frames
 * in which they are shown inherit these rules, and have stricter ones of their own. With trusted types, the one place
 * that can make HTML of a text is runtime/ui/frame.js. */
#define POLICY                                                                                            \
    "default-src 'none'; script-src 'self'; connect-src 'self'; img-src data:; "                          \
    "style-src 'self' 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "     \
    "require-trusted-types-for 'script'; trusted-types frame"

static void answer(struct exchange *x, const char *type, const char *text)
{
    hutch_exchange_answer(x, 200, type, strdup(text), strlen(text));
    hutch_exchange_add_header(x, "Content-Security-Policy", POLICY);
    hutch_exchange_add_header(x, "Referrer-Policy", "no-referrer");
    hutch_exchange_add_header(x, "Cross-Origin-Opener-Policy", "same-origin");
    hutch_exchange_add_header(x, "Cross-Origin-Resource-Policy", "same-origin");
    hutch_exchange_add_header(x, "X-Frame-Options", "DENY"); /* browsers that do not know frame-ancestors */
}

static void answer_page(struct exchange *x)
{
    answer(x, HTML, ui_page_html);
}

static void answer_file(struct exchange *x)
{
    for (size_t i = 0; i < ARRAY_SIZE(files); i++)
        if (strcmp(files[i].name, x->params[0]) == 0) {
            answer(x, files[i].type, files[i].text);
            return;
        }
    hutch_exchange_refuse(x, GATEWAY_NOT_FOUND, "the page has no such file");
}

/* Relative, so that it also holds below a path of a proxy. */
static void lead_to_page(struct exchange *x)
{
    hutch_exchange_answer(x, 308, NULL, strdup(""), 0);
    hutch_exchange_add_header(x, "Location", "ui/");
}

/* The page asks for the token, so it is there without one. */
static const struct route routes[] = {
    { "GET", "/ui", ROUTE_NO_BODY, true, lead_to_page, NULL, NULL },
    { "GET", "/ui/", ROUTE_NO_BODY, true, answer_page, NULL, NULL },
    { "GET", "/ui/{file}", ROUTE_NO_BODY, true, answer_file, NULL, NULL },
};

const struct format hutch_ui_page = { .name = "ui", .routes = routes, .n_routes = ARRAY_SIZE(routes) };
