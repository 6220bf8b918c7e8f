"""Reads programs.toml: what is run, in which image, and what has to come of it."""
import os
import tomllib

HERE = os.path.dirname(os.path.abspath(__file__))
PATH = os.path.join(HERE, "programs.toml")
KEYS = {"name", "image", "packages", "sources", "tried", "run", "prints", "finds", "makes", "limits", "why", "environment", "expect", "set", "seconds", "npm", "control", "then", "fails"}


def _read():
    with open(PATH, "rb") as file:
        return tomllib.load(file)


def rows():
    found = _read()["program"]
    names = [row["name"] for row in found]
    for row in found:
        unknown = set(row) - KEYS
        assert not unknown, "%s: unknown keys %s" % (row["name"], sorted(unknown))
        assert names.count(row["name"]) == 1, "two rows are called '%s'" % row["name"]
        assert row["image"] in _read()["images"], row["name"]
        assert row.get("expect", "works") == "works" or row["expect"].startswith("differs: "), row["name"]
        assert ("fails" in row) == ("expect" in row), "%s: a row that differs says by which text" % row["name"]
        assert set(row.get("then", {})) <= {"allow", "limits", "environment"} and ("then" not in row or "expect" in row), row["name"]
        assert "limits" not in row or row.get("why"), "%s raises a limit without a reason" % row["name"]
    return found


def images():
    """Each image with the packages, and the sources of packages, that its rows want."""
    found = []
    for name, base in _read()["images"].items():
        of_image = [row for row in rows() if row["image"] == name]
        packages = set(base["packages"]).union(*(row.get("packages", ()) for row in of_image))
        sources = set().union(*(row.get("sources", ()) for row in of_image))
        found.append({"name": name, "packages": sorted(packages), "sources": sorted(sources)})
    return found
