/* test_python_complete.c - when a prompt asks for another line. */
#include "runtime/lang/python_complete.h"

#include "sandbox/fd.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct {
    const char *text;
    bool want;
} cases[] = {
    { "", true },
    { "\n", true },
    { "   \n", true },
    { "# only a comment\n", true },
    { "1 + 1\n", true },
    { "x = 1; y = 2\n", true },
    { "    indented = 1\n", true }, /* IPython takes the indentation of the first line away */
    { "print('a:')\n", true },

    { "f(\n", false },
    { "f(\n1)\n", true },
    { "x = [1,\n", false },
    { "x = [1,\n\n", false }, /* an empty line closes no bracket */
    { "x = {'a': [1, (2,\n 3)]}\n", true },
    { "d = {'a':\n", false },
    { "f)\n", true },  /* can never become Python: Python says so */
    { "f(]\n", true },
    { "f(# )\n", false },
    { "f(')'\n", false },

    { "'''a\n", false },
    { "'''a\n\n", false },
    { "'''a\nb'''\n", true },
    { "'''a'\"\"\"\n", false },
    { "'''a\\'''\n", false },
    { "\"\"\"a\"\"\" + '''b\n", false },
    { "''\n", true },
    { "''''''\n", true },
    { "'it''s'\n", true },
    { "'a\n", true }, /* unterminated for ever */
    { "'a\\\n", false },
    { "'a\\\nb'\n", true },
    { "'a\\'\n", true },
    { "'\\\\'\n", true },
    { "r'\\'\n", true },
    { "f'{x!r:>{width}}'\n", true },
    { "x = 'a#b('\n", true },

    { "x = 1 + \\\n", false },
    { "x = 1 + \\\n2\n", true },
    { "# comment \\\n", true },

    { "if x:\n", false },
    { "if x: # why\n", false },
    { "if x:\n\n", false }, /* a body has to come */
    { "if x:\n    y\n", false },
    { "if x:\n    y\n\n", true },
    { "if x:\n    y\n  \n", true },
    { "if x:\n    y\nelse:\n", false },
    { "if x:\n    y\nelse:\n    z\n", false },
    { "if x:\n    y\nelse:\n    z\n\n", true },
    { "if x: y\n", true },
    { "if x:\n    y\nz\n", true }, /* back at the margin */
    { "if x:\n\ty\n", false },
    { "if x:\n    f(1,\n2)\n", false },
    { "if x:\n    '''a\nb'''\n\n", true },
    { "for i in range(3):\n    if i:\n        print(i)\n# comment\n", false },
    { "def f(a,\n      b):\n", false },
    { "def f(a,\n      b):\n    return a\n\n", true },
    { "async def f():\n    await g()\n\n", true },
    { "  if x:\n", false },
    { "  if x:\n      y\n", false },
    { "  if x:\n      y\n  z\n", true },
    { "@cache\n", false },
    { "@cache\ndef f():\n    pass\n\n", true },
    { "a @ b\n", true },
    { "x = lambda:\n", false },
    { "x[1:]\n", true },
    { "x[1:\n", false },
    { "match x:\n    case 1:\n", false },

    { "!echo '(\n", true },
    { "  !echo '(\n", true },
    { "%timeit f('\n", true },
    { "!echo a \\\n", false },
    { "!echo a \\\nb:\n", true },
    { "files = !ls '(\n", true },
    { "x = %who_ls (\n", true },
    { "x %= (\n", false },
    { "x != (\n", false },
    { "x = 5 % (\n", false },
    { "?print\n", true },
    { "print?\n", true },
    { "if x:\n    !ls '\n", false },
    { "if x:\n    !ls '\n\n", true },

    { "%%bash\n", false },
    { "%%bash\necho '(\n", false },
    { "%%bash\necho '(\n\n", true },
    { "\n%%time\n", false },
};

static void test_cases(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        if (hutch_py_is_complete(cases[i].text, strlen(cases[i].text)) != cases[i].want)
            fail_msg("'%s' should %s", cases[i].text, cases[i].want ? "be whole" : "go on");
}

/* No text makes it read beyond its end; the copy has no byte after it, which the sanitizers see. */
static void test_every_beginning(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        for (size_t len = 0; len <= strlen(cases[i].text); len++) {
            char *copy = malloc(len ? len : 1);

            assert_non_null(copy);
            memcpy(copy, cases[i].text, len);
            hutch_py_is_complete(copy, len);
            free(copy);
        }
}

static void test_many_brackets(void **state)
{
    char text[1001];

    (void)state;
    memset(text, '(', 1000);
    text[1000] = '\n';
    assert_true(hutch_py_is_complete(text, sizeof(text))); /* more than Python takes */
    text[100] = '\n';
    assert_false(hutch_py_is_complete(text, 101));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),
        cmocka_unit_test(test_every_beginning),
        cmocka_unit_test(test_many_brackets),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
