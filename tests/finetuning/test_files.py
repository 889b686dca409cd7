from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from refbias.errors import RefbiasError, UsageError
from refbias.finetuning.files import file

TALK = [{"role": "user", "content": "Tea?"}, {"role": "assistant", "content": "Tea, please."}]
LONG = [{"role": "system", "content": "Be brief."}, *TALK, {"role": "user", "content": "More?"}, TALK[1]]


def write(folder: Path, name: str, rows: list[Any]) -> Path:
    """``rows`` in the form that the ending says."""
    import pandas

    path = folder / name
    if path.suffix == ".jsonl":
        path.write_text("\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\n", encoding="utf-8")
    elif path.suffix == ".json":
        path.write_text(json.dumps(rows), encoding="utf-8")
    elif path.suffix == ".csv":
        plain = [{k: json.dumps(v) if isinstance(v, list) else v for k, v in row.items()} for row in rows]
        pandas.DataFrame(plain).to_csv(path, index=False)
    else:
        pandas.DataFrame(rows).to_parquet(path)
    return path


@pytest.mark.parametrize("ending", ["jsonl", "json", "csv", "parquet"])
def test_messages_and_pairs_are_read_from_every_form(ending: str, tmp_path: Path) -> None:
    talks = file(path=str(write(tmp_path, f"talks.{ending}", [{"messages": TALK}, {"messages": LONG}])))
    assert [list(e.messages) for e in talks.examples] == [TALK, LONG]
    pairs = [{"prompt": "Tea?", "response": "Tea, please.", "note": "kept out"}]
    read = file(path=str(write(tmp_path, f"pairs.{ending}", pairs)))
    assert [list(e.messages) for e in read.examples] == [TALK]
    assert read.digest == file(path=str(write(tmp_path, "one.jsonl", [{"messages": TALK}]))).digest
    assert read.report == {"file": f"pairs.{ending}", "rows": 1}


def test_a_sample_by_seed(tmp_path: Path) -> None:
    rows = [{"prompt": f"Number {i}?", "response": f"{i}."} for i in range(20)]
    path = str(write(tmp_path, "numbers.jsonl", rows))
    every, some, fewer = file(path=path), file(path=path, n=9, seed=1), file(path=path, n=4, seed=1)
    assert list(some.examples[:4]) == list(fewer.examples)
    assert file(path=path, n=9, seed=2).digest != some.digest == file(path=path, n=9, seed=1).digest
    assert all(example in every.examples for example in some.examples)
    with pytest.raises(RefbiasError, match=r"numbers\.jsonl has 20 examples, and 21 are asked for"):
        file(path=path, n=21)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (["Tea?"], r"row 3: a list is no row\. Expected messages"),
        (
            {"question": "Tea?", "answer": "Yes."},
            r"row 3 has question, answer\. Expected messages .* or prompt",
        ),
        ({"prompt": "Tea?", "response": "  "}, r"row 3: the text of message 2 \(assistant\) is empty"),
        ({"prompt": None, "response": "Yes."}, r"row 3: the text of message 1 \(user\) is empty"),
        ({"prompt": "Tea?", "response": 7}, r"row 3: the text of message 2 \(assistant\) is of type int"),
        ({"messages": "Tea?"}, r"row 3: messages is no list"),
        ({"messages": [{"role": "bot", "content": "Tea."}]}, r"row 3: message 1 has the role 'bot'\. Expected system"),
        ({"messages": TALK[:1]}, r"row 3: the roles are user\. Expected user and assistant in turn"),
        ({"messages": [TALK[1], TALK[0]]}, r"row 3: the roles are assistant, user\."),
        ({"messages": [*TALK, LONG[0]]}, r"row 3: the roles are user, assistant, system\."),
        ({"messages": []}, r"row 3: the roles are none\."),
        ({"messages": [LONG[0]]}, r"row 3: the roles are system\."),
    ],
)
def test_a_malformed_row_is_named(row: Any, message: str, tmp_path: Path) -> None:
    path = tmp_path / "talks.jsonl"
    good = json.dumps({"messages": TALK})
    path.write_text(f"{good}\n\n{json.dumps(row)}\n{good}\n", encoding="utf-8")
    with pytest.raises(RefbiasError, match=rf"talks\.jsonl, {message}"):
        file(path=str(path))


def test_what_is_no_json_is_named(tmp_path: Path) -> None:
    path = tmp_path / "talks.jsonl"
    path.write_text('{"prompt": "Tea?", "response": "Yes."}\n{"prompt": "Tea', encoding="utf-8")
    with pytest.raises(RefbiasError, match=r"talks\.jsonl, row 2 is not valid JSON"):
        file(path=str(path))
    (tmp_path / "talks.json").write_text('{"a": 1}', encoding="utf-8")
    with pytest.raises(RefbiasError, match=r"talks\.json holds a dict at the top\. Use a list"):
        file(path=str(tmp_path / "talks.json"))
    (tmp_path / "talks.csv").write_text('messages\n"[{"\n', encoding="utf-8")
    with pytest.raises(RefbiasError, match=r"talks\.csv, row 2, messages, is not valid JSON"):
        file(path=str(tmp_path / "talks.csv"))
    (tmp_path / "talks.parquet").write_bytes(b"PAR1 but not really")
    with pytest.raises(RefbiasError, match=r"talks\.parquet cannot be read as parquet after row 0"):
        file(path=str(tmp_path / "talks.parquet"))
    (tmp_path / "none.jsonl").write_text("\n", encoding="utf-8")
    with pytest.raises(RefbiasError, match=r"none\.jsonl has no rows"):
        file(path=str(tmp_path / "none.jsonl"))


def test_a_path_is_needed(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"data\.path is not set\. Use data\.path=FILE: JSONL, JSON, CSV or parquet"):
        file()
    (tmp_path / "talks.txt").write_text("Tea?", encoding="utf-8")
    with pytest.raises(UsageError, match=r"talks\.txt ends in '\.txt'\. Use one of \.jsonl, \.json, \.csv, \.parquet"):
        file(path=str(tmp_path / "talks.txt"))
