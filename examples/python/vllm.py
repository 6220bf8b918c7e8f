#!/usr/bin/env python3
"""gpt-oss by vLLM, which runs the model's Python in hutch by itself: the client asks for code_interpreter, and gets an answer.

    hutch serve --listen 127.0.0.1:8080 --insecure-no-auth &
    vllm serve openai/gpt-oss-20b --tool-server 127.0.0.1:8080/python &
    MODEL_URL=http://localhost:8000/v1 MODEL=openai/gpt-oss-20b vllm.py "What is six times seven?" """
import sys

import model

answer = model.post("/responses", {"input": sys.argv[1], "tools": [{"type": "code_interpreter", "container": {"type": "auto"}}]})
for item in answer["output"]:
    if item["type"] == "message":
        print("".join(part["text"] for part in item["content"] if part["type"] == "output_text"))
