#include "runtime/gateway/catalog_api.h"

#include "runtime/gateway/pool_row.h"
#include "runtime/gateway/request_parts.h"
#include "runtime/gateway/server_priv.h"
#include "runtime/text/json_write.h"
#include "sandbox/fd.h"

#include <string.h>

/* Read by the assembler, so its path is relative to the top of the tree, where make compiles. */
__asm__(".pushsection .rodata\n"
        ".type openapi_json, @object\n"
        "openapi_json:\n"
        ".incbin \"runtime/gateway/openapi.json\"\n"
        ".byte 0\n"
        ".size openapi_json, . - openapi_json\n"
        ".popsection\n");
extern const char openapi_json[] __attribute__((visibility("hidden")));

void hutch_catalog_openapi(struct exchange *x)
{
    hutch_exchange_answer(x, 200, "application/json", strdup(openapi_json), strlen(openapi_json));
}

void hutch_catalog_languages(struct exchange *x)
{
    auto_free char *languages = hutch_engine_languages(x->server->engine);
    struct text_buffer t = TEXT_BUFFER_INIT;

    hutch_text_add_string(&t, "{\"languages\":");
    hutch_text_add_string(&t, languages ? languages : "");
    hutch_text_add_string(&t, "}\n");
    t.is_broken |= !languages;
    hutch_exchange_answer_json(x, 200, &t);
}

void hutch_catalog_policies(struct exchange *x)
{
    struct hutch_limits limits = { .size = sizeof(limits) };
    const char *own = hutch_exchange_policy(x, &limits), *policy = own ? own : x->server->options->engine->policy;
    struct text_buffer t = TEXT_BUFFER_INIT;
    char name[NAME_MAX + 1];

    hutch_policy_name(policy ? policy : "default", name);
    hutch_text_add_string(&t, "{\"policies\":[{\"name\":");
    hutch_json_quote(&t, name, strlen(name));
    hutch_text_add_string(&t, ",\"limits\":");
    hutch_request_write_limits(&t, &limits);
    hutch_text_add_string(&t, "}]}\n");
    hutch_exchange_answer_json(x, 200, &t);
}
