#!/usr/bin/env python3
"""A model behind LiteLLM's proxy, or any server with /chat/completions, that runs code: each call of the model goes to hutch as it
is, and the answer back to the model as it is. litellm.yaml has the proxy's lines.

    MODEL_URL=http://localhost:4000/v1 MODEL=local MODEL_KEY=… HUTCH_URL=http://HOST:PORT litellm.py "What is six times seven?" """
import json
import os
import subprocess
import sys
import urllib.request

import model

HEADERS = {"Content-Type": "application/json", "Authorization": "Bearer " + os.environ.get("HUTCH_TOKEN", "")}

tools = json.loads(subprocess.run(["hutch", "tools", "--format", "openai", "run_python"], stdout=subprocess.PIPE, check=True).stdout)
messages = [{"role": "user", "content": sys.argv[1]}]
for _ in range(model.ROUNDS):
    message = model.ask(messages, tools=tools)
    messages.append(message)
    if not message.get("tool_calls"):
        print(message["content"])
        break
    for call in message["tool_calls"]:
        request = urllib.request.Request(os.environ["HUTCH_URL"] + "/v1/tools", json.dumps(call).encode(), HEADERS)
        with urllib.request.urlopen(request) as answer:
            messages.append(json.load(answer))
            print("  " + messages[-1]["content"].strip().splitlines()[-1])
