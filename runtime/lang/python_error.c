#include "runtime/lang/python_error.h"

#include "sandbox/fd.h"
#include "rootfs/guest.h"
#include "sandbox/spec.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static uint32_t read_u32(const char *p)
{
    const uint8_t *b = (const uint8_t *)p;

    return (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

/* A C string of @len bytes at @text; each NUL among them becomes U+FFFD. NULL on ENOMEM. */
static char *copy_text(const char *text, size_t len)
{
    static const char replacement[] = "\xef\xbf\xbd";
    size_t n_nuls = 0;
    char *copy, *to;

    for (size_t i = 0; i < len; i++)
        n_nuls += text[i] == '\0';
    copy = to = malloc(len + 2 * n_nuls + 1);
    if (copy == NULL)
        return NULL;
    for (size_t i = 0; i < len; i++) {
        if (text[i] != '\0') {
            *to++ = text[i];
            continue;
        }
        memcpy(to, replacement, 3);
        to += 3;
    }
    *to = '\0';
    return copy;
}

int hutch_pyreport_parse(const char *buf, size_t len, struct error_report *ret)
{
    static const uint32_t max[3] = { PYREPORT_MAX_NAME, PYREPORT_MAX_VALUE, PYREPORT_MAX_TRACEBACK };
    struct error_report report = ERROR_REPORT_INIT;
    const char *text;
    uint32_t n[3];

    if (len < PYREPORT_HEADER_LEN || len > PYREPORT_MAX || memcmp(buf, PYREPORT_MAGIC, 8) != 0)
        return 0;
    for (int i = 0; i < 3; i++) {
        n[i] = read_u32(buf + 8 + 4 * i);
        if (n[i] > max[i])
            return 0;
    }
    if (n[0] == 0 || len != PYREPORT_HEADER_LEN + (size_t)n[0] + n[1] + n[2])
        return 0;

    text = buf + PYREPORT_HEADER_LEN;
    report.name = copy_text(text, n[0]);
    report.value = copy_text(text + n[0], n[1]);
    report.traceback = copy_text(text + n[0] + n[1], n[2]);
    if (report.name == NULL || report.value == NULL || report.traceback == NULL) {
        hutch_error_report_done(&report);
        return -1;
    }
    *ret = report;
    return 1;
}

void hutch_error_report_done(struct error_report *report)
{
    struct error_report fresh = ERROR_REPORT_INIT;

    free(report->name);
    free(report->value);
    free(report->traceback);
    *report = fresh;
}

int hutch_pyreport_attach(struct sandbox_spec *spec, int report_fd, struct hutch_err *err)
{
    const char *user_path = hutch_spec_get_env(spec, "PYTHONPATH");
    auto_free char *path = NULL;
    char number[16];

    for (const struct guest_file *file = hutch_guest_python(); file->target != NULL; file++)
        if (hutch_spec_add_file(spec, file->target, file->data, file->len, 0444, err) < 0)
            return hutch_err_wrap(err, "attach the Python hook");

    if (user_path != NULL) {
        /* An empty PYTHONPATH counts as none, but an empty part of one means the current directory. */
        if (user_path[0] != '\0' && asprintf(&path, "%s:%s", GUEST_PYTHON_DIR, user_path) < 0) {
            path = NULL;
            return hutch_err_set(err, ENOMEM, "attach the Python hook");
        }
        if (hutch_spec_set_env(spec, "HUTCH_PYTHONPATH", user_path, err) < 0)
            return hutch_err_wrap(err, "attach the Python hook");
    }
    snprintf(number, sizeof(number), "%d", report_fd);
    if (hutch_spec_set_env(spec, "PYTHONPATH", path ? path : GUEST_PYTHON_DIR, err) < 0 ||
        hutch_spec_set_env(spec, "HUTCH_REPORT_FD", number, err) < 0)
        return hutch_err_wrap(err, "attach the Python hook");
    return 0;
}
