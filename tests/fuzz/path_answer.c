/* What comes from inside about a path, packet by packet. The first bytes say what was asked for. */
#include "runtime/session/path_answer.h"

#include "tests/fuzz/fuzz.h"

static void check_entries(const struct path_answer *a)
{
    fuzz_check(a->n <= a->max_entries);
    for (size_t i = 0; i < a->n; i++) {
        const struct hutch_path_entry *e = &a->entries[i];

        fuzz_check(strlen(e->path) < PATH_NAMES_MAX && e->path[0] != '/');
        fuzz_check(a->is_list ? e->path[0] != '\0' : e->path[0] == '\0');
        fuzz_check(strcmp(e->path, "..") != 0 && strncmp(e->path, "../", 3) != 0 && !strstr(e->path, "/../"));
        fuzz_check(!e->target || strlen(e->target) < PATH_NAMES_MAX);
        fuzz_check(!a->is_over || i == 0 || strcmp(e[-1].path, e->path) <= 0);
        fuzz_check((e->mode & ~07777u) == 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct path_order order = { .kind = PATH_LIST };
    struct hutch_err err = { .msg = "" };
    struct path_answer a;
    int rc = 0;

    order.kind = fuzz_byte(&data, &size) % PATH_KINDS;
    order.depth = fuzz_byte(&data, &size) % (PATH_DEPTH_MAX + 1);
    order.max_entries = fuzz_byte(&data, &size) * 8;
    hutch_path_answer_init(&a, &order);
    while (size > 0 && rc == 0 && !a.is_over) {
        size_t len;
        char *piece = fuzz_piece(&data, &size, &len);

        rc = hutch_path_answer_take(&a, piece, len, &err);
        free(piece);
        fuzz_check_err(rc, &err);
    }
    if (rc == 0)
        check_entries(&a);
    hutch_path_answer_done(&a);
    return 0;
}
