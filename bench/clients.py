#!/usr/bin/env python3
"""clients.py engine|client ADDRESS - the Python package: for each number on a line of stdin so many runs, one after the other, each
when the pool is full again, and their times as a line of JSON, {"ms": […]}. HUTCH_LIBRARY is the library's path."""
import asyncio
import json
import os
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "clients", "python"))
import hutch  # noqa: E402
from hutch._wire import Call, read_object  # noqa: E402  (the package does not ask for pools)

HELLO = "print('hello')\n"


def note(times, start, result):
    times.append(1e3 * (time.perf_counter() - start))
    if result.stdout != "hello\n":
        sys.exit("a run printed %r" % result.stdout)


def tell(times):
    print(json.dumps({"ms": times}), flush=True)


def by_client(address):
    with hutch.Client(address) as client:
        for line in sys.stdin:
            times = []
            for _ in range(int(line)):
                while True:
                    pools = client._do(Call("GET", "/v1/pools", read_object))
                    if not pools["running"] and not any(pool["building"] for pool in pools["pools"]):
                        break
                    time.sleep(0.0005)
                start = time.perf_counter()
                note(times, start, client.run(HELLO))
            tell(times)


async def by_engine():
    async with hutch.Engine() as engine:
        for line in iter(sys.stdin.readline, ""):
            times = []
            for _ in range(int(line)):
                while True:
                    stats = engine.stats()
                    if not (stats.building or stats.running) and stats.prepared:
                        break
                    await asyncio.sleep(0.0005)
                start = time.perf_counter()
                note(times, start, await engine.run(HELLO))
            tell(times)


if sys.argv[1] == "engine":
    asyncio.run(by_engine())
else:
    by_client(sys.argv[2])
