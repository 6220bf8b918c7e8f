/* test_files.c - files of runs and sessions that cannot be kept. */
#include "tests/unit/lib/lair.h" /* the first: it makes calls of libc fail */

#include "runtime/session/data.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* What a program does that clears away old files, or a hand: all of it, or the empty directories. */
static void remove_runs(const struct lair *p, bool only_prepared)
{
    auto_fd home = open(p->home, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct hutch_err err = { .msg = "" };
    struct dirent *entry;
    unsigned n = 0;
    DIR *dir;

    if (!only_prepared) {
        assert_int_equal(hutch_rmtree(home, "runs", &err), 0);
        return;
    }
    dir = opendir(p->engine->core.data_root);
    assert_non_null(dir);
    while ((entry = readdir(dir)))
        n += entry->d_name[0] != '.' && unlinkat(dirfd(dir), entry->d_name, AT_REMOVEDIR) == 0;
    closedir(dir);
    assert_true(n > 0);
}

static void remove_while_it_runs(void *user, uint64_t id, int stream, const char *data, size_t len)
{
    on_output(user, id, stream, data, len);
    remove_runs(user, false);
}

static void test_the_directory_is_removed(void **state)
{
    static const char why[] = "was removed while the engine used it: open another engine";
    struct lair *p = *state;
    struct hutch_request request = request_for("#! out file");
    struct hutch_error error = { .message = "" };
    int rc;

    request.keep_data = 1;
    open_engine(p, "");
    await_full_pool(p);
    remove_runs(p, true);
    submit(p, &request);
    await(p, 1);
    assert_int_equal(runs[1].verdict, HUTCH_OK);
    assert_true(runs[1].directory[0] != '\0');
    await_full_pool(p);
    request.on_output = remove_while_it_runs;
    request.user = p;
    submit(p, &request);
    await(p, 2);
    assert_int_equal(runs[2].verdict, HUTCH_KILLED);
    assert_non_null(strstr(runs[2].message, "the files of the run are lost: another program has removed '"));
    rc = hutch_engine_dispatch(p->engine, &error);
    assert_int_equal(rc, -1);
    assert_non_null(strstr(error.message, why));
    close_engine_without_runs(p);

    /* before a run comes, whose sandbox is prepared */
    n_results = 0;
    memset(runs, 0, sizeof(runs));
    request.on_output = NULL;
    open_engine(p, "");
    await_full_pool(p);
    remove_runs(p, false);
    submit(p, &request);
    submit(p, &request);
    await(p, 2);
    for (uint64_t id = 1; id <= 2; id++) {
        assert_int_equal(runs[id].results, 1);
        assert_int_equal(runs[id].verdict, HUTCH_SETUP_FAILED);
        assert_non_null(strstr(runs[id].message, why));
    }
    assert_int_equal(hutch_engine_dispatch(p->engine, &error), -1);
    close_engine_without_runs(p);
}

/* For lack of descriptors nothing is lost; where the files cannot be kept, the session's last word says so. */
static void test_the_files_of_a_session(void **state)
{
    struct lair *p = *state;
    struct session_data data = { .name = "some.files" };
    struct core *core;
    char why[256] = "", *directory;

    open_engine(p, "");
    core = &p->engine->core;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(mkdirat(core->data_root_fd, data.name, 0755), 0);
        data.dirfd = openat(core->data_root_fd, data.name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        close(openat(data.dirfd, "made", O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
        failpoint_arm(i == 0 ? FAILPOINT_DESCRIPTOR : FAILPOINT_DISK, 1, 1000);
        directory = hutch_session_data_end(&data, core, true, why, sizeof(why));
        failpoint_disarm();
        hutch_fd_closep(&data.dirfd);
        assert_int_equal(directory != NULL, i == 0);
        assert_int_equal(why[0] != '\0', i == 1);
        free(directory);
    }
    assert_non_null(strstr(why, "; its files are lost: keep the files of a run"));
    hutch_file_list_done(&data.seen);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_the_directory_is_removed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_the_files_of_a_session, set_up, tear_down),
    };

    begin_program(argc, argv);
    return cmocka_run_group_tests_name("files of an engine", tests, NULL, NULL);
}
