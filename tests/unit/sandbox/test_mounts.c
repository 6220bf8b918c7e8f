/* test_mounts.c - what exists inside is what was mounted: where each thing lands, what can be written, and that no link
 * of a hostile image leads out of its root. */
#include "tests/unit/box.h"

#include "sandbox/landlock.h"
#include "sandbox/rmtree.h"

#include <sys/mount.h>
#include <sys/stat.h>

/* A directory of the host with a small image in it, which the tests spoil as they like. */
struct place {
    char dir[48], image[64], outside[64];
    int dirfd, image_fd;
};

static int set_up(void **state)
{
    static const char *const dirs[] = { "usr", "proc", "dev", "tmp", "run", "mnt", "etc" };
    static const char *const links[] = { "bin", "lib", "lib64", "sbin" };
    struct place *p = calloc(1, sizeof(*p));
    auto_fd made = -1;

    strcpy(p->dir, "/tmp/hutch-test-mounts.XXXXXX");
    assert_non_null(mkdtemp(p->dir));
    assert_int_equal(chmod(p->dir, 0755), 0);
    snprintf(p->image, sizeof(p->image), "%s/image", p->dir);
    snprintf(p->outside, sizeof(p->outside), "%s/outside", p->dir);
    assert_int_equal(mkdir(p->image, 0755), 0);
    assert_int_equal(mkdir(p->outside, 0755), 0);
    assert_int_equal(chmod(p->outside, 0777), 0); /* only the sandbox keeps a process from writing there */
    p->dirfd = open(p->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    p->image_fd = open(p->image, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (size_t i = 0; i < ARRAY_SIZE(dirs); i++)
        assert_int_equal(mkdirat(p->image_fd, dirs[i], 0755), 0);
    for (size_t i = 0; i < ARRAY_SIZE(links); i++) {
        char text[16];

        snprintf(text, sizeof(text), "usr/%s", links[i]);
        assert_int_equal(symlinkat(text, p->image_fd, links[i]), 0);
    }
    made = openat(p->image_fd, "etc/image-file", O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    assert_int_equal(hutch_fd_write_all(made, "of the image\n", 13), 0);
    assert_int_equal(fchmod(made, 0666), 0);
    *state = p;
    return 0;
}

static int tear_down(void **state)
{
    static const char *const parts[] = { "image", "outside", "data" };
    struct place *p = *state;

    close(p->image_fd);
    for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
        struct hutch_err err = { .msg = "" };

        if (hutch_rmtree(p->dirfd, parts[i], &err) < 0)
            fail_msg("%s", err.msg);
    }
    close(p->dirfd);
    assert_int_equal(rmdir(p->dir), 0);
    free(p);
    return 0;
}

static struct sandbox_mount *add_mount(struct sandbox_spec *spec, enum sandbox_mount_kind kind, const char *source,
                                       const char *target, unsigned flags)
{
    struct hutch_err err;
    struct sandbox_mount *m = hutch_spec_add_mount(spec, kind, source, target, flags, &err);

    if (!m)
        fail_msg("%s", err.msg);
    return m;
}

/* A sandbox in the image, with the host's programs at /usr. No Landlock: the mounts alone have to hold. */
static void image_spec(struct sandbox_spec *spec, const struct place *p, const char *script)
{
    struct hutch_err err;

    box_spec(spec, script);
    spec->layers[LAYER_LANDLOCK] = NEED_OFF;
    spec->root_kind = ROOT_DIR;
    assert_int_equal(hutch_spec_set_string(&spec->rootfs_path, p->image, &err), 0);
    add_mount(spec, MOUNT_BIND, "/usr", "/usr", MOUNT_RDONLY);
}

static void host_spec(struct sandbox_spec *spec, const char *script)
{
    box_spec(spec, script);
    spec->layers[LAYER_LANDLOCK] = NEED_OFF;
}

static void expect(struct sandbox_spec *spec, const char *want)
{
    char *out = box_shell(spec);

    assert_string_equal(out, want);
    free(out);
}

static bool is_empty(const char *path)
{
    return rmdir(path) == 0 && mkdir(path, 0777) == 0 && chmod(path, 0777) == 0;
}

/* --- what can be written ------------------------------------------------------------------------------------------ */

/* Everything that the worker can write, but for /proc. */
static const char find_writable[] = "find / -path /proc -prune -o -writable ! -type l -print 2>/dev/null | sort";

static void test_the_root_is_read_only(void **state)
{
    static const char attempts[] =
        "for d in / /usr /etc /mnt /dev /proc /usr/bin; do mkdir $d/x 2>/dev/null && echo made $d/x; (: >$d/y) "
        "2>/dev/null && echo wrote $d/y; done;"
        "(echo x >>/etc/image-file) 2>/dev/null && echo appended; chmod 700 /etc/image-file 2>/dev/null && echo chmod;"
        "mv /etc/image-file /tmp/ 2>/dev/null && echo moved; rm -f /etc/image-file /bin 2>/dev/null && echo removed;"
        "touch /etc/image-file 2>/dev/null && echo touched; ln /etc/image-file /tmp/l 2>/dev/null && echo linked; "
        "echo end";
    struct place *p = *state;
    struct sandbox_spec spec;
    char script[2048];

    strcpy(stpcpy(script, attempts), "; echo x >/tmp/ok && cat /tmp/ok");
    image_spec(&spec, p, script);
    expect(&spec, "end\nx\n");
    image_spec(&spec, p, find_writable);
    expect(&spec, "/dev/full\n/dev/null\n/dev/pts/ptmx\n/dev/random\n/dev/shm\n/dev/urandom\n/dev/zero\n/tmp\n");
    {
        struct stat st;

        assert_int_equal(fstatat(p->image_fd, "etc/image-file", &st, 0), 0);
        assert_int_equal(st.st_size, 13);
    }
}

static void test_flags_of_every_mount(void **state)
{
    struct place *p = *state;
    struct sandbox_spec spec;
    char *out, *line, *save = NULL;
    int n = 0;

    for (int kind = 0; kind < 2; kind++) {
        if (kind == 0)
            image_spec(&spec, p, "cut -d' ' -f5,6 /proc/self/mountinfo");
        else
            host_spec(&spec, "cut -d' ' -f5,6 /proc/self/mountinfo");
        add_mount(&spec, MOUNT_BIND, p->outside, "/mnt", MOUNT_NOEXEC);
        out = box_shell(&spec);
        for (line = strtok_r(out, "\n", &save); line; line = strtok_r(NULL, "\n", &save), n++) {
            char *flags = strchr(line, ' ');
            bool is_device = strncmp(line, "/dev/", 5) == 0 && strncmp(line, "/dev/shm ", 9) != 0;
            bool is_writable = strncmp(line, "/tmp ", 5) == 0 || strncmp(line, "/mnt ", 5) == 0 ||
                               strncmp(line, "/proc ", 6) == 0 || strncmp(line, "/dev/", 5) == 0;

            print_message("  %s\n", line);
            assert_non_null(strstr(flags, "nosuid"));
            if (!is_device)
                assert_non_null(strstr(flags, "nodev"));
            if (!is_writable)
                assert_memory_equal(flags, " ro", 3);
            if (is_device || strncmp(line, "/mnt ", 5) == 0 || strncmp(line, "/dev", 4) == 0 ||
                strncmp(line, "/proc ", 6) == 0)
                assert_non_null(strstr(flags, "noexec"));
        }
        free(out);
    }
    assert_true(n > 20);
}

static void test_dev(void **state)
{
    struct sandbox_spec spec;

    (void)state;
    host_spec(
        &spec,
        "ls /dev | tr '\\n' ' '; echo; readlink /dev/stdin; head -c 3 /dev/zero | od -An -tx1; echo x >/dev/null;"
        "(echo x >/dev/full) 2>/dev/null || echo full; [ $(head -c 8 /dev/urandom | wc -c) = 8 ] && echo random;"
        "echo y >/dev/shm/y && cat /dev/shm/y; cp /bin/true /dev/shm/; /dev/shm/true 2>/dev/null || echo noexec;"
        "(: >/dev/new) 2>/dev/null || echo ro; rm -f /dev/null 2>/dev/null || echo stays; (: </dev/tty) 2>/dev/null "
        "|| echo no tty");
    expect(
        &spec,
        "fd full null ptmx pts random shm stderr stdin stdout urandom zero \n/proc/self/fd/0\n 00 00 00\nfull\n"
        "random\ny\nnoexec\nro\nstays\nno tty\n");
}

static void test_sizes(void **state)
{
    struct sandbox_spec spec;
    struct sandbox_mount *m;

    (void)state;
    host_spec(
        &spec,
        "head -c 2000000 /dev/zero 2>/dev/null >/tmp/big; stat -c %s /tmp/big;"
        "i=0; while (: >/mnt/$i) 2>/dev/null; do i=$((i+1)); done; echo $i; stat -c %a /mnt;"
        "head -c 200000 /dev/zero 2>/dev/null >/dev/shm/big; stat -c %s /dev/shm/big; df -k --output=size / | tail -1 "
        "| tr -d ' '");
    spec.limits[LIMIT_DATA_SIZE] = 3 << 20; /* what "/" says */
    spec.mounts[1].size_bytes = 128 << 10;  /* /dev: its shm */
    spec.mounts[2].size_bytes = 1 << 20;   /* /tmp */
    m = add_mount(&spec, MOUNT_TMPFS, NULL, "/mnt", 0);
    m->inodes = 20;
    m->mode = 01777;
    expect(&spec, "1048576\n19\n1777\n131072\n3072\n"); /* one inode is the directory's own */
    host_spec(&spec, "df -k --output=size,itotal /tmp | tail -1 | tr -s ' ' | sed 's/^ //'");
    expect(&spec, "65536 16400\n"); /* the defaults */
}

static void test_read_only_and_noexec(void **state)
{
    struct place *p = *state;
    struct sandbox_spec spec;

    host_spec(
        &spec,
        "(: >/run/x) 2>/dev/null || echo /run; (: >/mnt/ro/x) 2>/dev/null || echo /mnt/ro; : >/mnt/rw/x && echo rw;"
        "cat /run/hutch/a; stat -c %a /run/hutch/a; (echo >/run/hutch/a) 2>/dev/null || echo fixed; cp /bin/true "
        "/mnt/rw/; /mnt/rw/true 2>/dev/null || echo noexec; rm /mnt/rw/true /mnt/rw/x");
    add_mount(&spec, MOUNT_TMPFS, NULL, "/run", MOUNT_RDONLY);
    add_mount(&spec, MOUNT_TMPFS, NULL, "/mnt", 0);
    add_mount(&spec, MOUNT_BIND, p->outside, "/mnt/ro", MOUNT_RDONLY);
    add_mount(&spec, MOUNT_BIND, p->outside, "/mnt/rw", MOUNT_NOEXEC);
    {
        struct hutch_err err;

        assert_int_equal(hutch_spec_add_file(&spec, "/run/hutch/a", "text\n", 5, 0444, &err), 0);
    }
    expect(&spec, "/run\n/mnt/ro\nrw\ntext\n444\nfixed\nnoexec\n");
    assert_true(is_empty(p->outside));
}

/* --- hiding ------------------------------------------------------------------------------------------------------- */

static void test_masked_and_read_only_paths(void **state)
{
    static const char *const masked[] = { "/etc/image-file", "/usr/share",        "/proc/cpuinfo",
                                          "/nowhere",        "/etc/image-file/x", "/mnt/secret" };
    static const char *const readonly[] = { "/mnt/fixed", "/nowhere/at/all", "/proc/sys" };
    struct place *p = *state;
    struct sandbox_spec spec;
    struct hutch_err err;
    char path[96];

    snprintf(path, sizeof(path), "%s/fixed", p->outside);
    assert_int_equal(mkdir(path, 0777), 0);
    assert_int_equal(chmod(path, 0777), 0);
    snprintf(path, sizeof(path), "%s/secret", p->outside);
    close(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666));
    assert_int_equal(chmod(path, 0666), 0);
    image_spec(
        &spec, p,
        "cat /etc/image-file | wc -c; ls -A /usr/share | wc -l; (: >/usr/share/x) 2>/dev/null || echo ro; wc -c "
        "</proc/cpuinfo;"
        "(: >/mnt/fixed/x) 2>/dev/null || echo fixed; : >/mnt/free && echo free; wc -c </mnt/secret; rm /mnt/free;"
        "rm /mnt/secret 2>/dev/null || echo stays; mv /mnt/fixed /mnt/loose 2>/dev/null || echo in place");
    add_mount(&spec, MOUNT_BIND, p->outside, "/mnt", 0);
    assert_int_equal(hutch_spec_set_list(&spec.masked_paths, masked, ARRAY_SIZE(masked), &err), 0);
    assert_int_equal(hutch_spec_set_list(&spec.readonly_paths, readonly, ARRAY_SIZE(readonly), &err), 0);
    expect(&spec, "0\n0\nro\n0\nfixed\nfree\n0\nstays\nin place\n");
}

static void test_optional_sources(void **state)
{
    struct place *p = *state;
    struct sandbox_spec spec;

    host_spec(&spec, "ls -A /mnt");
    add_mount(&spec, MOUNT_TMPFS, NULL, "/mnt", 0);
    add_mount(&spec, MOUNT_BIND, "/no/such/source", "/mnt/missing", MOUNT_OPTIONAL);
    add_mount(&spec, MOUNT_BIND, p->outside, "/mnt/there", MOUNT_OPTIONAL);
    expect(&spec, "there\n");
}

/* A directory that the caller has open is mounted, or nothing is. */
static void test_a_source_that_was_replaced(void **state)
{
    struct place *p = *state;
    struct outcome *o;
    struct sandbox_spec spec;
    struct sandbox_mount *m;
    struct hutch_err err;
    struct stat st;
    struct box box;
    char want[256];

    assert_int_equal(stat(p->outside, &st), 0);
    snprintf(want, sizeof(want), "'%s' was replaced while the sandbox was made", p->outside);
    for (int i = 0; i < 2; i++) {
        host_spec(&spec, "echo ran");
        m = add_mount(&spec, MOUNT_BIND, p->outside, "/mnt", 0);
        m->dev = st.st_dev;
        m->ino = st.st_ino + (ino_t)i;
        if (i == 0) {
            expect(&spec, "ran\n");
        } else if (geteuid() == 0) { /* root opens sources before anything starts */
            assert_int_equal(box_start(&spec, &box, &err), -1);
            assert_non_null(strstr(err.msg, want));
            hutch_spec_done(&spec);
        } else {
            o = box_run_spec(&spec);
            assert_true(o->setup_failed);
            assert_non_null(strstr(o->err.msg, want));
            free(o);
        }
    }
}

/* Where an optional source is missing, Landlock does not open a hole and does not fail. */
static void test_optional_sources_and_landlock(void **state)
{
    struct sandbox_spec spec;

    (void)state;
    if (hutch_landlock_abi() == 0) {
        print_message("skip: landlock: this kernel does not offer it\n");
        skip();
    }
    box_spec(&spec, "echo ok");
    add_mount(&spec, MOUNT_BIND, "/no/such/source", "/mnt/missing", MOUNT_OPTIONAL);
    expect(&spec, "ok\n");
}

/* --- a hostile image ---------------------------------------------------------------------------------------------- */

static void link_in_image(const struct place *p, const char *name, const char *text)
{
    unlinkat(p->image_fd, name, AT_REMOVEDIR);
    assert_int_equal(symlinkat(text, p->image_fd, name), 0);
}

/* /mnt is a link that would lead out if it were followed as the host sees it; it has to lead to a place in the
 * image. */
static void test_links_stay_inside(void **state)
{
    static const struct { const char *label, *text; } rows[] = {
        { "absolute", "%s" },
        { "relative, above the root", "../../../../../../../../../..%s" },
        { "through the image's own proc", "/proc/1/root%s" },
        { "through the builder's root", "/proc/self/root%s" },
        { "through a descriptor", "/proc/self/cwd%s" },
    };
    struct place *p = *state;

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        for (int target = 0; target < 3; target++) {
            struct outcome *o = calloc(1, sizeof(*o));
            struct sandbox_spec spec;
            struct hutch_err err = { .msg = "" };
            char text[160];
            struct box box;
            struct stat st;

            unlinkat(p->image_fd, "mnt", 0);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
            snprintf(text, sizeof(text), rows[i].text, p->outside);
#pragma GCC diagnostic pop
            link_in_image(p, "mnt", text);
            image_spec(&spec, p,
                       "(echo x >/mnt/witness) 2>/dev/null; (echo x >/mnt/data/witness) 2>/dev/null; echo ran");
            if (target == 0) {
                add_mount(&spec, MOUNT_TMPFS, NULL, "/mnt", 0)->mode = 0777;
            } else if (target == 1) {
                add_mount(&spec, MOUNT_TMPFS, NULL, "/mnt/data", 0)->mode = 0777;
            } else {
                assert_int_equal(hutch_spec_add_file(&spec, "/mnt/file", "x", 1, 0666, &err), 0);
            }
            if (box_start(&spec, &box, &err) == 0) {
                box_finish(&box, o);
                print_message("  %s, %s: %s\n", rows[i].label,
                              (const char *[]){ "tmpfs", "tmpfs below", "file below" }[target],
                              o->setup_failed ? o->err.msg : "started");
                assert_true(o->setup_failed || o->is_started);
            }
            assert_true(is_empty(p->outside)); /* nothing was made or written where the link led */
            assert_int_equal(stat("/mnt/witness", &st), -1);
            hutch_spec_done(&spec);
            free(o);
        }
}

static void test_links_into_the_image_are_followed(void **state)
{
    struct place *p = *state;
    struct sandbox_spec spec;

    link_in_image(p, "mnt", "/etc"); /* the image's */
    image_spec(&spec, p, "ls -A /etc; echo x >/mnt/x && cat /etc/x");
    add_mount(&spec, MOUNT_TMPFS, NULL, "/mnt", 0)->mode = 0777;
    expect(&spec, "x\n"); /* covered: ls shows nothing */
}

static void test_a_link_that_turns_in_a_circle(void **state)
{
    struct place *p = *state;
    struct outcome *o;
    struct sandbox_spec spec;

    link_in_image(p, "mnt", "mnt");
    image_spec(&spec, p, "echo ran");
    add_mount(&spec, MOUNT_TMPFS, NULL, "/mnt", 0);
    o = box_run_spec(&spec);
    assert_true(o->setup_failed);
    assert_string_equal(o->err.msg,
                        "build the mount tree: open the mount point '/mnt': Too many levels of symbolic links");
    free(o);
}

static void test_links_in_place_of_masked_paths(void **state)
{
    static const char *const masked[] = { "/etc/link" };
    struct place *p = *state;
    struct sandbox_spec spec;
    struct hutch_err err;
    char path[96];

    snprintf(path, sizeof(path), "%s/precious", p->outside);
    close(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
    assert_int_equal(symlinkat(path, p->image_fd, "etc/link"), 0);
    image_spec(&spec, p, "cat /etc/link 2>/dev/null || echo nothing there");
    assert_int_equal(hutch_spec_set_list(&spec.masked_paths, masked, 1, &err), 0);
    expect(&spec, "nothing there\n");
    assert_int_equal(unlink(path), 0);
}

/* A link of the spec's own is made inside, whatever the image has on the way. */
static void test_symlinks(void **state)
{
    struct place *p = *state;
    struct sandbox_spec spec;

    image_spec(&spec, p, "readlink /tmp/link; readlink /tmp/a/b/link");
    add_mount(&spec, MOUNT_TMPFS, NULL, "/tmp/a", 0);
    add_mount(&spec, MOUNT_SYMLINK, "/etc/passwd", "/tmp/link", 0);
    add_mount(&spec, MOUNT_SYMLINK, "../x", "/tmp/a/b/link", 0);
    expect(&spec, "/etc/passwd\n../x\n");

    image_spec(&spec, p, "readlink /etc/link; readlink /new/link; cat /etc/image-file");
    add_mount(&spec, MOUNT_SYMLINK, "image-file", "/etc/link", 0); /* which the image, read-only, does not have */
    add_mount(&spec, MOUNT_SYMLINK, "there", "/new/link", 0);
    expect(&spec, "image-file\nthere\nof the image\n");

    link_in_image(p, "mnt", p->outside);
    {
        auto_fd fd = open(p->outside, O_PATH | O_CLOEXEC);
        struct outcome *o;

        image_spec(&spec, p, "echo ran");
        add_mount(&spec, MOUNT_TMPFS, NULL, "/mnt", 0);
        add_mount(&spec, MOUNT_SYMLINK, "x", "/mnt/link", 0);
        o = box_run_spec(&spec);
        assert_true(o->setup_failed || o->is_started);
        free(o);
        assert_int_equal(faccessat(fd, "link", F_OK, AT_SYMLINK_NOFOLLOW), -1);
    }
    assert_true(is_empty(p->outside));
}

static void test_symlink_over_something(void **state)
{
    struct place *p = *state;
    struct outcome *o;
    struct sandbox_spec spec;

    image_spec(&spec, p, "echo ran");
    add_mount(&spec, MOUNT_SYMLINK, "x", "/etc/image-file", 0);
    o = box_run_spec(&spec);
    assert_true(o->setup_failed);
    assert_string_equal(o->err.msg, "build the mount tree: link '/etc/image-file' to 'x': File exists");
    free(o);
}

/* --- mount points that the image lacks ---------------------------------------------------------------------------- */

static void test_missing_mount_points(void **state)
{
    struct place *p = *state;
    struct sandbox_spec spec;
    char path[96];
    auto_fd fd = -1;

    snprintf(path, sizeof(path), "%s/file", p->outside);
    fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    assert_int_equal(hutch_fd_write_all(fd, "a file\n", 7), 0);
    assert_int_equal(unlinkat(p->image_fd, "tmp", AT_REMOVEDIR), 0);
    assert_int_equal(unlinkat(p->image_fd, "dev", AT_REMOVEDIR), 0);
    assert_int_equal(unlinkat(p->image_fd, "proc", AT_REMOVEDIR), 0);
    image_spec(
        &spec, p,
        "echo x >/tmp/x && cat /tmp/x /etc/image-file; echo >/dev/null; ls -d /a/b/c; cat /f/ile; (: >/a/y) "
        "2>/dev/null || echo ro;"
        "(: >/y) 2>/dev/null || echo ro; cat /proc/self/comm");
    add_mount(&spec, MOUNT_TMPFS, NULL, "/a/b/c", 0);
    add_mount(&spec, MOUNT_BIND, path, "/f/ile", MOUNT_RDONLY);
    expect(&spec, "x\nof the image\n/a/b/c\na file\nro\nro\ncat\n");
    assert_int_equal(faccessat(p->image_fd, "tmp", F_OK, 0), -1); /* the image itself is as it was */
    assert_int_equal(faccessat(p->image_fd, "a", F_OK, 0), -1);
}

/* --- /etc/hosts --------------------------------------------------------------------------------------------------- */

/* The sandbox's own file, whatever the image has in its place; without an overlay, in the place of a file. */
static void test_hosts(void **state)
{
    enum { NONE, PLAIN, UNREADABLE, LINK, FIFO, DIRECTORY, N_KINDS };
    static const char *const names[N_KINDS] = { "none", "file", "unreadable file", "link", "fifo", "directory" };
    static const char look[] = "grep -v ^::1 /etc/hosts; (: >>/etc/hosts) 2>/dev/null && echo written; "
                               "cat /etc/image-file";
    struct place *p = *state;

    for (int kind = 0; kind < N_KINDS; kind++)
        for (int overlay = 0; overlay < 2; overlay++) {
            bool is_file = kind == PLAIN || kind == UNREADABLE;
            struct sandbox_spec spec;
            char want[256];

            print_message("  %s, %s\n", names[kind], overlay ? "overlay" : "no overlay");
            if (is_file) {
                auto_fd fd = openat(p->image_fd, "etc/hosts", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);

                assert_int_equal(hutch_fd_write_all(fd, "10.0.0.1 db\n", 12), 0);
                assert_int_equal(fchmod(fd, kind == PLAIN ? 0644 : 0), 0);
            } else if (kind == LINK) {
                assert_int_equal(symlinkat("image-file", p->image_fd, "etc/hosts"), 0);
            } else if (kind == FIFO) {
                assert_int_equal(mkfifoat(p->image_fd, "etc/hosts", 0644), 0);
            } else if (kind == DIRECTORY) {
                assert_int_equal(mkdirat(p->image_fd, "etc/hosts", 0755), 0);
            }
            image_spec(&spec, p, overlay || is_file ? look : "cat /etc/image-file");
            spec.layers[LAYER_OWN_INODES] = overlay ? NEED_REQUIRE : NEED_OFF;
            snprintf(want, sizeof(want), "%s%sof the image\n",
                     overlay || is_file ? "127.0.0.1 localhost\n127.0.1.1 hutch\n" : "",
                     kind == PLAIN ? "10.0.0.1 db\n" : "");
            expect(&spec, want);
            unlinkat(p->image_fd, "etc/hosts", kind == DIRECTORY ? AT_REMOVEDIR : 0);
        }
}

/* Nothing is laid over a link of the image's. */
static void test_hosts_where_etc_is_a_link(void **state)
{
    struct place *p = *state;
    struct sandbox_spec spec;

    assert_int_equal(unlinkat(p->image_fd, "etc/image-file", 0), 0);
    assert_int_equal(unlinkat(p->image_fd, "etc", AT_REMOVEDIR), 0);
    assert_int_equal(symlinkat("tmp", p->image_fd, "etc"), 0);
    image_spec(&spec, p, "readlink /etc; ls -A /etc/");
    expect(&spec, "tmp\n");
}

/* A mount of the caller's at that place is on top. */
static void test_hosts_of_the_caller(void **state)
{
    struct place *p = *state;
    struct sandbox_spec spec;
    char path[96];
    auto_fd fd = -1;

    snprintf(path, sizeof(path), "%s/hosts", p->outside);
    fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    assert_int_equal(hutch_fd_write_all(fd, "10.0.0.1 db\n", 12), 0);
    image_spec(&spec, p, "cat /etc/hosts");
    add_mount(&spec, MOUNT_BIND, path, "/etc/hosts", MOUNT_RDONLY);
    expect(&spec, "10.0.0.1 db\n");
    assert_int_equal(unlink(path), 0);
}

/* --- who owns what ------------------------------------------------------------------------------------------------ */

static void test_owner_of_the_data(void **state)
{
    static const struct { uid_t uid; gid_t gid; } owners[] = { { 0, 0 }, { 12345, 54321 }, { 65534, 65534 } };
    struct place *p = *state;
    char data[64], file[80];

    snprintf(data, sizeof(data), "%s/data", p->dir);
    snprintf(file, sizeof(file), "%s/new", data);
    for (size_t i = 0; i < (geteuid() == 0 ? ARRAY_SIZE(owners) : 1); i++) {
        uid_t uid = geteuid() == 0 ? owners[i].uid : geteuid();
        gid_t gid = geteuid() == 0 ? owners[i].gid : getegid();
        struct sandbox_spec spec;
        struct stat st;

        assert_int_equal(mkdir(data, 0700), 0);
        if (geteuid() == 0)
            assert_int_equal(chown(data, uid, gid), 0);
        image_spec(
            &spec, p,
            "stat -c '%u %g' /mnt; echo x >/mnt/new && stat -c '%u %g' /mnt/new; chmod 4755 /mnt/new && stat -c %a "
            "/mnt/new;"
            "chown 0 /mnt/new 2>/dev/null && echo given away; :");
        add_mount(&spec, MOUNT_BIND, data, "/mnt", MOUNT_IDMAP | MOUNT_DATA);
        expect(&spec, "1000 1000\n1000 1000\n4755\n");
        assert_int_equal(stat(file, &st), 0);
        assert_int_equal(st.st_uid, uid);
        assert_int_equal(st.st_gid, gid);
        assert_int_equal(unlink(file), 0);
        assert_int_equal(rmdir(data), 0);
    }
}

/* Without MOUNT_IDMAP, what belongs to root stays out of reach for a sandbox that root started. */
static void test_without_idmap_permissions_hold(void **state)
{
    struct place *p = *state;
    struct sandbox_spec spec;
    char data[64];

    if (geteuid() != 0) {
        print_message("skip: only root's sandboxes have another host uid\n");
        skip();
    }
    snprintf(data, sizeof(data), "%s/data", p->dir);
    assert_int_equal(mkdir(data, 0700), 0);
    image_spec(&spec, p, "ls /mnt 2>/dev/null || echo closed; (: >/mnt/x) 2>/dev/null || echo closed");
    add_mount(&spec, MOUNT_BIND, data, "/mnt", 0);
    expect(&spec, "closed\nclosed\n");
}

/* --- the host's root ---------------------------------------------------------------------------------------------- */

static void test_host_root_shows_little(void **state)
{
    struct sandbox_spec spec;

    (void)state;
    host_spec(
        &spec,
        "ls -A / | grep -vE '^(bin|dev|etc|lib|lib32|lib64|libx32|mnt|proc|run|sbin|tmp|usr)$'; cat /etc/passwd "
        "/etc/group;"
        "ls -A /run /mnt/data; ls /etc/shadow /etc/ssh /root /home /var /sys /boot 2>/dev/null; "
        "grep -v ^::1 /etc/hosts");
    expect(&spec, "user:x:1000:1000:user:/tmp:/bin/sh\nuser:x:1000:\n/mnt/data:\n\n/run:\n127.0.0.1 localhost\n"
                  "127.0.1.1 hutch\n");
}

/* Later mounts cover earlier ones and nothing of the host's tree stays mounted underneath. */
static void test_nothing_of_the_host_stays_mounted(void **state)
{
    struct place *p = *state;
    struct sandbox_spec spec;
    char *out;

    image_spec(&spec, p, "cut -d' ' -f5 /proc/self/mountinfo");
    out = box_shell(&spec);
    for (char *save = NULL, *line = strtok_r(out, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
        if (strcmp(line, "/") != 0 && strncmp(line, "/usr", 4) != 0 && strncmp(line, "/proc", 5) != 0 &&
            strncmp(line, "/dev", 4) != 0 && strcmp(line, "/tmp") != 0)
            fail_msg("'%s' is mounted", line);
    free(out);
}

/* A mount of the host below a bind source comes along: leaving it out would uncover what it hides. */
static void test_mounts_below_a_source(void **state)
{
    struct place *p = *state;
    struct sandbox_spec spec;
    char below[80];

    snprintf(below, sizeof(below), "%s/below", p->outside);
    assert_int_equal(mkdir(below, 0755), 0);
    if (mount("tmpfs", below, "tmpfs", 0, "size=64k,mode=0777") < 0) {
        print_message("skip: mounting on the host needs CAP_SYS_ADMIN\n");
        skip();
    }
    image_spec(&spec, p,
               "(: >/mnt/below/x) 2>/dev/null || echo ro; grep -c ' /mnt/below ro,nosuid,nodev' /proc/self/mountinfo");
    add_mount(&spec, MOUNT_BIND, p->outside, "/mnt", MOUNT_RDONLY);
    {
        char *out = box_shell(&spec);

        assert_int_equal(umount2(below, MNT_DETACH), 0);
        assert_string_equal(out, "ro\n1\n");
        free(out);
    }
}

/* Changes of the host's mounts do not come in, and none go out. */
static void test_no_propagation(void **state)
{
    struct place *p = *state;
    struct sandbox_spec spec;

    image_spec(&spec, p, "grep -cE ' (shared|master|propagate_from):' /proc/self/mountinfo; :");
    expect(&spec, "0\n");
}

int main(void)
{
#define T(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        T(test_the_root_is_read_only),
        T(test_flags_of_every_mount),
        T(test_dev),
        T(test_sizes),
        T(test_read_only_and_noexec),
        T(test_masked_and_read_only_paths),
        T(test_optional_sources),
        T(test_a_source_that_was_replaced),
        T(test_optional_sources_and_landlock),
        T(test_links_stay_inside),
        T(test_links_into_the_image_are_followed),
        T(test_a_link_that_turns_in_a_circle),
        T(test_links_in_place_of_masked_paths),
        T(test_symlinks),
        T(test_symlink_over_something),
        T(test_missing_mount_points),
        T(test_hosts),
        T(test_hosts_where_etc_is_a_link),
        T(test_hosts_of_the_caller),
        T(test_owner_of_the_data),
        T(test_without_idmap_permissions_hold),
        T(test_host_root_shows_little),
        T(test_nothing_of_the_host_stays_mounted),
        T(test_mounts_below_a_source),
        T(test_no_propagation),
    };

    alarm(100); /* ends a test that hangs */
    return cmocka_run_group_tests_name("mounts", tests, NULL, NULL);
}
