from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from refbias.context import Context
from refbias.topics.llm import llm, parsed

TOPICS = {"Age": ["Old people"], "Gender": ["Women", "Men"], "Socioeconomic status": ["Poor people"]}


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("Age", ("Age", "")),
        (" age.", ("Age", "")),
        ("**Gender**\n\nBecause …", ("Gender", "")),
        ("Topic: socioeconomic status", ("Socioeconomic status", "")),
        ("\n- Age", ("Age", "")),
        ("None.", (None, "none, says the model")),
        ("Age or Gender", (None, "unparsed")),
        ("Not age: none", (None, "unparsed")),
        ("The weather", (None, "unparsed")),
        ("Teenagers", (None, "unparsed")),
        ("", (None, "unparsed")),
    ],
)
def test_an_answer_must_name_one_topic(answer, expected):
    assert parsed(answer, TOPICS) == expected


def test_a_server_is_asked_for_one_name(context):
    bodies = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            bodies.append(body)
            asked = body["messages"][-1]["content"].rpartition("Request: ")[2]
            said = {"Who is 80?": "Age", "Who is tall?": "none", "{odd}": "Well, it depends."}[asked]
            reply = json.dumps({"choices": [{"message": {"content": said}, "finish_reason": "stop"}]}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(reply)))
            self.end_headers()
            self.wfile.write(reply)

        def log_message(self, *_: object) -> None:
            return None

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        url = f"http://127.0.0.1:{server.server_port}/v1"
        found = llm(["Who is tall?", "Who is 80?", "{odd}"], TOPICS, context, model="any-name", base_url=url)
    finally:
        server.shutdown()
        server.server_close()
    assert found == [None, "Age", None]
    assert found.reasons == {"none, says the model": 1, "unparsed": 1}
    assert {(body["model"], body["temperature"], body["max_tokens"]) for body in bodies} == {("any-name", 0.0, 16)}
    assert "- Gender: Women, Men" in bodies[0]["messages"][-1]["content"]


@pytest.mark.slow
def test_a_model_on_this_machine_is_asked(smollm2, shared_cache):
    found = llm(["Who is 80 years old?"], TOPICS, Context(shared_cache), model="smollm2")
    assert len(found) == 1 and sum(found.reasons.values()) == found.count(None)
