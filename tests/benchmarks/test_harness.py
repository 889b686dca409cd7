import json
from pathlib import Path

import numpy as np
import pytest
import torch

from refbias.benchmarks import CannotScore
from refbias.benchmarks.harness import check_folder, lm_eval
from refbias.checkpoints import Checkpoint
from refbias.context import Context
from refbias.errors import RefbiasError, UsageError
from refbias.models import Model, find_model

DOCUMENTS = [
    {"sentence": "Women walk", "choices": [" home", " away"], "group": "Women", "kind": "gender"},
    {"sentence": "Women speak", "choices": [" several", " languages"], "group": "Women", "kind": "gender"},
    {"sentence": "Old people go", "choices": [" to the park", " home"], "group": "Old people", "kind": "age"},
    {"sentence": "A quiet", "choices": [" grief.", " room."], "group": "nobody", "kind": "age"},
]

TASK = """
task: tiny_choice
dataset_path: json
dataset_kwargs:
  data_files:
    test: {data}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{sentence}}}}"
doc_to_target: 0
doc_to_choice: "{{{{choices}}}}"
target_delimiter: ""
metric_list:
  - metric: acc
    aggregation: mean
    higher_is_better: true
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tasks = tmp_path / "tasks"
    tasks.mkdir()
    data = tasks / "data.jsonl"
    data.write_text("".join(json.dumps(document) + "\n" for document in DOCUMENTS))
    (tasks / "tiny_choice.yaml").write_text(TASK.format(data=data))
    return tasks


@pytest.fixture
def harness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """lm-evaluation-harness, with no hub and with its data in a folder of the test."""
    pytest.importorskip("lm_eval")
    import datasets
    import huggingface_hub

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "datasets")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)


def accuracy_by_hand(model: Model) -> list[float]:
    """Whether the first choice is the more probable one, of each document."""
    found = []
    with model.open_causal() as loaded, torch.inference_mode():
        for document in DOCUMENTS:
            sums = []
            for choice in document["choices"]:
                ids = loaded.tokenizer(f"{document['sentence']}{choice}")["input_ids"]
                begin = len(loaded.tokenizer(document["sentence"])["input_ids"])
                logs = loaded.causal(input_ids=torch.tensor([ids])).logits[0].double().log_softmax(-1)
                sums.append(sum(logs[t - 1, ids[t]].item() for t in range(begin, len(ids))))
            found.append(float(sums[0] > sums[1]))
    return found


@pytest.mark.usefixtures("harness")
def test_a_task_of_ones_own_by_group(folder: Path, tiny_llama: Path, context: Context) -> None:
    model = find_model(tiny_llama, cache=context.cache)
    accuracy = accuracy_by_hand(model)
    benchmark = lm_eval(task="tiny_choice", include=str(folder), group_column="group")
    score = benchmark.score(Checkpoint("reference", model), ["Women", "Old people", "Jews"], context)
    assert score["Women"].value == pytest.approx(np.mean(accuracy[:2]))
    assert score["Old people"].value == accuracy[2]
    assert score["Women"].n == 2
    assert score["Jews"].value is None
    assert benchmark.unit == "acc of tiny_choice"
    assert {row["unit"] for row in benchmark.report["figures"]} == {"all", "Women", "Old people", "nobody"}

    # no second run: what each document gave is in the cache
    again = lm_eval(task="tiny_choice", include=str(folder), group_column="group", higher_is="less")
    before = model.open_causal
    model.open_causal = lambda *args: pytest.fail("opened again")  # type: ignore[method-assign]
    assert again.score(Checkpoint("reference", model), ["Women"], context)["Women"].value == -np.mean(accuracy[:2])
    model.open_causal = before  # type: ignore[method-assign]

    kinds = lm_eval(task="tiny_choice", include=str(folder), group_column="kind", group_values=["Poor people=age"])
    score = kinds.score(Checkpoint("reference", model), ["Men", "Poor people"], context)
    assert score["Men"].value == pytest.approx(np.mean(accuracy[:2]))
    assert score["Poor people"].value == pytest.approx(np.mean(accuracy[2:]))

    whole = lm_eval(task="tiny_choice", include=str(folder), limit=3)
    score = whole.score(Checkpoint("reference", model), ["Men", "my group"], context)
    assert score["my group"].value == score["Men"].value == pytest.approx(np.mean(accuracy[:3]))
    assert whole.units["my group"] == "all"

    with pytest.raises(UsageError, match=r"benchmark.metric=f1: tiny_choice does not give it .* It gives acc"):
        lm_eval(task="tiny_choice", include=str(folder), metric="f1", limit=3).score(
            Checkpoint("reference", model), ["Men"], context
        )
    with pytest.raises(UsageError, match=r"group_column=nation: .* no such column. It has choices, group"):
        lm_eval(task="tiny_choice", include=str(folder), group_column="nation").score(
            Checkpoint("reference", model), ["Men"], context
        )


@pytest.mark.usefixtures("harness")
def test_templates_of_a_folder_cannot_reach_python(folder: Path, tiny_llama: Path, context: Context) -> None:
    file = folder / "tiny_choice.yaml"
    file.write_text(file.read_text().replace("{{sentence}}", "{{ ''.__class__.__mro__ }}{{sentence}}"))
    model = find_model(tiny_llama, cache=context.cache)
    with pytest.raises(RefbiasError, match="cannot run tiny_choice: SecurityError"):
        lm_eval(task="tiny_choice", include=str(folder)).score(Checkpoint("reference", model), ["Men"], context)


@pytest.mark.slow  # the harness reads all of its own tasks
@pytest.mark.usefixtures("harness")
def test_a_task_that_there_is_not(tiny_llama: Path, context: Context) -> None:
    model = find_model(tiny_llama, cache=context.cache)
    with pytest.raises(UsageError, match=r"no task 'crows_pairs_englisch'. Did you mean 'crows_pairs_english'"):
        lm_eval(task="crows_pairs_englisch").score(Checkpoint("reference", model), ["Men"], context)


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("utils.py", "", "is Python"),
        ("a/more.yaml", "task: t\nprocess_docs: !function utils.f", "has a tag '!function'"),
        ("more.yml", "task: !!python/object/apply:os.system [true]", "has a tag"),
        ("more.yaml", "task: t\ninclude: ../elsewhere.yaml", "includes ../elsewhere.yaml"),
        ("more.yaml", "task: t\ninclude: [plain.yaml, hidden_template]", "includes hidden_template"),
        ("more.yaml", "metric_list:\n  - metric: bleu\n    hf_evaluate: true", "sets hf_evaluate"),
        ("more.yaml", "dataset_path: pandas", "reads data with pandas"),
    ],
)
def test_folders_that_can_run_code_are_refused(name: str, text: str, why: str, folder: Path) -> None:
    check_folder(folder)
    file = folder / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)
    with pytest.raises(UsageError, match=f"{name} {why}.*benchmark.allow_code=true") as refused:
        lm_eval(task="tiny_choice", include=str(folder))
    assert "run code" in str(refused.value)
    lm_eval(task="tiny_choice", include=str(folder), allow_code=True)


def test_wrong_options(tmp_path: Path, tiny: dict[str, Path], context: Context) -> None:
    with pytest.raises(UsageError, match="a file or pattern is none"):
        lm_eval(task="folder/task.yaml")
    with pytest.raises(UsageError, match="no such folder"):
        lm_eval(task="t", include=str(tmp_path / "absent"))
    with pytest.raises(UsageError, match="name benchmark.group_column too"):
        lm_eval(task="t", group_values=["Women=gender"])
    with pytest.raises(UsageError, match="'Women' is not of the form GROUP=VALUE"):
        lm_eval(task="t", group_column="c", group_values=["Women"])
    with pytest.raises(CannotScore, match="is no causal language model"):
        lm_eval(task="t").score(Checkpoint("r", find_model(tiny["bert"], cache=context.cache)), ["Men"], context)


def test_without_the_harness(tiny_llama: Path, context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "lm_eval", None)
    model = find_model(tiny_llama, cache=context.cache)
    with pytest.raises(RefbiasError, match=r"needs lm-evaluation-harness .* pip install"):
        lm_eval(task="t").score(Checkpoint("reference", model), ["Men"], context)
