"""make check-programs: each row of programs.toml does its job under the policy, and outside on the same files, which shows that the row is right."""
import os

import pytest

import place
import table

ROWS = table.rows()


@pytest.fixture(scope="session")
def trees():
    """The root tree of each image, by its name."""
    found = {}
    for image in place.store():
        for name in image["names"]:
            found[name] = os.path.join(image["store"], "trees", image["digest"].split(":")[1], "root")
    return found


def note(row, said):
    """One line a row for whoever compares two profiles: HUTCH_TEST_OUTCOME names the file."""
    path = os.environ.get("HUTCH_TEST_OUTCOME")
    if path:
        with open(path, "a", encoding="utf-8") as file:
            file.write("%s: %s\n" % (row["name"], " ".join((said or "works").split())))


@pytest.mark.parametrize("row", ROWS, ids=[row["name"] for row in ROWS])
def test_program(row, trees, tmp_path):
    folder = str(tmp_path)
    data = place.empty(folder, "outside")
    wrong = place.outside(row, folder, data, trees[row["image"]]).wrong(row, data)
    if wrong:
        note(row, "THE CONTROL FAILS: " + wrong)
    assert not wrong, "outside, where nothing refuses anything: %s" % wrong
    data = place.empty(folder, "inside")
    wrong = place.inside(row, folder, data).wrong(row, data)
    note(row, wrong)
    if row.get("expect", "works") == "works":
        assert not wrong, "inside: %s" % wrong
    else:
        assert wrong, "the row says that it differs, and it works"
        assert row["fails"] in wrong, "it differs in another way than the row says: %s" % wrong
    if "then" in row:
        data = place.empty(folder, "then")
        changed = dict(row)
        for key, value in row["then"].items():
            changed[key] = value if key == "allow" else {**row.get(key, {}), **value}
        wrong = place.inside(changed, folder, data).wrong(row, data)
        assert not wrong, "inside, changed as the row says: %s" % wrong
