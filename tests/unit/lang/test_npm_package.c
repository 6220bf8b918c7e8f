/* Packages of Node programs: names and ranges, and a sentence for what is neither. */
#include "runtime/lang/npm_package.h"

#include "sandbox/fd.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static const struct { const char *label, *text, *want; } words[] = {
    { "one", "frob", "frob@*" },
    { "several, sorted", "b@^1.2,a@1.x || >=2.5 <3,@s/c@latest", "@s/c@latest,a@1.x || >=2.5 <3,b@^1.2" },
    { "the same twice", "a@1,a@1", "a@1" },
    { "spaces", " a@1 , b ", "a@1,b@*" },
    { "spaces alone", " ", "'' is no name of a package" },
    { "twice", "a@1,a@2", "is asked for twice, as '1' and as '2'" },
    { "nothing", "a,,b", "'' is no name of a package" },
    { "a path", "./a", "'./a' is no name" },
    { "an option", "--global", "'--global' is no name" },
    { "a scope alone", "@s", "'@s' is no name" },
    { "a scope that leads up", "@s/..", "is no name" },
    { "a URL", "a@https://x/a.tgz", "which is no range of versions" },
    { "a repository", "a@x/y", "which is no range of versions" },
    { "an alias", "a@npm:b@1", "which is no range of versions" },
    { "this directory", "a@.", "which is no range of versions" },
    { "a variable", "a@${HOME}", "which is no range of versions" },
    { "a line", "a@1\n", "which is no range of versions" },
    { "empty", "a@", "which is no range of versions" },
    { "blank", "a@ ", "which is no range of versions" },
};

static const struct { const char *label, *text, *want; } manifests[] = {
    { "none", "{\"name\": \"x\", \"version\": \"1.0.0\"}", "" },
    { "one", "{\"dependencies\": {\"frob\": \"^1\"}, \"scripts\": {\"install\": \"rm -rf /\"}}", "frob@^1" },
    { "those that are installed",
      "{\"optionalDependencies\": {\"b\": \"\"}, \"peerDependencies\": {\"c\": \"2\"},"
      " \"devDependencies\": {\"d\": \"x/y\"}}",
      "c@2" },
    { "a peer that the program has",
      "{\"peerDependencies\": {\"c\": \">=2\", \"p\": \"1\"}, \"dependencies\": {\"c\": \"2.1.3\"}}", "c@2.1.3,p@1" },
    { "blanks around a range", "{\"dependencies\": {\"a\": \" \", \"b\": \" >=1 <2 \"}}", "a@*,b@>=1 <2" },
    { "an option behind a blank", "{\"dependencies\": {\"a\": \" -g\"}}", "no range of versions" },
    { "a URL", "{\"dependencies\": {\"a\": \"http://127.0.0.1/a.tgz\"}}", "no range of versions" },
    { "a file", "{\"dependencies\": {\"a\": \"file:../a\"}}", "no range of versions" },
    { "hidden behind another",
      "{\"dependencies\": {}, \"dependencies\": {\"a\": \"git+https://x\"}}", "no range of versions" },
    { "no text", "{\"dependencies\": {\"a\": {\"b\": 1}}}", "something that is no text" },
    { "a list", "{\"dependencies\": [\"a\"]}", "is no object" },
    { "overrides", "{\"overrides\": {\"a\": \"file:x\"}}", "it has \"overrides\"" },
    { "workspaces", "{\"workspaces\": [\"a\"]}", "it has \"workspaces\"" },
    { "a prototype", "{\"dependencies\": {\"__proto__\": \"1\"}}", "is no name" },
    { "no object", "[]", "it is no object" },
    { "no JSON", "{", "package.json" },
};

static void check(const char *label, int rc, const struct npm_packages *packages, const struct hutch_err *err,
                  const char *want)
{
    struct hutch_err why;
    auto_free char *got = rc == 0 ? hutch_npm_packages_print(packages, &why) : NULL;

    if (rc == 0 ? strcmp(got, want) != 0 : !strstr(err->msg, want))
        fail_msg("%s: %s", label, rc == 0 ? got : err->msg);
}

static void test_words(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
        auto_npm_packages packages = NPM_PACKAGES_INIT;
        struct hutch_err err = { .msg = "" };

        check(words[i].label, hutch_npm_packages_add(&packages, words[i].text, &err), &packages, &err, words[i].want);
    }
}

static void test_manifests(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(manifests); i++) {
        auto_npm_packages packages = NPM_PACKAGES_INIT;
        struct hutch_err err = { .msg = "" };

        check(manifests[i].label,
              hutch_npm_packages_add_manifest(&packages, manifests[i].text, strlen(manifests[i].text), &err), &packages,
              &err, manifests[i].want);
    }
}

static void test_as_a_manifest(void **state)
{
    auto_npm_packages packages = NPM_PACKAGES_INIT;
    auto_free char *text = NULL;
    struct hutch_err err;

    (void)state;
    assert_int_equal(hutch_npm_packages_add(&packages, "b@1,a", &err), 0);
    text = hutch_npm_packages_print_manifest(&packages, &err);
    assert_string_equal(text, "{\"dependencies\":{\"a\":\"*\",\"b\":\"1\"}}");
}

static void test_what_is_a_package(void **state)
{
    (void)state;
    assert_true(hutch_npm_is_package("a@1"));
    assert_true(hutch_npm_is_package("@s/a"));
    assert_false(hutch_npm_is_package("package.json"));
    assert_false(hutch_npm_is_package("./x@1/package.json"));
    assert_false(hutch_npm_is_package("/x@1"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_words),
        cmocka_unit_test(test_manifests),
        cmocka_unit_test(test_as_a_manifest),
        cmocka_unit_test(test_what_is_a_package),
    };

    return cmocka_run_group_tests_name("npm_package", tests, NULL, NULL);
}
