"""Answers from a server that speaks OpenAI's protocol: vLLM, llama.cpp, TGI, and many others.

Requests go through the standard library in a few threads: that needs no further package, and what is sent, repeated
and said in an error is all in this file.
"""

from __future__ import annotations

import email.utils
import http.client
import json
import os
import random
import re
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any

from refbias.answers.base import Answer, Request, Sampling
from refbias.context import Context
from refbias.errors import RefbiasError, UsageError, described
from refbias.generators.chat import is_raw
from refbias.models.base import Model

BACKOFF = 1.0  # seconds before the first repetition; each later one waits twice as long
_LONGEST = 60.0  # … but not longer than this
_PATIENCE = 600.0  # the longest wait that a server may ask for with Retry-After
_SEEDS = 2**31  # some servers hold seeds in 32 bits


def openai(
    model: Model,
    requests: Sequence[Request],
    sampling: Sampling,
    context: Context,
    *,
    base_url: str = "http://localhost:8000/v1",
    served: str | None = None,
    concurrency: int = 8,
    retries: int = 6,
    timeout: float = 120.0,
    rate: float | None = None,
    key_env: str | None = None,
) -> Iterator[tuple[Request, Answer]]:
    """Answers from an OpenAI-compatible server, which must serve the model under its name.

    ``served``: the model's name on the server; by default the name it has here. ``concurrency`` requests are under way
    at once, ``rate`` a minute at most. What fails by the network or the server's load is sent again ``retries`` times.
    ``key_env`` is the name of the environment variable with the key.
    """
    for name, value, least in (("concurrency", concurrency, 1), ("retries", retries, 0)):
        if value < least:
            raise UsageError(f"generator.{name}={value}: expected {least} or more.")
    for name, number in (("timeout", timeout), ("rate", rate)):
        if number is not None and not number > 0:
            raise UsageError(f"generator.{name}={number}: expected a number above 0.")
    server = Server(base_url, key_from(key_env, "generator"), retries, timeout, Pace(rate))
    return _answers(server, served or model.name, requests, sampling, concurrency)


def key_from(variable: str | None, kind: str) -> str | None:
    """The key in an environment variable. No message repeats ``variable``: it may be the key itself by mistake."""
    if not variable:
        return None
    key = os.environ.get(variable, "").strip()
    if not key:
        raise UsageError(
            f"{kind}.key_env is to be the name of an environment variable that holds the key, and none of that name is "
            f"set. Set it, for instance with `export MY_KEY=…`, and give {kind}.key_env=MY_KEY."
        )
    return key


def _answers(
    server: Server, served: str, requests: Sequence[Request], sampling: Sampling, concurrency: int
) -> Iterator[tuple[Request, Answer]]:
    waiting = iter(requests)
    running: dict[Future[Answer], Request] = {}
    failure: BaseException | None = None
    with ThreadPoolExecutor(concurrency, thread_name_prefix="openai") as threads:
        try:
            while True:
                while failure is None and len(running) < concurrency and (request := next(waiting, None)) is not None:
                    running[threads.submit(ask, server, served, request, sampling)] = request
                if not running:
                    break
                for done in wait(running, return_when=FIRST_COMPLETED).done:
                    request = running.pop(done)
                    error = done.exception()
                    if error is None:
                        yield request, done.result()
                    elif failure is None:  # answers that are under way are still taken
                        failure = error
                        server.stop()
        finally:
            server.stop()
    if failure is not None:
        raise failure


def ask(server: Server, served: str, request: Request, sampling: Sampling) -> Answer:
    """One answer from the server."""
    messages = request.prompt.messages
    body: dict[str, Any] = {
        "model": served,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "max_tokens": sampling.max_new_tokens,
        "seed": request.seed % _SEEDS,
    }
    if is_raw(messages):
        return server.post("completions", body | {"prompt": messages[0][1]}, _answer)
    turns = [{"role": role, "content": text} for role, text in messages]
    return server.post("chat/completions", body | {"messages": turns}, _answer)


def _answer(reply: Any) -> Answer:
    choice = reply["choices"][0]
    text = choice["message"]["content"] if "message" in choice else choice["text"]
    if not isinstance(text, (str, type(None))):
        raise TypeError("the text of the answer is no text")
    tokens = (reply.get("usage") or {}).get("completion_tokens") or 0
    return Answer(text or "", "length" if choice.get("finish_reason") == "length" else "stop", int(tokens))


class Pace:
    """Lets at most ``rate`` requests a minute through, evenly; None all of them."""

    def __init__(self, rate: float | None) -> None:
        self._gap = 60 / rate if rate else 0.0
        self._next = 0.0
        self._lock = threading.Lock()

    def delay(self) -> float:
        """Seconds that the next request has to wait."""
        with self._lock:
            now = time.monotonic()
            begin = max(now, self._next)
            self._next = begin + self._gap
        return begin - now


