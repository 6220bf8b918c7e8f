"""What `make check` leaves to `make check-full`, and why. `make check` has the main path of every feature, format and client, every unit
test, every hostile program and every refusal once; what repeats that under another user, kernel, interpreter, number of
workers or load is here, and what looks for rare races. A test that runs by hand runs, whatever this file says."""
import os
import re
import zlib

# The first row that names a test counts: (tests, as a pattern of FOLDER/FILE::NAME, with `warm:` before it in the lane warm; what of them
# stays in `make check`: a pattern again, N for one of N, or None; why)
ROWS = (
    (r"^warm:.*hostile/test_hostile.py::", r"test_probe\[warm\.|lifetime\.", "The lane hostile has all of them, cold."),
    (r"^warm:", 8, "The same options and limits by way of an engine; each eighth stays."),
    (r"hostile/test_hostile.py::test_control", 3, "Each program outside, where it has to get through, which only a change of the program can alter."),
    (r"hostile/test_cells.py::test_probe", 3, "The hostile programs, which test_hostile.py has, as cells of a session; each third stays."),
    (r"soak/test_soak.py::(test_killed_parts|test_sessions|test_hostile_workers)", None,
     "Rare races. The lane kill has each kind of death once; test_flat has that nothing grows."),
    (r"soak/test_gateway_(load|slow).py::", None, "A load, and clients that take a minute for an answer."),
    (r"e2e/test_parity.py::(test_parity|test_rules)", r"\[(display|errors|figures-inline|magics-files|widgets)\]",
     "The other notebooks go the same way: nbconvert executes each of them besides, which takes 3 s of a processor."),
    (r"e2e/test_containers.py::test_hostile_suite", None, "The hostile programs, which `make check` runs outside of a container, once more in one."),
    (r"e2e/test_containers_engine.py::test_.*\[nothing_allowed", None, "The same again in a container with fewer capabilities."),
    (r"e2e/test_corpus.py::test_warm", None, "Some 600 programs for the packages of an image; test_cold has ten of them, test_packages.py one for each package."),
    (r"e2e/test_forks.py::", r"recycled|must_not_fork",
     "Statistics over hundreds of forked workers; test_warm.py has that two of them differ, and that one has its own pid, time and files."),
    (r"e2e/test_idioms.py::test_idiom\[(node|python)", None, "Node and Python have suites of their own; the shell and its tools stay."),
    (r"e2e/test_fidelity.py::test_warm_is_as_cold", 8, "600 programs warm and cold; each eighth stays."),
    (r"e2e/test_ui.py::", r"plot_and_table|test_hostile_html$|alone\[rules\]|test_token$|names_of_files|other_pages",
     "A browser for each test; the page's main path and its walls stay."),
    (r"e2e/test_gateway_docs.py::test_console", r"line-7\]", "The commands of the page, with its usual zygotes; test_gateway*.py ask the same."),
    (r"e2e/test_notebooks.py::(test_what_a_widget_makes|test_depth_of|test_timeout_of_a_cell)", r"words0",
     "Programs that hold out against their end; test_session_cells.py has those of cells."),
    (r"e2e/test_notebooks.py::", 4, "Each takes an interpreter of its own; each fourth stays, and test_parity.py has the kinds of notebooks."),
    (r"e2e/test_repl.py::", 5, "test_repl_server.py has the same prompt by a server, test_session*.py the sessions below it."),
    (r"e2e/test_repl_server.py::", 3, "The tests of test_repl.py once more by a server."),
    (r"e2e/test_rich.py::", 4, "Each takes an interpreter of its own; each fourth stays, and test_session_cells.py has the cells below."),
    (r"e2e/test_extend.py::", r"refus|hostile|code_of|password|setuid|test_npm$|test_wheels|test_hashes|wants_is_one\[.*(evil|None)|test_an_index",
     "pip and npm once for each way to ask for a layer; refusals stay."),
    (r"e2e/test_extend_apt.py::", r"scripts_run|refus|layer_over|in_no_builder|hostile|test_debians_own|leaves_running", "apt once more for each way to ask for a layer."),
    (r"e2e/test_batch.py::(test_mutations_fail|test_cpu_time_decides|test_reference)", r"reference.*HumanEval", "The same judge for other data sets; a load of many at once."),
    (r"e2e/test_limits.py::(test_memory_beside_locks|test_memory_of_locks|test_cpu_time_of_children)", r"20-SIG_IGN", "The same count with more processes or beside a load."),
    (r"e2e/test_sessions.py::(test_many_sessions|test_whoever_is_killed|test_more_sessions_than)", None, "Rare races, and loads."),
    (r"e2e/test_sessions.py::test_a_checkpoint_survives", 3, "Other ways to hold a signal back."),
    (r"e2e/test_sessions.py::", 2, "What a session does in odd cases; half of them stay, and test_session_*.py and hostile/test_sessions.py."),
    (r"e2e/test_node_client.py::test_types", None, "The compiler of TypeScript over declarations that seldom change."),
    (r"e2e/test_node_library.py::", r"library.test|hostile|closed", "The client's tests once more with the library in Node's process."),
    (r"e2e/test_kubernetes.py::(test_schemas|test_the_check_finds|test_doctor)", None, "Schemas of others against files that seldom change."),
    (r"e2e/test_jobs.py::test_example_on_real_data", None, "The example once more with other data."),
    (r"e2e/test_your_client.py::test_line\[docs", None, "The README's table, which stays, has the same lines."),
    (r"e2e/test_proxies.py::", r"test_a_server_dies|test_sessions_stay|tls|terminal_behind", "The same places behind another proxy or for another format."),
    (r"e2e/test_python_package.py::test_examples", 6, "Examples of the pages, which the tests of each part have again."),
    (r"e2e/test_mcp_clients.py::", r"conformance$|test_sdk$|client_by_http\[auto", "Other versions of the protocol, by the same clients."),
    (r"e2e/test_gateway_workers.py::", r"test_a_worker_dies$|in_the_drain|any_connection|test_its_end|hostile|second_signal", "Races of two workers."),
    (r"e2e/test_run_server.py::test_the_same.*\[(time limit|much)", None, "The same with more output, and with a limit that takes seconds."),
    (r"e2e/test_run_server.py::test_the_same", 3, "The rows of the table once more by the other way."),
    (r"e2e/test_processes.py::test_a_large_output_comes_whole", r"beside", "A load."),
    (r"e2e/test_interpreter.py::", 2, "Values of Python, one by one."),
    (r"e2e/test_python_client.py::test_.*\[(async over|sync over TCP)", 4, "The same by the other kinds of client and transport; each fourth stays."),
    (r"e2e/test_mcp.py::(test_files_are_read_faster|test_a_client_that_reads_nothing)", None, "A load, and a client that reads nothing, which test_mcp_http.py has too."),
    (r"e2e/test_functions.py::(test_there_is_an_end|test_many_of_them)", None, "A load."),
    (r"e2e/test_fusion.py::test_time_of_cells", None, "A limit that takes seconds; test_time_limit stays."),
    (r"e2e/test_session_cells.py::test_a_question", r"takes_too_long", "Programs that hold out against their end."),
    (r"e2e/test_library.py::test_promise", 3, "Sentences of hutch.h; each third stays."),
    (r"e2e/test_examples.py::test_recorded", None, "The recorded session, which test_e2b.py has step by step."),
    (r"e2e/test_limit_hints.py::", 2, "Sentences for one limit each; half of them stay."),
    (r"e2e/test_e2b.py::test_(signed|control)", None, "Clients of E2B once more, by other settings."),
    (r"e2e/test_session_(cells|life|paths|calls|contexts).py::", 2, "What a session does in odd cases; half of them stay."),
    (r"e2e/test_(warm|processes|functions|layouts|pools|prepared_limits).py::", 2, "What an engine does in odd cases; half of them stay."),
    (r"e2e/test_(mcp|mcp_http).py::", 2, "Two transports of one protocol, which the clients of others speak too; half of each stays."),
)
# These stay where one of N does: they are cheap, and each is a case of its own.
REFUSALS = re.compile(r"refus|hostile|broken|odd_|wrong|invalid")
# Whether this is a part of `make check`.
IS_SHORT = bool(os.environ.get("HUTCH_TEST_COUNTS")) and not os.environ.get("HUTCH_TEST_FULL")
COMPILED = [(re.compile(tests), re.compile(keeps) if isinstance(keeps, str) else keeps) for tests, keeps, _ in ROWS]


def is_for_full(nodeid):
    """Whether a test is left out. One of N is drawn by the sum of its name, so it is the same everywhere."""
    name = ("warm:" if os.environ.get("HUTCH_WARM") else "") + nodeid
    for tests, keeps in COMPILED:
        if tests.search(name):
            if keeps is None:
                return True
            if isinstance(keeps, int):
                return zlib.crc32(nodeid.rpartition("/")[2].encode()) % keeps != 0 and not REFUSALS.search(nodeid.partition("::")[2])
            return not keeps.search(name)
    return False
