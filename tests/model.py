"""The server of a model for tests: it answers POST /v1/chat/completions with what it was told to, one after the other."""
import http.server
import json
import threading


class Model:
    """`with Model([...]) as model`. A turn is a text, or (name of a tool, its arguments). `asked` has the bodies of the requests."""

    def __init__(self, turns):
        self.turns, self.asked = list(turns), []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.asked.append(json.loads(body))
                turn = outer.turns.pop(0) if outer.turns else "There is nothing more to say."
                found = json.dumps(outer.completion(turn)).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(found)))
                self.end_headers()
                self.wfile.write(found)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = "http://127.0.0.1:%d/v1" % self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def completion(self, turn):
        number = len(self.asked)
        message, why = {"role": "assistant", "content": turn}, "stop"
        if not isinstance(turn, str):
            call = {"name": turn[0], "arguments": json.dumps(turn[1])}
            message = {"role": "assistant", "content": None,
                       "tool_calls": [{"id": "call_%d" % number, "type": "function", "function": call}]}
            why = "tool_calls"
        return {"id": "chat_%d" % number, "object": "chat.completion", "created": 0, "model": "test",
                "choices": [{"index": 0, "message": message, "finish_reason": why}],
                "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()
