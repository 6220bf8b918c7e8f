"""Asks a model over the API that most servers of models speak, LiteLLM's proxy and vLLM among them.

MODEL_URL  base of the API, e.g. http://localhost:8000/v1     MODEL  its name     MODEL_KEY  where one is wanted
The server of hutch is the one of HUTCH_SERVER, or of the usual socket; HUTCH_TOKEN is for one that wants a token."""
import json
import os
import re
import urllib.request

import hutch

ROUNDS = 10  # of calls, before a model is taken to be lost


def client():
    return hutch.Client(token=os.environ.get("HUTCH_TOKEN"))


def post(path, body):
    headers = {"Content-Type": "application/json"}
    if "MODEL_KEY" in os.environ:
        headers["Authorization"] = "Bearer " + os.environ["MODEL_KEY"]
    body = json.dumps({"model": os.environ.get("MODEL", "default"), **body}).encode()
    with urllib.request.urlopen(urllib.request.Request(os.environ["MODEL_URL"] + path, body, headers)) as answer:
        return json.load(answer)


def ask(messages, **more):
    """The model's next message."""
    return post("/chat/completions", {"messages": messages, **more})["choices"][0]["message"]


def code_of(message):
    """The program in a message: what stands between fences, or all of it."""
    found = re.search(r"```(?:python)?\n(.*?)```", message["content"], re.DOTALL)
    return found[1] if found else message["content"]


def tool(name, description, *arguments):
    """The definition of a tool whose arguments are texts."""
    parameters = {"type": "object", "properties": {argument: {"type": "string"} for argument in arguments}, "required": list(arguments)}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


def call(functions, function):
    """What the model is told of one call. What it can mend is an answer: it tries again."""
    try:
        return functions[function["name"]](**json.loads(function["arguments"]))
    except (KeyError, TypeError, ValueError, OSError, hutch.HutchError) as error:
        return "Error: %s: %s" % (type(error).__name__, error)


def converse(messages, tools, functions):
    """The model's last word, after as many calls as it likes."""
    for _ in range(ROUNDS):
        message = ask(messages, tools=tools)
        messages.append(message)
        if not message.get("tool_calls"):
            return message["content"]
        for one in message["tool_calls"]:
            messages.append({"role": "tool", "tool_call_id": one["id"], "content": call(functions, one["function"])})
    return "The model has not come to an end."


def text_of(cell):
    """What a cell has printed, its value, and its error, for a model."""
    text = "".join(output["text"] for output in cell.outputs if output["output_type"] == "stream")
    if cell.error:
        return "%s%s: %s" % (text, cell.error.name, cell.error.value)
    return text + (cell.value or "") if cell.verdict == "ok" else "%s%s" % (text, cell.message)
