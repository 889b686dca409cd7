"""Answers are generated once and kept: one row of JSON an answer, written as it comes.

A run that was killed goes on where it stopped. Rows are found by what was asked (a digest of the messages) and the
number of the sample, in a file for one model and one way of generating.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import filelock

from refbias.answers.base import Answer, Message, Prompt, Request, Sampling
from refbias.errors import RefbiasError
from refbias.models.base import Model, combined
from refbias.result import plain, write_whole

if TYPE_CHECKING:
    from refbias.context import Context
    from refbias.registry import Choice

FORMAT = "1"  # raise it where a change here or in a generator changes answers: they are then generated again
_SYNC_EVERY = 5.0  # seconds between two calls that wait until the disk has the rows

Key = tuple[str, int]  # digest of the messages, sample
Judged = Callable[[Prompt, str], str]


def collect(
    model: Model,
    prompts: Sequence[Prompt],
    sampling: Sampling,
    generator: Choice,
    context: Context,
    *,
    file: Path | None = None,
    judged: Judged | None = None,
) -> dict[tuple[str, int], Answer]:
    """``sampling.samples`` answers to each prompt by (prompt id, sample); only those that are not kept are generated.

    They are kept in the cache, or in ``file``, which in the end holds them in the order of the prompts, each with what
    ``judged(prompt, text)`` makes of it: the part that judges are shown. Two processes that want the same answers take
    turns. Raises `RefbiasError` for a file of another model or other settings, a disk that is full, and what the
    generator raises; rows that were written stay.
    """
    check_ids(prompts)
    about = origin(model, sampling, generator, context)
    path = file
    if path is None:
        path = context.cache.answers(combined("answers", FORMAT, json.dumps(about, sort_keys=True)))
    wanted = {(digest(p.messages), sample): p for p in prompts for sample in range(sampling.samples)}
    with _Rows(path, about, context.watch.say) as rows:
        if file is not None:
            rows.check_prompts(prompts)
        missing = [key for key in wanted if key not in rows.answers]
        if missing:
            requests = {key: Request(wanted[key], key[1], seed_of(context.seed, *key)) for key in missing}
            _generate(model, requests, sampling, generator, context, rows)
        if file is not None:
            rows.finish(prompts, sampling.samples, context.seed, judged)
        found = rows.answers
    return {(p.id, s): found[digest(p.messages), s] for p in prompts for s in range(sampling.samples)}


def check_ids(prompts: Sequence[Prompt]) -> None:
    """Raise where two prompts have one id."""
    seen: set[str] = set()
    for prompt in prompts:
        if prompt.id in seen:
            raise RefbiasError(f"Two prompts have the id {prompt.id!r}. The benchmark must give each its own.")
        seen.add(prompt.id)


def digest(messages: Sequence[Message]) -> str:
    """What stands for the messages of a prompt: the same text is the same question, whatever its id."""
    text = json.dumps([list(message) for message in messages], ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def seed_of(run_seed: int, digest: str, sample: int) -> int:
    """Seed of one answer, below 2⁶³: it depends on nothing but the run's seed, the messages and the sample."""
    return int(hashlib.sha256(f"{run_seed} {digest} {sample}".encode()).hexdigest()[:16], 16) >> 1


def origin(model: Model, sampling: Sampling, generator: Choice, context: Context) -> dict[str, Any]:
    """All that answers depend on beside prompt and sample, as it stands in each row."""
    speed = generator.traits.get("speed", ())
    options = {key: plain(value) for key, value in generator.params.items() if key not in speed}
    drawn = {key: value for key, value in sampling.as_dict().items() if key != "samples"}
    _, dtype = model.placement(context.device, context.dtype)
    return {
        "model": model.name,
        "fingerprint": model.fingerprint,
        "generator": {"name": generator.name, **options, **drawn, "run_seed": context.seed, "dtype": dtype},
    }


def read(file: Path) -> list[dict[str, Any]]:
    """The rows of a file of answers; a line that a kill has cut off is left out."""
    try:
        rows, _ = _parse(file, file.read_bytes())
    except OSError as error:
        raise RefbiasError(f"{file} cannot be read: {error.strerror or error}.") from error
    return rows


def write_parquet(rows: Sequence[Mapping[str, Any]], file: Path) -> None:
    """Write rows of answers as a parquet file, whole or not at all."""
    import io

    import pyarrow  # type: ignore[import-untyped]
    import pyarrow.parquet  # type: ignore[import-untyped]

    content = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(list(rows)), content)
    write_whole(file, content.getvalue())


def _generate(
    model: Model,
    requests: Mapping[Key, Request],
    sampling: Sampling,
    generator: Choice,
    context: Context,
    rows: _Rows,
) -> None:
    with context.watch.progress(f"answers of {model.name}", len(requests), "answer") as advance:
        for request, answer in generator.object(model, list(requests.values()), sampling, context):
            key = digest(request.prompt.messages), request.sample
            if key not in rows.answers:
                rows.add(request.prompt, key, request.seed, answer)
                advance(1)
    lost = [key for key in requests if key not in rows.answers]
    if lost:
        raise RefbiasError(
            f"generator={generator.name} left {len(lost)} of {len(requests)} prompts without an answer, first "
            f"{requests[lost[0]].prompt.id} (sample {lost[0][1]}). The others are kept: run again."
        )


