/* What an interpreter says of cells: frames, and bytes with marks on two pipes, in any order. */
#include "runtime/cell/error.h"
#include "runtime/cell/feed.h"
#include "runtime/cell/frame.h"
#include "runtime/cell/outputs.h"
#include "runtime/hutch.h"

#include <cjson/cJSON.h>

#include "tests/fuzz/fuzz.h"

#define TOKEN "0123456789abcdef0123456789abcdef"

struct listener {
    struct cell_feed *feed;
    unsigned choices;
};

static void on_event(void *user, const struct cell_event *event)
{
    struct listener *listener = user;

    if (event->kind == CELL_OUTPUT) {
        fuzz_check(event->output && event->is[0] == '\0');
        return;
    }
    fuzz_check(event->frame && event->is);
    free(hutch_cell_frame_text(event->frame, "text"));
    listener->choices = listener->choices * 5 + 1;
    if (event->kind == CELL_DONE && (listener->choices & 4))
        hutch_cell_feed_begin(listener->feed, 10000);
    else if ((listener->choices & 0x38) == 0)
        hutch_cell_feed_discard(listener->feed);
}

static void check_outputs(const struct cell_outputs *outputs)
{
    struct cell_error error = { 0 };
    size_t len;
    char *text = hutch_cell_outputs_json(outputs, &len);
    struct cJSON *json = text ? cJSON_ParseWithLength(text, len) : NULL;

    fuzz_check(cJSON_IsArray(json));
    cJSON_Delete(json);
    free(text);
    free(hutch_cell_outputs_text(outputs, 1, &len));
    if (hutch_cell_outputs_error(outputs, &error) == 0)
        hutch_cell_error_done(&error);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct listener listener = { .choices = fuzz_byte(&data, &size) };
    struct hutch_err err = { .msg = "" };
    uint64_t now = 1000;

    listener.feed = hutch_cell_feed_new(TOKEN, on_event, &listener);
    fuzz_check(listener.feed);
    hutch_cell_feed_begin(listener.feed, 10000);
    while (size > 0) {
        unsigned what = fuzz_byte(&data, &size);
        size_t len;
        char *piece = what % 8 < 5 ? fuzz_piece(&data, &size, &len) : NULL;
        char mark[64];

        now += what / 8;
        switch (what % 8) {
        case 0:
        case 1:
        case 2:
            fuzz_check_err(hutch_cell_feed_frame(listener.feed, piece, len, now, &err), &err);
            break;
        case 3:
        case 4: hutch_cell_feed_bytes(listener.feed, (int)what % 8 - 2, piece, len, now); break;
        case 5:
            for (int stream = 1; stream <= 2; stream++)
                if (hutch_cell_feed_wants(listener.feed, stream))
                    hutch_cell_feed_is_empty(listener.feed, stream, now);
            break;
        case 6: hutch_cell_feed_tick(listener.feed, now + CELL_FLUSH_MS); break;
        default: /* a mark that is right */
            memcpy(mark, "\0" TOKEN, 33);
            snprintf(mark + 33, sizeof(mark) - 33, "%08x\n", what / 16);
            hutch_cell_feed_bytes(listener.feed, what & 8 ? 1 : 2, mark, 42, now);
            break;
        }
        free(piece);
        if (hutch_cell_feed_deadline(listener.feed) <= now)
            hutch_cell_feed_tick(listener.feed, now);
    }
    hutch_cell_feed_finish(listener.feed);
    check_outputs(hutch_cell_feed_outputs(listener.feed));
    hutch_cell_feed_free(listener.feed);
    return 0;
}
