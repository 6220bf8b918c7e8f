#include "runtime/engine/look.h"

#include <stdio.h>

void hutch_looks_init(struct looks *looks, struct helper *helper)
{
    looks->helper = helper;
    LIST_INIT(&looks->list);
}

void hutch_look_cancel(struct look *look)
{
    if (look->id == 0)
        return;
    LIST_REMOVE(look, link);
    look->id = 0;
}

static struct look *find(struct looks *looks, const struct disk_reply *reply)
{
    struct look *look;

    LIST_FOREACH(look, &looks->list, link)
        if (!reply || look->id == reply->id)
            return look;
    return NULL;
}

void hutch_looks_on_files(struct looks *looks, const struct disk_reply *reply, const int *fds, size_t n_fds)
{
    struct look_list lost = LIST_HEAD_INITIALIZER(lost);
    struct look *look;

    if (reply && (look = find(looks, reply))) {
        hutch_look_cancel(look);
        look->on_done(look->owner, reply, fds, n_fds);
    }
    if (reply)
        return;
    /* A callback may begin another look, so those that are lost have a list of their own first. */
    while ((look = LIST_FIRST(&looks->list))) {
        LIST_REMOVE(look, link);
        LIST_INSERT_HEAD(&lost, look, link);
    }
    while ((look = LIST_FIRST(&lost))) {
        hutch_look_cancel(look);
        look->on_done(look->owner, NULL, NULL, 0);
    }
}

static bool order_look(struct look *look, struct looks *looks, struct disk_request *request, int data_dirfd,
                       int list_fd)
{
    request->id = hutch_core_make_id(looks->helper->core);
    hutch_look_cancel(look);
    if (!hutch_helper_order_files(looks->helper, request, data_dirfd, list_fd))
        return false;
    look->id = request->id;
    LIST_INSERT_HEAD(&looks->list, look, link);
    return true;
}

bool hutch_look_begin(struct look *look, struct looks *looks, enum disk_order what, const struct collect_bounds *bounds,
                      int data_dirfd, int list_fd)
{
    struct disk_request request = { .what = what, .look = *bounds };

    return order_look(look, looks, &request, data_dirfd, list_fd);
}

bool hutch_look_begin_copy(struct look *look, struct looks *looks, const char *name, int data_dirfd)
{
    struct disk_request request = { .what = DISK_TAKE };

    snprintf(request.name, sizeof(request.name), "%s", name);
    return order_look(look, looks, &request, data_dirfd, -1);
}

bool hutch_look_is_needed(int data_dirfd)
{
    struct collect_bounds bounds = COLLECT_BOUNDS_DEFAULT;
    uint64_t bytes, entries;
    struct hutch_err err;

    bounds.max_walked = LOOK_MAX_ENTRIES;
    bounds.is_at_rest = bounds.keeps_closed = true;
    return hutch_collect_usage(data_dirfd, &bounds, &bytes, &entries, &err) == 0 && entries >= LOOK_MAX_ENTRIES;
}
