"""Functions of the caller's that the code of a cell may call while it runs, and what they answer.

Any code in the sandbox can make any of these calls, with any arguments: a tool judges them as it would a stranger's."""
from __future__ import annotations

import json
from typing import Any, Callable, Dict, Mapping, Tuple

Tools = Mapping[str, Callable[..., Any]]
ANSWER_SECONDS = 0.01  # until code may have taken what it was answered before


def names(tools: Tools) -> str:
    """As struct hutch_cell has them."""
    return json.dumps(list(tools))


def call(tools: Tools, name: str, arguments: Dict[str, Any]) -> Any:
    """What the tool returns, an awaitable perhaps; raises what it raises."""
    tool = tools.get(name)
    if tool is None:
        raise LookupError("there is no tool '%s'" % name)
    return tool(*arguments["args"], **arguments["kwargs"])


def encode(name: str, value: Any) -> Tuple[str, bool]:
    """JSON, and whether it is an error."""
    try:
        return json.dumps(value, allow_nan=False), False
    except (TypeError, ValueError, RecursionError) as error:
        return json.dumps("the tool '%s' returned what JSON has not got: %s" % (name, error)), True


def encode_error(error: BaseException) -> Tuple[str, bool]:
    return json.dumps(str(error) or type(error).__name__), True
