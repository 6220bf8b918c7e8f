#!/usr/bin/env python3
"""Two agents and a question about a directory. The reader sees the files and runs nothing; the analyst runs code and sees one
file, which the reader has handed over. Code that does harm meets a copy of one file, and no way out.

    two_agents.py DIRECTORY "Which city has the most people?" """
import os
import sys

import model

directory = os.path.realpath(sys.argv[1])
LOOK = 2000  # characters of a file that the reader is shown


def path_of(name):
    """A regular file right in the directory, and no link: the reader is a model, too."""
    path = os.path.join(directory, name)
    if os.path.dirname(os.path.realpath(path)) != directory or os.path.islink(path) or not os.path.isfile(path):
        raise ValueError("there is no file %r" % name)
    return path


def list_files():
    return "\n".join(sorted(os.listdir(directory)))


def read_file(name):
    with open(path_of(name), encoding="utf-8", errors="replace") as file:
        return file.read(LOOK)


def hand_over(name, task):
    with model.client() as client, client.session() as session, open(path_of(name), "rb") as file:
        session.run("")  # files can be put once there is an interpreter
        session.upload(name, file)
        return model.converse(
            [{"role": "system", "content": "You analyse /mnt/data/%s with Python, which is where you are." % name}, {"role": "user", "content": task}],
            [model.tool("run_python", "Runs Python. Variables stay.", "code")],
            {"run_python": lambda code: model.text_of(session.run(code, timeout=30))})


print(model.converse(
    [{"role": "system", "content": "Find the file that answers the question, and hand it over to an analyst."},
     {"role": "user", "content": sys.argv[2]}],
    [model.tool("list_files", "The names of the files."), model.tool("read_file", "The beginning of a file.", "name"),
     model.tool("hand_over", "Gives a file and a task to an analyst, who answers.", "name", "task")],
    {"list_files": list_files, "read_file": read_file, "hand_over": hand_over}))
