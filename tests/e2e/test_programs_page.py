"""docs/programs.md says what tests/programs/programs.toml says, which make check-programs runs."""
import os
import subprocess

import support


def test_page_is_of_the_table():
    done = subprocess.run([os.path.join(support.TREE, "tests", "programs", "page"), "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
