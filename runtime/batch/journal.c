#include "runtime/batch/journal.h"

#include "runtime/batch/verdict.h"
#include "sandbox/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>

static int make_index(struct batch_journal *j, struct hutch_err *err)
{
    const struct batch_plan *plan = j->plan;

    j->first = calloc(plan->n_groups + 1, sizeof(*j->first));
    j->items = calloc(plan->n_items + 1, sizeof(*j->items));
    if (!j->first || !j->items)
        return hutch_err_set(err, ENOMEM, "remember %zu samples", plan->n_items);
    for (size_t i = 0; i < plan->n_groups; i++)
        j->first[i + 1] = j->first[i] + plan->groups[i].n_samples;
    for (size_t i = 0; i < plan->n_items; i++)
        j->items[j->first[plan->items[i].group] + plan->items[i].sample] = (uint32_t)i;
    return 0;
}

int hutch_batch_journal_open(int fd, const char *path, struct batch_plan *plan, struct batch_journal *ret,
                             struct hutch_err *err)
{
    struct batch_journal j = { .path = path, .plan = plan };
    auto_fd copy = fcntl(fd, F_DUPFD_CLOEXEC, 3);

    j.file = copy < 0 ? NULL : fdopen(copy, "r");
    if (!j.file)
        return hutch_err_set(err, errno, "read '%s'", path);
    hutch_fd_take(&copy);
    if (make_index(&j, err) < 0) {
        hutch_batch_journal_done(&j);
        return -1;
    }
    *ret = j;
    return 0;
}

static bool read_hash(struct json_view value, struct batch_hash *ret)
{
    return hutch_json_view_is_string(value) && hutch_batch_hash_parse(value.text + 1, value.len - 2, ret) == 0;
}

static bool read_verdict(struct json_view value, enum batch_verdict *ret)
{
    return hutch_json_view_is_string(value) && hutch_batch_verdict_parse(value.text + 1, value.len - 2, ret) == 0;
}

/* Marks the item of a record as done. False when the record does not count. */
static bool mark_item(struct batch_journal *j, size_t group, int64_t sample, enum batch_verdict verdict,
                      struct batch_hash hash, uint32_t *ret_item)
{
    struct batch_item *item;

    if (sample < 0 || (uint64_t)sample >= j->plan->groups[group].n_samples || verdict == BATCH_INTERNAL)
        return false;
    *ret_item = j->items[j->first[group] + (size_t)sample];
    item = &j->plan->items[*ret_item];
    if (item->is_done || item->hash.high != hash.high || item->hash.low != hash.low)
        return false;
    item->is_done = 1;
    item->verdict = (uint8_t)verdict;
    return true;
}

static int read_record(struct batch_journal *j, size_t len, uint32_t *ret_item, bool *ret_counts, struct hutch_err *err)
{
    char where[BATCH_WHERE_MAX];
    auto_free char *id = NULL;
    enum batch_verdict verdict;
    struct json_view root;
    struct batch_hash hash;
    size_t group;
    int64_t sample;

    snprintf(where, sizeof(where), "'%s': line %zu", j->path, j->line_number);
    if (hutch_json_view_check(where, 1, 1, j->line, len, &root, err) < 0)
        return hutch_err_wrap(err, "this is no result of 'hutch batch' (move the file away)");
    if (!read_verdict(hutch_json_view_get(root, "verdict"), &verdict) ||
        !hutch_json_view_integer(hutch_json_view_get(root, "completion_id"), &sample) ||
        !read_hash(hutch_json_view_get(root, "hash"), &hash))
        return hutch_err_set(err, 0, "%s: this is no result of 'hutch batch' (move the file away)", where);
    if (hutch_batch_sample_id(where, j->plan->options.format, root, &id, err) < 0)
        return -1;
    group = hutch_batch_plan_find(j->plan, id);
    if (group == SIZE_MAX)
        return hutch_err_set(err, 0, "%s: this is a result of another batch: there is no task '%s' in '%s'", where, id,
                             j->plan->tasks.name);
    *ret_counts = mark_item(j, group, sample, verdict, hash, ret_item);
    return 0;
}

int hutch_batch_journal_next(struct batch_journal *j, struct batch_record *ret, bool *ret_counts, struct hutch_err *err)
{
    struct batch_record record = { .offset = j->offset };
    ssize_t len = getline(&j->line, &j->line_room, j->file);

    if (len <= 0) /* no memory for a line is no error of the stream: ferror(3) would not tell */
        return feof(j->file) ? 0 : hutch_err_set(err, errno, "read '%s'", j->path);
    j->line_number++;
    j->is_torn = j->line[len - 1] != '\n';
    if (j->is_torn)
        return 0;
    if (read_record(j, (size_t)len, &record.item, ret_counts, err) < 0)
        return -1;
    record.len = (uint32_t)len;
    j->offset += (uint64_t)len;
    *ret = record;
    return 1;
}

void hutch_batch_journal_done(struct batch_journal *j)
{
    if (j->file)
        fclose(j->file);
    free(j->line);
    free(j->first);
    free(j->items);
    *j = (struct batch_journal)BATCH_JOURNAL_INIT;
}
