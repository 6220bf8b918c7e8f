"""Programs of the kind that models write, in the image they are for: warm by hutch batch, and some of them cold by hutch run."""
import pytest

import snippets
import support

ALL = snippets.read()
IMAGES = sorted({snippet.image for snippet in ALL})
# Which run cold as well: of each kind of expectation, and what a zygote could have prepared otherwise.
COLD = ("charts: line chart with two series, saved as PNG", "charts: title in Chinese, Japanese and Korean without empty boxes",
        "excel: two sheets by pandas", "documents: PDF drawn line by line", "locales: money of en_US", "errors: traceback through two functions",
        "network: urllib", "processes: process by spawn", "programs: numbers from standard input",
        "programs: an argument that is missing")


@pytest.fixture(scope="module")
def warm():
    """What is wrong with each snippet that runs warm, by its name; an image that is not in the store has none."""
    support.need("userns")
    there = snippets.images(support.HUTCH)
    wrong = {}
    for image in IMAGES:
        if image in there:
            wrong.update(snippets.run_warm(support.HUTCH, [snippet for snippet in ALL if snippet.image == image], image))
    return wrong


@pytest.mark.parametrize("image", IMAGES)
def test_warm(warm, image):
    """One test for all of an image, which names those that fail."""
    names = [snippet.name for snippet in ALL if snippet.image == image]
    if names[0] not in warm:
        assert image != "python", "the store has no image 'python'"
        pytest.skip("no image '%s' in the store: %d snippets did not run" % (image, len(names)))
    failed = ["%s\n%s" % (name, warm[name]) for name in names if warm[name]]
    assert not failed, "\n\n".join(["%d of %d snippets fail" % (len(failed), len(names)), *failed])


@pytest.mark.parametrize("name", COLD)
def test_cold(name):
    support.need("userns")
    snippet, = [snippet for snippet in ALL if snippet.name == name]
    assert snippets.run_cold(support.HUTCH, snippet, snippet.image) is None


def test_there_are_enough():
    assert len([snippet for snippet in ALL if snippet.image == "python" and not snippet.lacks]) >= 150
    assert all(snippet.said["fails"] for snippet in ALL if snippet.lacks)


@pytest.mark.parametrize("lines, exit_code, stdout, stderr, why", [
    (["--- prints: 1", "print(1)"], 0, "2\n", "", "prints '2\\n'"),
    (["--- fails: KeyError", "{}[1]"], 0, "", "", "exit code 0, not 1"),
    (["--- fails: a", "--- fails: b", "x"], 1, "", "b\na\n", "standard error lacks 'b'"),
    (["--- exits: 3", "exit(3)"], 1, "", "", "exit code 1, not 3"),
    (["--- warns: old", "1"], 0, "", "new", "standard error lacks 'old'"),
    (["--- lacks: a font", "--- fails: no font", "1"], 0, "", "", "exit code 0, not 1"),
])
def test_what_a_snippet_says_is_compared(lines, exit_code, stdout, stderr, why):
    assert snippets.Snippet("s", ["=== n", *lines]).wrong(exit_code, stdout, stderr).startswith(why)
