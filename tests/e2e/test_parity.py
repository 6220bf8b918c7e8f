"""What hutch makes of a notebook is what nbconvert makes of it, field by field (parity.py)."""
import pytest

import parity
import support

FOUND = parity.notebooks()


@pytest.fixture(scope="module")
def compared(request, tmp_path_factory):
    """Of the notebooks that this run is about."""
    names = [item.callspec.params["name"] for item in request.session.items if getattr(item, "function", None) is test_parity]
    done, failed = parity.compare_all(names or list(FOUND), FOUND, str(tmp_path_factory.mktemp("parity")))
    return {comparison.name: comparison for comparison in done}, dict(failed)


def test_there_are_enough():
    assert len([path for path in FOUND.values() if path.startswith(parity.OWN)]) >= 40


@pytest.mark.parametrize("name", FOUND)
def test_parity(compared, name):
    done, failed = compared
    assert name not in failed, failed.get(name)
    comparison = done[name]
    assert comparison.fields > 0
    left = comparison.unexpected()
    assert not left, "\n".join("%s\n  nbconvert %s\n  hutch     %s" % ("/".join(map(str, path)), parity.shown(reference), parity.shown(other))
                               for path, reference, other in left[:5])


def test_real_notebooks_are_there():
    support.test_data("notebooks/README.md")
    assert len(FOUND) - len([path for path in FOUND.values() if path.startswith(parity.OWN)]) == 5


def test_a_kernel_may_lose_the_end_and_hutch_nothing():
    for (name, path), whole in parity.WHOLE.items():
        cut = [whole[:len(whole) // 2]]
        assert parity.why_expected(name, path, cut, [whole]) == parity.CUT
        assert parity.why_expected(name, path, [whole], cut) is None and parity.why_expected(name, path, cut, cut) is None
        assert parity.why_expected(name, path, [whole[1:]], [whole]) is None
        assert parity.why_expected(name, path, cut, parity.MISSING) is None


# These need every rule there is.
CONTROL = ("counts", "figures-formats", "format-4-5-no-ids", "magics-more", "mime-html-js", "pandas-styler", "uuid", "warnings")


def test_rules_are_needed_and_enough(compared, tmp_path):
    """nbconvert compared with itself: with the rules there is no difference, and each of them takes one away."""
    kept = {name: compared[0][name].reference_path for name in CONTROL}
    done, failed = parity.compare_all(CONTROL, FOUND, str(tmp_path), control=True, kept=kept)
    assert not failed
    assert [(comparison.name, comparison.differences) for comparison in done if comparison.differences] == []
    used = set().union(*(comparison.used for comparison in done))
    assert used == {name for name, _, _ in parity.RULES} | {"time of day", "new cell id"}


# A program may show what no notebook may hold: an object under a MIME type that is not JSON's. nbconvert writes it, and so it is here.
INVALID = {"display"}


def test_what_parity_has_written_is_valid(data, compared):
    """For nbformat itself."""
    written = []
    for comparison in compared[0].values():
        if comparison.name in INVALID:
            continue
        with open(comparison.path, encoding="utf-8") as file:
            written.append(file.read())
    parity.validate(written, data)
