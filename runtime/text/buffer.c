#include "runtime/text/buffer.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool ensure_room(struct text_buffer *t, size_t len)
{
    size_t room = t->room ? t->room : 256;
    char *data;

    if (t->is_broken)
        return false;
    if (t->room - t->len > len)
        return true;
    while (room - t->len <= len)
        room *= 2;
    data = realloc(t->data, room);
    if (!data) {
        t->is_broken = true;
        return false;
    }
    t->data = data;
    t->room = room;
    return true;
}

void hutch_text_add(struct text_buffer *t, const char *data, size_t len)
{
    if (!ensure_room(t, len))
        return;
    if (len)
        memcpy(t->data + t->len, data, len);
    t->len += len;
    t->data[t->len] = '\0';
}

char *hutch_text_reserve(struct text_buffer *t, size_t len)
{
    return ensure_room(t, len) ? t->data + t->len : NULL;
}

void hutch_text_extend(struct text_buffer *t, size_t len)
{
    t->len += len;
    t->data[t->len] = '\0';
}

void hutch_text_addf(struct text_buffer *t, const char *fmt, ...)
{
    char text[512];
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    hutch_text_add(t, text, n < 0 ? 0 : (size_t)n < sizeof(text) ? (size_t)n : sizeof(text) - 1);
}

void hutch_text_add_string(struct text_buffer *t, const char *text)
{
    hutch_text_add(t, text, strlen(text));
}

char *hutch_text_take(struct text_buffer *t, size_t *ret_len)
{
    char *data;

    hutch_text_add(t, "", 0);
    if (t->is_broken) {
        hutch_text_done(t);
        return NULL;
    }
    data = t->data;
    if (ret_len)
        *ret_len = t->len;
    *t = (struct text_buffer)TEXT_BUFFER_INIT;
    return data;
}

void hutch_text_done(struct text_buffer *t)
{
    free(t->data);
    *t = (struct text_buffer)TEXT_BUFFER_INIT;
}
