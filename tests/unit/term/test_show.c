/* test_show.c - images among the outputs of a cell: what a terminal gets of them, and when it gets no more. */
#include "runtime/term/show.h"

#include "sandbox/fd.h"

#include <cjson/cJSON.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* One pixel; and the header of 4096 x 4096 with too little behind it. */
static const char small[] =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGNITEoGAAJOASfAYZ4ZAAAAAElFTkSuQmCC";
static const char broken[] =
    "iVBORw0KGgoAAAANSUhEUgAAEAAAABAACAYAAADyoyQXAAAADElEQVR4nGNgoD0AAABkAAGGZDw1AAAAAElFTkSuQmCC";

static int save_image(void *user, const char *name, const void *data, size_t len, struct hutch_err *err)
{
    (void)user;
    (void)err;
    assert_non_null(name);
    assert_non_null(data);
    assert_int_not_equal(len, 0);
    return 0;
}

static void show_image(struct cell_show *show, const char *base64)
{
    cJSON *output = cJSON_CreateObject();

    assert_non_null(cJSON_AddStringToObject(output, "output_type", "display_data"));
    assert_non_null(cJSON_AddStringToObject(cJSON_AddObjectToObject(output, "data"), "image/png", base64));
    hutch_cell_show_json(show, output);
    cJSON_Delete(output);
}

/* What was written since the last time. */
static const char *written(struct cell_show *show)
{
    static char text[8192];
    struct backlog *b = &show->streams[0].backlog;

    assert_in_range(b->end - b->start, 0, sizeof(text) - 1);
    memcpy(text, b->data ? b->data + b->start : "", b->end - b->start);
    text[b->end - b->start] = '\0';
    b->start = b->end = 0;
    return text;
}

static void open_show(struct cell_show *show, enum term_images images)
{
    hutch_cell_show_init(show, STDERR_FILENO, STDERR_FILENO);
    assert_true(show->is_one);
    show->save_image = save_image;
    show->images = images;
}

static void test_each_way(void **state)
{
    static const struct {
        enum term_images images;
        const char *begins;
    } rows[] = {
        { TERM_IMAGES_NONE, "hutch: figure-1.png\n" },
        { TERM_IMAGES_KITTY, "\x1b_Ga=T,f=100,q=2,m=0;" },
        { TERM_IMAGES_SIXEL, "\x1bP0;1q#0;2;" },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct cell_show show;
        const char *text;

        open_show(&show, rows[i].images);
        show_image(&show, small);
        text = written(&show);
        assert_memory_equal(text, rows[i].begins, strlen(rows[i].begins));
        assert_null(strstr(text, small + 40)); /* made anew */
        assert_string_equal(strstr(text, "hutch: "), "hutch: figure-1.png\n");
        hutch_cell_show_done(&show);
    }
}

/* Images that are never whole cost as much as others, and there is an end to it, until the next cell. */
static void test_pixels_of_a_cell(void **state)
{
    struct cell_show show;

    (void)state;
    open_show(&show, TERM_IMAGES_KITTY);
    for (int i = 1; i <= 2; i++) {
        char want[80];

        show_image(&show, broken);
        snprintf(want, sizeof(want), "hutch: figure-%d.png is not shown: it is a broken PNG image: ", i);
        assert_memory_equal(written(&show), want, strlen(want));
    }
    show_image(&show, small);
    assert_string_equal(written(&show), "hutch: figure-3.png is not shown: the images before it have 33554432 pixels\n"
                                        "hutch: figure-3.png\n");
    hutch_cell_show_end(&show);
    show_image(&show, small);
    assert_memory_equal(written(&show), "\x1b_G", 3);
    hutch_cell_show_done(&show);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_way),
        cmocka_unit_test(test_pixels_of_a_cell),
    };

    return cmocka_run_group_tests_name("show", tests, NULL, NULL);
}
