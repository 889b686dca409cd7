"""Expand the templates of refbias/stimuli/data into the sentence sets beside them.

    python scripts/build_stimuli.py            write the files
    python scripts/build_stimuli.py --check    write nothing; exit 1 if a checked-in file differs

Written by hand: groups.csv, controls.csv, words.txt and templates/. Everything else in the folder is made here,
without randomness: choices are ordered by a hash of their text, so that they are the same everywhere.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import io
import sys
from collections.abc import Iterable
from pathlib import Path

DATA = Path(__file__).resolve().parent.parent / "refbias" / "stimuli" / "data"
SUMS = "SHA256SUMS"
GROUPS_PER_FRAME = 4  # 250 frames x 4 groups = 1,000 anchors
STAND_INS = 1000  # in each of the two stand-in sets
TARGET_SETS = ("base", "passive", "passive_rephrased", "synonyms_1", "synonyms_2", "synonyms_3")
# attribute set -> (column of the frame, suffix of the columns of the valence word)
ATTRIBUTE_SETS = {
    "base": ("base", ""),
    "subject_they": ("base", ""),
    "subject_person": ("base", ""),
    "synonyms_1": ("base", "_1"),
    "synonyms_2": ("synonyms_2", ""),
    "synonyms_3": ("synonyms_3", "_3"),
}


def table(name: str) -> list[dict[str, str]]:
    with open(DATA / name, encoding="utf-8", newline="") as handle:
        return list(csv.DictReader(handle))


def lines(name: str) -> list[str]:
    return (DATA / name).read_text(encoding="utf-8").splitlines()


def as_csv(header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return out.getvalue()


def as_lines(items: Iterable[str]) -> str:
    return "".join(f"{item}\n" for item in items)


def digest(*parts: str) -> str:
    return hashlib.sha256("|".join(parts).encode()).hexdigest()


def fill(template: str, noun: str, mid: str) -> str:
    return template.replace("{G}", noun).replace("{g}", mid)


def targets(names: list[dict[str, str]], key: str, variant: str) -> str:
    """Every template filled with every name: row i of each group is the same template."""
    templates = [row[variant] for row in table("templates/targets.csv")]
    rows = ((n[key], fill(t, n["noun"], n["mid"])) for n in names for t in templates)
    return as_csv(("group", "sentence"), rows)


def subject(row: dict[str, str], index: int, variant: str) -> str:
    """The first words of an attribute sentence: the thing itself, or they, or the person or people in its place."""
    thing, possessive = row["subject"], row["possessive"] == "yes"
    if variant == "subject_they":
        return f"Their {thing}" if possessive else "They"
    if variant == "subject_person":
        return f"The person's {thing}" if possessive else ("The person", "The people")[index % 2]
    return f"The {thing}"


def attributes(variant: str) -> str:
    frame, suffix = ATTRIBUTE_SETS[variant]
    rows = table("templates/attributes.csv")
    sentences = (
        (valence, f"{subject(row, i, variant)} {row[frame].replace('{v}', row[valence + suffix])}.")
        for valence in ("positive", "negative")
        for i, row in enumerate(rows)
    )
    return as_csv(("valence", "sentence"), sentences)


def valence_words(valence: str) -> str:
    rows = table("templates/attributes.csv")
    return as_lines(sorted({row[valence + suffix] for row in rows for suffix in ("", "_1", "_3")}))


def neutral_anchors() -> str:
    """Each frame goes to the four groups that have fewest sentences so far; a hash breaks the ties."""
    groups = table("groups.csv")
    count = {g["group"]: 0 for g in groups}
    rows = []
    for frame in lines("templates/anchor_frames.txt"):
        chosen = sorted(groups, key=lambda g: (count[g["group"]], digest(frame, g["group"])))[:GROUPS_PER_FRAME]
        for g in chosen:
            count[g["group"]] += 1
            rows.append((g["group"], fill(frame, g["noun"], g["mid"])))
    order = list(count)
    rows.sort(key=lambda row: order.index(row[0]))
    return as_csv(("group", "sentence"), rows)


def instructions() -> list[str]:
    """Instruction-like sentences: every frame with a run of its fillers that starts elsewhere in each frame."""
    fillers = {}
    for line in lines("templates/instruction_fillers.txt"):
        slot, items = line.split(": ", 1)
        fillers[slot] = items.split("; ")
    frames = lines("templates/instruction_frames.txt")
    each = -(-2 * STAND_INS // len(frames))
    sentences = []
    for i in range(each):
        for f, frame in enumerate(frames):
            slot = next(s for s in fillers if "{" + s + "}" in frame)
            filler = fillers[slot][(7 * f + i) % len(fillers[slot])]
            sentences.append(frame.replace("{" + slot + "}", filler))
    return sentences


def build() -> dict[str, str]:
    """Path inside the data folder -> text, for every file that is made."""
    made = {f"targets/{v}.csv": targets(table("groups.csv"), "group", v) for v in TARGET_SETS}
    made["targets/control.csv"] = targets(table("controls.csv"), "control", "base")
    made |= {f"attributes/{v}.csv": attributes(v) for v in ATTRIBUTE_SETS}
    made |= {f"valence_{v}.txt": valence_words(v) for v in ("positive", "negative")}
    made["anchors/neutral.csv"] = neutral_anchors()
    sentences = instructions()
    made["anchors/alpaca_stand_in.txt"] = as_lines(sentences[:STAND_INS])
    made["anchors/tulu_stand_in.txt"] = as_lines(sentences[STAND_INS : 2 * STAND_INS])
    written = {
        p.relative_to(DATA).as_posix(): p.read_bytes() for p in DATA.rglob("*") if p.is_file() and p.name != SUMS
    }
    everything = written | {name: text.encode() for name, text in made.items()}
    made[SUMS] = as_lines(f"{hashlib.sha256(everything[n]).hexdigest()}  {n}" for n in sorted(everything))
    return made


def main() -> int:
    parser = argparse.ArgumentParser(description="Expand the stimulus templates into sentence sets.")
    parser.add_argument("--check", action="store_true", help="only compare; exit 1 where a file differs")
    check = parser.parse_args().check
    stale = []
    for name, text in build().items():
        path = DATA / name
        if path.is_file() and path.read_bytes() == text.encode():
            continue
        stale.append(name)
        if not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text.encode())
    if stale:
        print(f"{'differ' if check else 'written'}: {', '.join(stale)}")
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
