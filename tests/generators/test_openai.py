"""generator=openai against a real server on the loopback that drops, stalls, refuses and talks garbage."""

from __future__ import annotations

import http.server
import json
import logging
import sys
import threading
import time
from collections import Counter

import pytest

from refbias.answers import Prompt, Request, Sampling
from refbias.answers.store import collect, read
from refbias.errors import RefbiasError, UsageError
from refbias.generators.openai import Server, _seconds, openai
from refbias.models import find_model
from refbias.registry import registry

KEY = "sk-very-secret-0123456789"
SAMPLING = Sampling(2, 0.7, 0.9, 50)
PROMPTS = [Prompt(f"p{i}", (("system", "Be brief."), ("user", f"Question {i}?"))) for i in range(8)]
REQUESTS = [Request(p, s, 7 * i + s) for i, p in enumerate(PROMPTS) for s in (0, 1)]


class Double(http.server.ThreadingHTTPServer):
    """``faults`` says what happens to the first tries of each request; later ones are answered."""

    daemon_threads = True

    def __init__(self, faults=(), status=None, body=b"", headers=()):
        super().__init__(("127.0.0.1", 0), Handler)
        self.faults, self.status, self.body, self.headers = faults, status, body, headers
        self.seen: list[tuple[str, dict, dict]] = []
        self.tries: Counter[str] = Counter()
        self.lock = threading.Lock()
        self.running = self.most = 0
        self.times: list[float] = []

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def handle_error(self, request, client_address):
        pass  # clients that gave up


class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *arguments):
        pass

    def do_POST(self):
        server: Double = self.server
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with server.lock:
            server.times.append(time.monotonic())
            server.seen.append((self.path, body, dict(self.headers)))
            key = json.dumps(body)
            fault = server.faults[server.tries[key]] if server.tries[key] < len(server.faults) else None
            server.tries[key] += 1
            server.running += 1
            server.most = max(server.most, server.running)
        time.sleep(0.02)
        with server.lock:
            server.running -= 1  # before the answer: from then on the client may ask again
        self.answer(server, body, fault)

    def answer(self, server, body, fault):
        if server.status is not None:
            return self.reply(server.status, server.body, server.headers)
        if fault == "drop":
            return self.connection.close()
        if fault == "stall":
            time.sleep(0.6)
            return self.connection.close()
        if fault == "half":
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            return self.wfile.write(b'{"choices": [{"mess')
        if fault == "garbage":
            return self.reply(200, b"<html>this is no JSON</html>")
        if fault == "other":
            return self.reply(200, b'{"choices": []}')
        if isinstance(fault, int):
            return self.reply(fault, b'{"error": {"message": "slow down"}}', [("Retry-After", "0")])
        asked = body["prompt"] if "prompt" in body else body["messages"][-1]["content"]
        text = f"{asked} {body['seed']}"
        choice = {"text": text} if "prompt" in body else {"message": {"role": "assistant", "content": text}}
        choice["finish_reason"] = "length" if body["seed"] % 2 else "stop"
        return self.reply(200, json.dumps({"choices": [choice], "usage": {"completion_tokens": 4}}).encode())

    def reply(self, status, content, headers=()):
        self.send_response(status)
        for name, value in (*headers, ("Content-Length", str(len(content)))):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)


@pytest.fixture
def serve(monkeypatch):
    monkeypatch.setattr(sys.modules[Server.__module__], "BACKOFF", 0.01)
    running = []

    def start(*arguments, **options):
        server = Double(*arguments, **options)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        running.append((server, thread))
        return server

    yield start
    for server, thread in running:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def model(tiny_llama, cache):
    return find_model(tiny_llama, cache=cache)


def test_what_is_asked_and_what_comes_back(serve, model, context, monkeypatch):
    monkeypatch.setenv("MY_KEY", KEY)
    server = serve()
    options = {"base_url": server.url, "served": "tiny", "key_env": "MY_KEY"}
    found = {(r.prompt.id, r.sample): a for r, a in openai(model, REQUESTS, SAMPLING, context, **options)}
    assert set(found) == {(p.id, s) for p in PROMPTS for s in (0, 1)}
    answer = found["p1", 1]
    assert (answer.text, answer.finish, answer.tokens) == ("Question 1? 8", "stop", 4)
    assert found["p0", 1].finish == "length"
    path, body, headers = next(seen for seen in server.seen if seen[1]["seed"] == 8)
    assert path == "/v1/chat/completions" and headers["Authorization"] == f"Bearer {KEY}"
    assert body == {
        "model": "tiny", "temperature": 0.7, "top_p": 0.9, "max_tokens": 50, "seed": 8,
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Question 1?"}],
    }  # fmt: skip


def test_raw_text_goes_to_completions_under_the_name_of_the_model(serve, model, context):
    server = serve()
    request = Request(Prompt("r", (("", "Once"),)), 0, 2**40 + 5)
    (found,) = openai(model, [request], SAMPLING, context, base_url=server.url)
    path, body, headers = server.seen[0]
    assert path == "/v1/completions" and body["prompt"] == "Once" and body["model"] == model.name
    assert body["seed"] < 2**31 and "Authorization" not in headers and found[1].text == f"Once {body['seed']}"


FAULTS = [("drop",), ("stall",), ("half",), ("garbage",), ("other",), (429,), (503,), (500, "drop", 429, "garbage")]


