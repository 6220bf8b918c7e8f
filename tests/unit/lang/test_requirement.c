/* Requirements of Python programs: one spelling for the same, and a sentence for what is none. */
#include "runtime/lang/requirement.h"

#include "sandbox/fd.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <cmocka.h>

static const struct { const char *label, *text, *want; } words[] = {
    { "one", "rich", "rich" },
    { "several", "rich, Polars >= 1 , < 2,x", "polars>=1,<2|rich|x" },
    { "the same", "Ri_.-ch,ri-ch", "ri-ch" },
    { "extras", "Uvicorn[standard, x] ; python_version > '3'", "uvicorn[standard,x];python_version>'3'" },
    { "a marker", "a; os_name == 'x y'  and b", "a;os_name=='x y' and b" },
    { "a URL", "a @ https://x/y.whl", "a@https://x/y.whl" },
    { "named like one", "httpx", "httpx" },
    { "an option", "-r x", "is an option of pip's" },
    { "a path", "./x", "has no name" },
    { "a repository", "git+https://x", "has no name" },
    { "nothing", "a,,b", "is none" },
    { "empty", "", "a requirement is empty" },
    { "a line", "a\nb", "has a character that no requirement has" },
    { "no name", "a$b", "is none" },
    { "a path behind a version", "x>=1/../../../mnt/wheels/evil.whl", "has a '/' in it" },
    { "a path behind an extra", "x[a]>=1/./evil.whl", "has a '/' in it" },
    { "a slash in a marker", "x; platform_version=='a/b'", "x;platform_version=='a/b'" },
    { "a comma behind it", "a ,<2", "is none" },
    { "two names", "a b", "is none" },
    { "an option behind it", "a --no-binary=:all:", "has an option of pip's behind it" },
    { "an option within quotes", "a; os_name == 'x --no-binary=:all:'", "has an option of pip's behind it" },
    { "an option behind a tab", "a; x == 'y\t--pre'", "has an option of pip's behind it" },
    { "an option behind a hash", "a --hash=sha256:00 --pre", "has an option of pip's behind it" },
    { "no hash", "a --hash=sha256:0x", "has an option of pip's behind it" },
    { "a variable", "a @ https://x/${HTTPS_PROXY}/a.whl", "has a '$'" },
    { "a source at a URL", "a @ https://x/a.tar.gz", "is neither a package of the index nor a wheel" },
    { "without TLS", "a[b] @ http://x/a.whl", "is neither a package of the index nor a wheel" },
    { "a file", "a@file:///x/a.whl", "is neither a package of the index nor a wheel" },
    { "an ending behind it", "a @ https://x/a.zip#a.whl", "is neither a package of the index nor a wheel" },
};

static const struct { const char *label, *text, *want; } scripts[] = {
    { "none", "import x\n", "" },
    { "one", "#!x\n# /// script\n# dependencies = ['a']\n# ///\nimport x\n", "a" },
    { "lines",
      "# /// script\n# requires-python = '>=3'\n# dependencies = [ # these\n#   \"b\", # it\n#   'a',\n"
      "# ]\n# ///\n", "a|b" },
    { "another key", "# /// script\n# my-dependencies = ['a']\n# ///\n", "" },
    { "in a table", "# /// script\n# [tool.x]\n# dependencies = ['a']\n# ///\n", "" },
    { "another block", "# /// other\n# dependencies = ['a']\n# ///\n", "" },
    { "carriage returns", "# /// script\r\n# dependencies = ['a']\r\n# ///\r\n", "a" },
    { "no end", "# /// script\n# dependencies = ['a']\n", "has no end" },
    { "two", "# /// script\n# ///\n\n# /// script\n# ///\n", "two blocks" },
    { "no list", "# /// script\n# dependencies = 'a'\n# ///\n", "are not a list of texts" },
    { "cut off", "# /// script\n# dependencies = ['a', 'b\n# ///\n", "are not a list of texts" },
    { "a URL", "# /// script\n# dependencies = ['a @ https://x/a.whl']\n# ///\n", "a script may not have asked for" },
    { "a path", "# /// script\n# dependencies = ['x>=1/../evil.whl']\n# ///\n", "has a '/' in it" },
    { "an option", "# /// script\n# dependencies = ['a --pre']\n# ///\n", "has an option of pip's behind it" },
    { "escapes", "# /// script\n# dependencies = [\"a\\\"\"]\n# ///\n", "are not a list of texts" },
};

static const struct { const char *label, *text, *want; } files[] = {
    { "comments", "# all\na # it\n\nb#c\n", "is none" },
    { "hashes",
      "a==1 \\\n  --hash=sha256:00 \\\r\n --hash=sha256:11\nb\n", "a==1 --hash=sha256:00 --hash=sha256:11|b" },
    { "a mark", "\xef\xbb\xbf" "a\n", "a" },
    { "an option", "a\n-e .\n", "requirement 2 of the file" },
};

static void check(const char *label, int rc, const struct requirement_list *list, const struct hutch_err *err,
                  const char *want)
{
    char got[512] = "";

    for (size_t i = 0; rc == 0 && i < list->n; i++)
        snprintf(got + strlen(got), sizeof(got) - strlen(got), "%s%s", i ? "|" : "", list->texts[i]);
    if (rc == 0 ? strcmp(got, want) != 0 : !strstr(err->msg, want))
        fail_msg("%s: %s", label, rc == 0 ? got : err->msg);
}

static void test_words(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
        struct requirement_list list = REQUIREMENT_LIST_INIT;
        struct hutch_err err = { .msg = "" };

        check(words[i].label, hutch_requirement_add_words(&list, words[i].text, &err), &list, &err, words[i].want);
        hutch_requirement_list_done(&list);
    }
}

static void test_scripts(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(scripts); i++) {
        struct requirement_list list = REQUIREMENT_LIST_INIT;
        struct hutch_err err = { .msg = "" };

        check(scripts[i].label, hutch_requirement_add_script(&list, scripts[i].text, strlen(scripts[i].text), &err),
              &list, &err, scripts[i].want);
        hutch_requirement_list_done(&list);
    }
}

static void test_files(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
        struct requirement_list list = REQUIREMENT_LIST_INIT;
        struct hutch_err err = { .msg = "" };

        check(files[i].label, hutch_requirement_add_file(&list, files[i].text, strlen(files[i].text), &err), &list,
              &err, files[i].want);
        hutch_requirement_list_done(&list);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_words),
        cmocka_unit_test(test_scripts),
        cmocka_unit_test(test_files),
    };

    return cmocka_run_group_tests_name("requirement", tests, NULL, NULL);
}