class _Rows:
    """The kept answers of one file, which no other process writes meanwhile; without a path, those in memory."""

    def __init__(self, path: Path | None, about: Mapping[str, Any], say: Callable[[str], None]) -> None:
        self.answers: dict[Key, Answer] = {}
        self._asked: dict[str, str] = {}  # prompt id -> digest
        self._path, self._about, self._say = path, about, say
        self._file: Any = None
        self._synced = time.monotonic()
        self._exit = contextlib.ExitStack()

    def __enter__(self) -> _Rows:
        if self._path is not None:
            with self._told():
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._exit.enter_context(_locked(self._path, self._say))
                try:
                    self._open(self._path)
                except BaseException:
                    self._exit.close()
                    raise
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._sync()
        self._exit.close()

    def _open(self, path: Path) -> None:
        content = path.read_bytes() if path.exists() else b""
        rows, end = _parse(path, content)
        for row in rows:
            _check_origin(path, row, self._about)
            self.answers.setdefault(
                (row["digest"], row["sample"]), Answer(row["text"], row["finish"], int(row["tokens"]))
            )
            self._asked[row["prompt"]] = row["digest"]
        self._file = self._exit.enter_context(path.open("ab", buffering=0))
        if end < len(content):  # a row that was cut off
            self._file.truncate(end)

    def check_prompts(self, prompts: Sequence[Prompt]) -> None:
        """Raise where the file holds answers to another text under the id of one of ``prompts``."""
        for prompt in prompts:
            if self._asked.get(prompt.id, digest(prompt.messages)) != digest(prompt.messages):
                raise RefbiasError(
                    f"{self._path} was begun with another text of prompt {prompt.id}: the benchmark's files or "
                    f"options have changed since. Name another file, or remove this one."
                )

    def add(self, prompt: Prompt, key: Key, seed: int, answer: Answer) -> None:
        """Keep one answer: when this returns, it outlives this process."""
        self.answers[key] = answer
        if self._file is None:
            return
        rest = memoryview(_line(self._row(prompt, key, seed, answer)))
        with self._told():
            while rest:
                rest = rest[self._file.write(rest) :]
            if time.monotonic() - self._synced > _SYNC_EVERY:
                self._sync()

    def finish(self, prompts: Sequence[Prompt], samples: int, run_seed: int, judged: Judged | None) -> None:
        """Put the rows in the order of the prompts, each prompt with its own; rows of other prompts stand behind."""
        if self._path is None:
            return
        ordered = [
            _line(self._row(p, (found, s), seed_of(run_seed, found, s), self.answers[found, s], judged))
            for p in prompts
            for found in [digest(p.messages)]
            for s in range(samples)
        ]
        asked = {(digest(p.messages), s) for p in prompts for s in range(samples)}
        before = self._path.read_bytes()
        rows, _ = _parse(self._path, before)
        seen = {p.id for p in prompts}
        ordered += [
            _line(row) for row in rows if (row["digest"], row["sample"]) not in asked or row["prompt"] not in seen
        ]
        content = b"".join(ordered)
        if content != before:
            write_whole(self._path, content)

    def _row(self, prompt: Prompt, key: Key, seed: int, answer: Answer, judged: Judged | None = None) -> dict[str, Any]:
        seen = {} if judged is None else {"judged": judged(prompt, answer.text)}
        return {
            "prompt": prompt.id,
            "sample": key[1],
            "text": answer.text,
            **seen,
            "finish": answer.finish,
            "tokens": answer.tokens,
            "question": prompt.question,
            "about": dict(prompt.about),
            "messages": [list(message) for message in prompt.messages],
            "digest": key[0],
            "seed": seed,
            **self._about,
        }

    def _sync(self) -> None:
        if self._file is not None:
            os.fsync(self._file.fileno())
        self._synced = time.monotonic()

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise RefbiasError(
                f"{self._path} cannot be written: {error.strerror or error}. The {len(self.answers):,} answers in it "
                f"are kept. Free some space and run again: it goes on from there."
            ) from error


def _parse(path: Path, content: bytes) -> tuple[list[dict[str, Any]], int]:
    """The rows of a file, and where the whole ones end: what a kill has left of the last one is no row."""
    rows = []
    end = 0
    lines = content.split(b"\n")
    for number, line in enumerate(lines[:-1], 1):
        try:
            row = json.loads(line)
            row["digest"], row["sample"], row["text"], row["finish"], row["tokens"], row["prompt"]
        except (ValueError, KeyError, TypeError) as error:
            if not b"".join(lines[number:]).strip(b"\0"):
                break
            raise RefbiasError(
                f"Line {number} of {path} is no row of answers ({error}). Remove the line, or name another file."
            ) from None
        rows.append(row)
        end += len(line) + 1
    return rows, end


def _check_origin(path: Path, row: Mapping[str, Any], about: Mapping[str, Any]) -> None:
    """Raise where a row was made by another model or in another way."""
    if row.get("fingerprint") != about["fingerprint"]:
        there, here = ((one.get("model"), str(one.get("fingerprint"))[:12]) for one in (row, about))
        raise RefbiasError(
            f"{path} holds answers of another model: {there[0]} ({there[1]}), and this is {here[0]} ({here[1]}). "
            f"Name another file, or remove this one."
        )
    before, now = row.get("generator", {}), about["generator"]
    for name in [name for name in {**before, **now} if before.get(name) != now.get(name)]:
        raise RefbiasError(
            f"{path} was begun with other settings: {name} {before.get(name)!r} there, {now.get(name)!r} now. "
            f"Name another file, or remove this one."
        )


def _line(row: Mapping[str, Any]) -> bytes:
    return json.dumps(row, ensure_ascii=False, allow_nan=False).encode(errors="replace") + b"\n"


@contextlib.contextmanager
def _locked(path: Path, say: Callable[[str], None]) -> Iterator[None]:
    lock = filelock.FileLock(lock_of(path))
    try:
        lock.acquire(timeout=0.2)
    except filelock.Timeout:
        say(f"Another process is writing {path}: this one waits.")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def lock_of(path: Path) -> Path:
    """The lock beside a file of answers."""
    return path.with_suffix(".lock")
