/* test_python_error_fuzz.c - what a worker writes on its channel is read to its last byte and no further, and taken for
 * a report exactly when it is one: a hundred thousand mutations of records, each at the very end of a page behind
 * which there is nothing. */
#include "sandbox/fd.h"
#include "runtime/lang/python_error.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#define ROUNDS 100000
#define ROOM (1u << 16)

static uint64_t random_state = 88172645463325252ull;

static uint32_t below(uint32_t bound)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((random_state >> 33) % bound);
}

static void put_length(char *to, uint32_t n)
{
    for (int i = 0; i < 4; i++)
        to[i] = (char)(n >> 8 * i & 255);
}

static uint32_t get_length(const char *from)
{
    uint32_t n = 0;

    for (int i = 0; i < 4; i++)
        n |= (uint32_t)(unsigned char)from[i] << 8 * i;
    return n;
}

/* A record with texts of any bytes, and its length. */
static size_t make_record(char *to)
{
    size_t lengths[3] = { below(40), below(300), below(2000) }, len = PYREPORT_HEADER_LEN;

    memcpy(to, PYREPORT_MAGIC, 8);
    for (int i = 0; i < 3; i++) {
        put_length(to + 8 + 4 * i, (uint32_t)lengths[i]);
        len += lengths[i];
    }
    for (size_t i = PYREPORT_HEADER_LEN; i < len; i++)
        to[i] = (char)below(256);
    return len;
}

static size_t mutate(char *record, size_t len)
{
    static const uint32_t odd[] = { 0, 1, 0x7fffffff, 0x80000000, 0xffffffff, PYREPORT_MAX_NAME, PYREPORT_MAX_NAME + 1,
                                    PYREPORT_MAX_VALUE, PYREPORT_MAX_TRACEBACK, PYREPORT_MAX_TRACEBACK + 1 };

    for (uint32_t n = below(4); n > 0; n--) {
        char *length = record + 8 + 4 * below(3);

        switch (below(7)) {
        case 0: record[below((uint32_t)len + 1)] ^= (char)(1 << below(8)); break;
        case 1: len = below((uint32_t)len + 1); break; /* cut */
        case 2: len += below(64); break;               /* and something behind it */
        case 3: put_length(length, odd[below(ARRAY_SIZE(odd))]); break;
        case 4: put_length(length, get_length(length) + below(3) - 1); break;
        case 5: { /* what one text loses another gets: still a record, unless a length wraps around */
            uint32_t by = below(50);

            put_length(record + 8, get_length(record + 8) - by);
            put_length(record + 12, get_length(record + 12) + by);
            break;
        }
        default: record[below(PYREPORT_HEADER_LEN)] = (char)below(256); break;
        }
    }
    return len;
}

/* What the format says, in other words than the parser's. */
static bool is_record(const char *at, size_t len)
{
    static const uint32_t max[3] = { PYREPORT_MAX_NAME, PYREPORT_MAX_VALUE, PYREPORT_MAX_TRACEBACK };
    uint64_t sum = PYREPORT_HEADER_LEN;

    if (len < PYREPORT_HEADER_LEN || memcmp(at, PYREPORT_MAGIC, 8) != 0 || get_length(at + 8) == 0)
        return false;
    for (int i = 0; i < 3; i++) {
        if (get_length(at + 8 + 4 * i) > max[i])
            return false;
        sum += get_length(at + 8 + 4 * i);
    }
    return sum == len;
}

static void check_text(const char *got, const char *bytes, uint32_t len)
{
    for (uint32_t i = 0; i < len; i++) {
        if (bytes[i] == '\0') {
            assert_memory_equal(got, "\xef\xbf\xbd", 3);
            got += 3;
        } else {
            assert_int_equal(*got, bytes[i]);
            got++;
        }
    }
    assert_int_equal(*got, '\0');
}

static void test_mutations(void **state)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *map = mmap(NULL, ROOM + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *end = map + ROOM;
    auto_free char *record = calloc(ROOM, 1);
    unsigned taken = 0;

    (void)state;
    assert_ptr_not_equal(map, MAP_FAILED);
    assert_int_equal(mprotect(end, page, PROT_NONE), 0);
    for (unsigned i = 0; i < ROUNDS; i++) {
        size_t len = mutate(record, make_record(record));
        struct error_report report = ERROR_REPORT_INIT;
        char *at = end - len;
        int rc;

        memcpy(at, record, len);
        rc = hutch_pyreport_parse(at, len, &report);
        if (rc != (is_record(at, len) ? 1 : 0))
            fail_msg("mutation %u of %zu bytes: %d", i, len, rc);
        if (rc == 0) {
            assert_null(report.name);
            continue;
        }
        taken++;
        check_text(report.name, at + PYREPORT_HEADER_LEN, get_length(at + 8));
        check_text(report.value, at + PYREPORT_HEADER_LEN + get_length(at + 8), get_length(at + 12));
        check_text(report.traceback, at + PYREPORT_HEADER_LEN + get_length(at + 8) + get_length(at + 12),
                   get_length(at + 16));
        hutch_error_report_done(&report);
    }
    assert_in_range(taken, ROUNDS / 10, ROUNDS * 9 / 10); /* neither all nor none */
    munmap(map, ROOM + page);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_mutations) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