@pytest.mark.parametrize("faults", FAULTS, ids=str)
def test_what_fails_for_a_while_is_neither_lost_nor_doubled(serve, model, context, tmp_path, faults):
    server = serve(faults)
    choice = registry().resolve("generator", ("openai", {"base_url": server.url, "timeout": 0.3, "concurrency": 16}))
    collect(model, PROMPTS, SAMPLING, choice, context, file=tmp_path / "answers.jsonl")
    rows = read(tmp_path / "answers.jsonl")
    assert [(r["prompt"], r["sample"]) for r in rows] == [(p.id, s) for p in PROMPTS for s in (0, 1)]
    assert all(r["text"] == f"{r['question']} {r['seed'] % 2**31}" for r in rows)
    assert set(server.tries.values()) == {len(faults) + 1}


def test_many_at_once_but_not_more_than_allowed(serve, model, context):
    server = serve()
    assert len(list(openai(model, REQUESTS, SAMPLING, context, base_url=server.url, concurrency=3))) == 16
    assert server.most <= 3
    assert len(list(openai(model, REQUESTS, SAMPLING, context, base_url=server.url, concurrency=16))) == 16
    assert server.most > 3


def test_no_more_requests_a_minute_than_allowed(serve, model, context):
    server = serve()
    list(openai(model, REQUESTS[:6], SAMPLING, context, base_url=server.url, rate=1500))  # one every 40 ms
    assert server.times[-1] - server.times[0] >= 5 * 0.04 - 0.02


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422, 301])
def test_a_refusal_is_final_and_never_shows_the_key(serve, model, context, monkeypatch, status, capfd, caplog):
    monkeypatch.setenv("MY_KEY", KEY)
    caplog.set_level(logging.DEBUG)
    body = json.dumps({"error": {"message": f"no such model; your key was {KEY}"}}).encode()
    server = serve(status=status, body=body, headers=[("Location", "http://127.0.0.1:1/")])
    with pytest.raises(RefbiasError, match=f"refuses a request: HTTP status {status}.*no such model") as caught:
        list(openai(model, REQUESTS, SAMPLING, context, base_url=server.url, concurrency=1, key_env="MY_KEY"))
    assert len(server.seen) == 1
    shown = "".join([str(caught.value), repr(caught.value.__cause__), *capfd.readouterr(), caplog.text])
    assert KEY not in shown and "***" in shown


def test_a_server_that_stays_away_is_said_with_the_last_problem(serve, model, context):
    server = serve(["garbage"] * 99)
    with pytest.raises(RefbiasError, match=r"gave no answer in 3 tries.*no answer in OpenAI's format.*run again"):
        list(openai(model, REQUESTS, SAMPLING, context, base_url=server.url, retries=2, concurrency=1))
    assert len(server.seen) == 3
    with pytest.raises(RefbiasError, match="gave no answer in 1 tries; the last one: .*refused"):
        list(openai(model, REQUESTS, SAMPLING, context, base_url="http://127.0.0.1:9/v1", retries=0))


def test_answers_before_a_failure_are_kept(serve, model, context, tmp_path):
    server = serve()
    file = tmp_path / "answers.jsonl"

    def choice(**options):
        return registry().resolve("generator", ("openai", {"base_url": server.url, "concurrency": 2, **options}))

    original = Handler.answer

    def failing(self, server, body, fault):
        if len(server.seen) > 6:
            return self.reply(400, b"no more")
        return original(self, server, body, fault)

    Handler.answer = failing
    try:
        with pytest.raises(RefbiasError, match="HTTP status 400"):
            collect(model, PROMPTS, SAMPLING, choice(), context, file=file)
    finally:
        Handler.answer = original
    kept, before = len(read(file)), len(server.seen)
    assert 5 <= kept <= 6
    collect(model, PROMPTS, SAMPLING, choice(concurrency=1), context, file=file)
    assert len(server.seen) - before == 16 - kept and len(read(file)) == 16


def test_a_key_is_the_name_of_a_variable(model, context, monkeypatch):
    monkeypatch.delenv("MY_KEY", raising=False)
    for wrong in ("MY_KEY", KEY):
        with pytest.raises(UsageError, match="name of an environment variable") as caught:
            openai(model, [], SAMPLING, context, key_env=wrong)
        assert KEY not in str(caught.value)
    assert KEY not in repr(Server("http://localhost:8000/v1", KEY))
    for wrong in ("localhost:8000", "http://me:secret@host/v1"):
        with pytest.raises(UsageError) as caught:
            openai(model, [], SAMPLING, context, base_url=wrong)
        assert "secret" not in str(caught.value)


@pytest.mark.parametrize("options", [{"concurrency": 0}, {"retries": -1}, {"timeout": 0.0}, {"rate": 0.0}])
def test_options_without_a_meaning_are_refused_at_once(model, context, options):
    with pytest.raises(UsageError, match=f"generator.{next(iter(options))}="):
        openai(model, [], SAMPLING, context, **options)


def test_retry_after_is_a_number_or_a_date():
    from email.utils import formatdate

    assert _seconds("3") == 3 and _seconds("0.5") == 0.5 and _seconds(None) is None and _seconds("soon") is None
    assert 8 < _seconds(formatdate(time.time() + 10, usegmt=True)) < 11