class _Again(Exception):  # noqa: N818
    """A try that failed in a way that may pass; ``after`` seconds where the server said when."""

    def __init__(self, problem: str, after: float | None = None) -> None:
        super().__init__(problem)
        self.after = after


@dataclass
class Server:
    """A server by its address, as requests are sent to it; the key appears in the header of a request only."""

    base_url: str
    key: str | None = field(default=None, repr=False)
    retries: int = 6
    timeout: float = 120.0
    pace: Pace = field(default_factory=lambda: Pace(None))

    def __post_init__(self) -> None:
        parts = urllib.parse.urlsplit(self.base_url)
        if parts.username or parts.password:
            raise UsageError("base_url holds a user or a password. Leave them out: keys are given with key_env.")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError(
                f"base_url={self.base_url!r} is no address. Expected for instance http://localhost:8000/v1."
            )
        handlers: list[urllib.request.BaseHandler] = [_NoRedirect()]
        if parts.hostname in ("localhost", "127.0.0.1", "::1"):
            handlers.append(urllib.request.ProxyHandler({}))
        self._opener = urllib.request.build_opener(*handlers)
        self._stopped = threading.Event()

    def stop(self) -> None:
        """Begin no further try; waits end."""
        self._stopped.set()

    def post(self, path: str, body: dict[str, Any], parse: Any) -> Any:
        """What ``parse`` makes of the reply. Raises `RefbiasError` where the server refuses, or stays out of reach."""
        problem = ""
        for attempt in range(self.retries + 1):
            if self._stopped.wait(self.pace.delay()):
                break
            try:
                return self._try(path, body, parse)
            except _Again as error:
                problem = str(error)
                pause = min(BACKOFF * 2**attempt, _LONGEST) * random.uniform(0.5, 1)
                if error.after is not None:
                    pause = min(max(error.after, 0.0), _PATIENCE)
            if attempt == self.retries or self._stopped.wait(pause):
                break
        raise RefbiasError(
            f"The server at {self.base_url} gave no answer in {attempt + 1} tries; the last one: "
            f"{problem or 'stopped'}. Answers so far are kept: see to the server, and run again."
        )

    def _try(self, path: str, body: dict[str, Any], parse: Any) -> Any:
        headers = {"Content-Type": "application/json", "User-Agent": "refbias"}
        if self.key:
            headers["Authorization"] = f"Bearer {self.key}"
        address = f"{self.base_url.rstrip('/')}/{path}"
        request = urllib.request.Request(address, json.dumps(body).encode(), headers, method="POST")
        try:
            with self._opener.open(request, timeout=self.timeout) as reply:
                content = reply.read()
        except urllib.error.HTTPError as error:
            self._refused(error)
        except (OSError, http.client.HTTPException) as error:  # refused, dropped, stalled, cut short
            raise _Again(self._clean(described(getattr(error, "reason", None) or error))) from None
        try:
            return parse(json.loads(content))
        except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
            raise _Again(f"it replied with no answer in OpenAI's format ({self._clean(described(error))})") from None

    def _refused(self, error: urllib.error.HTTPError) -> None:
        with error:
            try:
                said = error.read(2000).decode(errors="replace")
            except (OSError, http.client.HTTPException):
                said = ""
        problem = f"HTTP status {error.code} ({self._clean(_message(said)) or error.reason})"
        if error.code in (408, 429) or error.code >= 500:
            raise _Again(problem, _seconds(error.headers.get("Retry-After"))) from None
        raise RefbiasError(
            f"The server at {self.base_url} refuses a request: {problem}. Look at base_url, at the name of the model "
            f"there (served), at the key, and at what the server can do."
        ) from None

    def _clean(self, text: str) -> str:
        """What a server or library said, on one line, without the key."""
        short = re.sub(r"\s+", " ", text).strip()
        return (short.replace(self.key, "***") if self.key else short)[:300].rstrip(".")


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirected request would carry the key to another place."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def _message(said: str) -> str:
    """The text of an error as servers send it: {"error": {"message": …}}, {"message": …}, or plain."""
    try:
        found = json.loads(said)
    except ValueError:
        return said
    for key in ("error", "message", "detail"):
        found = found.get(key, found) if isinstance(found, dict) else found
    return found if isinstance(found, str) else json.dumps(found)


def _seconds(value: str | None) -> float | None:
    """Retry-After, which is a number of seconds or a date."""
    if not value:
        return None
    if re.fullmatch(r"\d+(\.\d+)?", value.strip()):
        return float(value)
    try:
        return email.utils.parsedate_to_datetime(value).timestamp() - time.time()
    except (TypeError, ValueError):
        return None
