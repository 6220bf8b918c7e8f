#include "runtime/gpu/cdi.h"

#include "runtime/text/json.h"
#include "runtime/text/yaml.h"
#include "sandbox/fd.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_DEPTH 16
#define MAX_KEYS 64
#define MAX_NAME 256
#define ALL_DEVICES "all"

/* One edit, and the device that it is of; NULL: of the whole. */
struct found {
    struct cdi_edit edit;
    size_t device; /* from 1; 0: the whole */
};

struct reading {
    struct cdi_spec *spec;
    struct found *found;
    size_t n, room;
    size_t device, all_device; /* the one that is read; the one called "all", 0: none */
    bool is_node;              /* what is read is a list of nodes, else of mounts */
    const char *path, *host_path; /* of the entry that is read; the document's */
};

static int add_edit(struct reading *r, const struct json_node *node, struct hutch_err *err)
{
    const char *path = r->host_path ? r->host_path : r->path;
    struct found *grown;

    if (!path || path[0] != '/')
        return hutch_json_refuse(node, err, "there is no absolute path");
    if (r->n == CDI_MAX_EDITS)
        return hutch_json_refuse(node, err, "more than %d nodes and mounts", CDI_MAX_EDITS);
    if (r->n == r->room) {
        grown = reallocarray(r->found, r->room + 64, sizeof(*grown));
        if (!grown)
            return hutch_err_set(err, ENOMEM, "read a list of nodes");
        r->found = grown;
        r->room += 64;
    }
    r->found[r->n] = (struct found){ { strdup(path), r->is_node }, r->device };
    if (!r->found[r->n].edit.path)
        return hutch_err_set(err, ENOMEM, "read a list of nodes");
    r->n++;
    return 0;
}

/* A specification of a later version has keys that are not known here. */
static int read_path_key(const struct json_node *node, void *context, struct hutch_err *err)
{
    struct reading *r = context;
    const char **to = strcmp(node->key, "hostPath") == 0                 ? &r->host_path
                      : r->is_node && strcmp(node->key, "path") == 0 ? &r->path
                                                                         : NULL;

    return to ? hutch_json_string(node, CDI_MAX_PATH, to, err) : 0;
}

static int read_entry(const struct json_node *node, void *context, struct hutch_err *err)
{
    struct reading *r = context;

    r->path = r->host_path = NULL;
    return hutch_json_map(node, MAX_KEYS, read_path_key, r, err) < 0 ? -1 : add_edit(r, node, err);
}

static int count_other(const struct json_node *node, void *context, struct hutch_err *err)
{
    (void)node;
    (void)err;
    ((struct reading *)context)->spec->n_others++;
    return 0;
}

static int read_edits_key(const struct json_node *node, void *context, struct hutch_err *err)
{
    struct reading *r = context;

    r->is_node = strcmp(node->key, "deviceNodes") == 0;
    if (hutch_json_is_null(node))
        return 0;
    if (r->is_node || strcmp(node->key, "mounts") == 0)
        return hutch_json_array(node, CDI_MAX_EDITS, read_entry, r, err);
    if (strcmp(node->key, "env") == 0 || strcmp(node->key, "hooks") == 0)
        return hutch_json_array(node, CDI_MAX_EDITS, count_other, r, err);
    return count_other(node, r, err);
}

static int read_edits(const struct json_node *node, void *context, struct hutch_err *err)
{
    return hutch_json_is_null(node) ? 0 : hutch_json_map(node, MAX_KEYS, read_edits_key, context, err);
}

static int read_device_key(const struct json_node *node, void *context, struct hutch_err *err)
{
    struct reading *r = context;
    const char *name;

    if (strcmp(node->key, "containerEdits") == 0)
        return read_edits(node, r, err);
    if (strcmp(node->key, "name") != 0)
        return 0;
    if (hutch_json_string(node, MAX_NAME, &name, err) < 0)
        return -1;
    if (strcmp(name, ALL_DEVICES) == 0)
        r->all_device = r->device;
    return 0;
}

static int read_device(const struct json_node *node, void *context, struct hutch_err *err)
{
    struct reading *r = context;

    r->device++;
    return hutch_json_map(node, MAX_KEYS, read_device_key, r, err);
}

static int read_top_key(const struct json_node *node, void *context, struct hutch_err *err)
{
    struct reading *r = context;
    const char *text;

    if (strcmp(node->key, "kind") == 0) {
        if (hutch_json_string(node, MAX_NAME, &text, err) < 0)
            return -1;
        r->spec->kind = strdup(text); /* once: no key is there twice */
        return r->spec->kind ? 0 : hutch_err_set(err, ENOMEM, "read a kind of device");
    }
    if (strcmp(node->key, "devices") == 0)
        return hutch_json_array(node, CDI_MAX_EDITS, read_device, r, err);
    if (strcmp(node->key, "containerEdits") != 0)
        return 0;
    r->device = 0;
    return read_edits(node, r, err);
}

/* What the device "all" names, each path once; it has what the others have. */
static int choose(struct reading *r, struct hutch_err *err)
{
    struct cdi_spec *spec = r->spec;

    spec->edits = calloc(r->n + 1, sizeof(*spec->edits));
    if (!spec->edits)
        return hutch_err_set(err, ENOMEM, "read a list of nodes");
    for (size_t i = 0; i < r->n; i++) {
        struct found *f = &r->found[i];
        bool is_again = r->all_device && f->device && f->device != r->all_device;

        for (size_t j = 0; !is_again && j < spec->n; j++)
            is_again = strcmp(spec->edits[j].path, f->edit.path) == 0;
        if (is_again)
            continue;
        spec->edits[spec->n++] = f->edit;
        f->edit.path = NULL;
    }
    return 0;
}

/* YAML is made JSON first. @ret_json is the caller's to free and may be NULL. */
static int load(const char *what, const char *text, size_t len, char **ret_json, struct json_doc *ret,
                struct hutch_err *err)
{
    size_t at = 0;

    while (at < len && strchr(" \t\r\n", text[at]) && text[at])
        at++;
    if (at == len || text[at] != '{') {
        if (hutch_yaml_to_json(what, text, len, ret_json, &len, err) < 0)
            return -1;
        text = *ret_json;
    }
    return hutch_json_parse(what, text, len, MAX_DEPTH, ret, err);
}

int hutch_cdi_parse(const char *what, const char *text, size_t len, struct cdi_spec *ret, struct hutch_err *err)
{
    struct cdi_spec spec = CDI_SPEC_INIT;
    struct reading r = { .spec = &spec };
    struct json_doc doc = JSON_DOC_INIT;
    auto_free char *json = NULL;
    int rc = load(what, text, len, &json, &doc, err);

    if (rc == 0) {
        struct json_node root = hutch_json_root(&doc);

        rc = hutch_json_map(&root, MAX_KEYS, read_top_key, &r, err);
        if (rc == 0 && !spec.kind)
            rc = hutch_json_refuse(&root, err, "there is no kind");
    }
    if (rc == 0)
        rc = choose(&r, err);
    for (size_t i = 0; i < r.n; i++)
        free(r.found[i].edit.path);
    free(r.found);
    hutch_json_done(&doc);
    if (rc < 0)
        hutch_cdi_done(&spec);
    else
        *ret = spec;
    return rc;
}

void hutch_cdi_done(struct cdi_spec *spec)
{
    for (size_t i = 0; i < spec->n; i++)
        free(spec->edits[i].path);
    free(spec->edits);
    free(spec->kind);
    *spec = (struct cdi_spec)CDI_SPEC_INIT;
}
