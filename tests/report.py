"""What a run says at its end: what was skipped, failed or unsteady, and the counts by lane, and by format and client."""
import os
import re

from common import TREE, stop

# Whose tests these are, for the counts at the end: of the gateway's formats, and of what speaks them.
CLIENTS = {
    "native HTTP": ("bad_input", "data_targets", "gateway", "gateway_batch", "gateway_calls", "gateway_config", "gateway_files",
                    "gateway_functions", "gateway_native", "gateway_paths", "gateway_processes", "gateway_sessions", "gateway_stream", "gateway_watch", "gateway_workers", "repl_server",
                    "run_server"),
    "MCP": ("mcp", "mcp_clients", "mcp_http"),
    "E2B": ("e2b",),
    "SandboxFusion": ("fusion",),
    "Azure": ("azure",),
    "function tools": ("tools",),
    "page": ("ui",),
    "Python package": ("python_abi", "python_client", "python_dropins", "python_engine", "python_package", "python_sessions"),
    "Node package": ("node_client", "node_library"),
    "proxies": ("proxies",),
    "containers": ("containers_engine", "kubernetes"),
    "documentation": ("demo", "examples", "gateway_docs", "your_client"),
}
OF_GATEWAY = r"^\s*(?:from|import) (?:gateway|package|test_gateway\w*|test_node_client)\b"  # what files of such tests import


def check_clients():
    """Each test file of the gateway is in one group of CLIENTS, and each name there is a file."""
    grouped = [name for names in CLIENTS.values() for name in names]
    for name in grouped:
        assert os.path.exists(os.path.join(TREE, "tests", "e2e", "test_%s.py" % name)), name
    assert len(set(grouped)) == len(grouped), grouped
    for file_name in sorted(os.listdir(os.path.join(TREE, "tests", "e2e"))):
        match = re.fullmatch(r"test_(\w+)\.py", file_name)
        if not match or match[1] in grouped:
            continue
        with open(os.path.join(TREE, "tests", "e2e", file_name), encoding="utf-8") as file:
            if re.search(OF_GATEWAY, file.read(), re.MULTILINE):
                stop("tests/e2e/%s tests the gateway, and no group of CLIENTS has it" % file_name)


def report_clients(rows):
    """The same counts by format and client, of all lanes and users together; nothing where none of them ran."""
    counts = {}
    for client, names in CLIENTS.items():
        found = [row.files[name] for row in rows for name in names if name in row.files]
        counts[client] = [sum(each) for each in zip(*found)] or [0, 0, 0]
    if not any(map(any, counts.values())):
        return
    print("of these, by format and client:")
    for client, each in counts.items():
        print("  %-23s %7d %17s %7d %7d %8d" % (client, sum(each), "", *each))


def add_costs(steps, rows):
    """What lanes and their files have spent, for the table of steps."""
    for row in rows:
        if row.seconds:
            steps.add("lane %s as %s" % (row.lane, row.who), row.seconds, row.cpu)
        for name, (wall, cpu) in row.costs.items():
            steps.add("  %s as %s: %s" % (row.lane, row.who, name), wall, cpu)


def report(rows, seconds):
    """The table, and the line that counts everything. Whether all is well."""
    print()
    print("skipped:" if any(row.skips for row in rows) else "skipped: nothing")
    reasons = {}
    for row in rows:
        for skip in row.skips:
            places = reasons.setdefault(skip, [])
            place = "%s as %s" % (row.lane, row.who)
            if place not in places:
                places.append(place)
    for reason, places in sorted(reasons.items()):
        print("  %s (%s)" % (reason, "; ".join(places)))
    for row in rows:
        for note in row.notes:
            print("failed: %s as %s: %s" % (row.lane, row.who, note))
        for test in row.unsteady:
            print("unsteady: %s as %s: %s: %s" % (row.lane, row.who, test.name, test.text))
    print()
    print("%-8s %-16s %7s %7s %9s %7s %7s %8s %8s" % ("lane", "as", "tests", "probes", "controls", "passed", "failed", "skipped",
                                                      "seconds"))
    for row in rows:
        print("%-8s %-16s %7d %7d %9d %7d %7d %8d %8.0f" % (
            row.lane, row.who, row.passed + row.failed + row.skipped, row.probes, row.controls, row.passed, row.failed,
            row.skipped, row.seconds))
    total = [sum(getattr(row, name) for row in rows) for name in ("passed", "failed", "skipped")]
    print("%-8s %-16s %7d %7d %9d %7d %7d %8d %8.0f" % (
        "all", "", sum(total), sum(row.probes for row in rows), sum(row.controls for row in rows), *total, seconds))
    report_clients(rows)
    n_unsteady = sum(len(row.unsteady) for row in rows)
    of_those = ", %d of those passed unsteady" % n_unsteady if n_unsteady else ""
    print("%d passed, %d failed, %d skipped%s" % (*total, of_those), flush=True)
    return total[1] == 0 and total[0] > 0
