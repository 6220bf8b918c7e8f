#include "runtime/lib/engine_priv.h"

#include "runtime/lang/program.h"
#include "runtime/text/buffer.h"
#include "runtime/text/json_write.h"

#include <string.h>

char *hutch_engine_languages(const struct hutch_engine *engine)
{
    const char *tree = engine->spec.root_kind == ROOT_HOST ? "/" : engine->spec.rootfs_path;
    struct text_buffer t = TEXT_BUFFER_INIT;
    char installed[256], *rest = NULL;

    hutch_program_list_installed(tree, installed, sizeof(installed));
    hutch_text_add_string(&t, "[");
    for (const char *name = strtok_r(installed, ", ", &rest); name; name = strtok_r(NULL, ", ", &rest)) {
        const char *ending = hutch_program_ending(name);

        hutch_text_add_string(&t, t.len > 1 ? ",{\"name\":" : "{\"name\":");
        hutch_json_quote(&t, name, strlen(name));
        hutch_text_add_string(&t, ",\"ending\":");
        hutch_json_quote(&t, ending, strlen(ending));
        hutch_text_add_string(&t, "}");
    }
    hutch_text_add_string(&t, "]");
    return hutch_text_take(&t, NULL);
}
