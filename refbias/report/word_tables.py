"""Console tables and closing lines of the tasks weat, isotropy and similarity. Rich is imported on use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from refbias.report.console import duration, number

if TYPE_CHECKING:
    from rich.table import Table

Row = Mapping[str, Any]
LARGE = 0.1  # of a ridge, as a share of the mean eigenvalue


def layers_of_rows(rows: Sequence[Row]) -> Iterator[tuple[int, list[Row]]]:
    """Each layer with its rows, in their order."""
    for layer in dict.fromkeys(row["layer"] for row in rows):
        yield layer, [row for row in rows if row["layer"] == layer]


def calibration_of(data: Mapping[str, Any]) -> str | None:
    """Name of the calibration that stands beside raw; None where there is none."""
    name = data["settings"].get("calibration")
    return None if name in (None, "none") else str(name)


def _table(title: str, caption: str | None = None) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    return Table(
        title=_plain(title), caption=caption and _plain(caption), box=SIMPLE_HEAD, title_justify="left",
        caption_justify="left", min_width=min(len(title), 100),
    )  # fmt: skip


def _plain(text: str) -> str:
    """``text`` with square brackets as they are: names may hold them, and rich would take them for styles."""
    from rich.markup import escape

    return escape(text)


def p_value(p: float | None) -> str:
    """A probability as it is printed in tables.

    >>> p_value(0.0321), p_value(7.77e-05), p_value(None)
    ('0.0321', '7.8e-05', '–')
    """
    if p is None:
        return "–"
    return f"{p:.4f}" if p >= 0.001 or p == 0 else f"{p:.1e}"


def limits(row: Row, low: str, high: str, digits: int = 2) -> str:
    if row.get(low) is None or row.get(high) is None:
        return "–"
    return f"[{row[low]:+.{digits}f}, {row[high]:+.{digits}f}]"


def _significant(row: Row, space: str, alpha: float) -> bool:
    p = row.get(f"p_adjusted_{space}", row.get(f"p_{space}"))
    return p is not None and p < alpha


# WEAT -----------------------------------------------------------------------------------------------------------


def _label(row: Row) -> str:
    target = {"X": " (X)", "Y": " (Y)"}.get(row.get("target", ""), "")
    return _plain(f"{row['test']}{target}")


def suite_tables(data: Mapping[str, Any]) -> Iterator[Table]:
    """d, interval and p raw and calibrated; beside a calibration, what changed. Of several layers d alone."""
    name, alpha = calibration_of(data), float(data["conventions"]["alpha"])
    rows, kind = data["suites"], data["conventions"]["test"]
    title = f"{data['reference']['name']}: {kind}"
    if len({row["layer"] for row in rows}) > 1:
        for space, shown in {"raw": "raw", **({"calibrated": name} if name else {})}.items():
            yield _layers_table(rows, space, alpha, f"{title}, d {shown}")
    else:
        yield _effects_table(rows, name, alpha, title)
        if name:
            yield _changes_table(rows, name, f"raw → {name}")
        if kind in MORE:
            yield _more_table(rows, name, MORE[kind], f"{kind}, further figures")
    if data["further"]:
        yield further_table(data)


def _layers_table(rows: Sequence[Row], space: str, alpha: float, title: str) -> Table:
    """d of each test (columns) at each layer (rows)."""
    table = _table(title, f"* p < {alpha:g}")
    table.add_column("layer", justify="right")
    labels = list(dict.fromkeys(map(_label, rows)))
    for label in labels:
        table.add_column(_plain(label), justify="right", no_wrap=True)
    for layer, inside in layers_of_rows(rows):
        found = {_label(row): row for row in inside}
        cells = []
        for label in labels:
            row = found.get(label, {})
            star = "*" if _significant(row, space, alpha) else " "
            cells.append(number(row.get(f"d_{space}"), 2, sign=True) + star)
        table.add_row(str(layer), *cells)
    return table


# further columns of a kind of test, with their headings
MORE: Mapping[str, Mapping[str, str]] = {
    "seat": {"d_sentences": "d over sentences"},
    "ceat": {"se": "SE", "tau2": "τ²", "p_one_sided": "p one-sided", "p_two_sided": "p two-sided"},
    "ml_eat": {"d_x": "d of X", "p_x": "p", "d_y": "d of Y", "p_y": "p", "leans_x": "X leans to",
               "leans_y": "Y leans to", "pattern": "pattern"},
}  # fmt: skip


def _more_table(rows: Sequence[Row], name: str | None, columns: Mapping[str, str], title: str) -> Table:
    table = _table(title)
    for heading in ("test", "space"):
        table.add_column(heading, no_wrap=True)
    for heading in columns.values():
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        for space, shown in {"raw": "raw", **({"calibrated": name} if name else {})}.items():
            table.add_row(_label(row), shown, *(_cell(column, row.get(f"{column}_{space}")) for column in columns))
    return table


def _cell(column: str, value: Any) -> str:
    if value is None or isinstance(value, str):
        return value or "–"
    return p_value(value) if column.startswith("p_") else number(value, 3)


def _effects_table(rows: Sequence[Row], name: str | None, alpha: float, title: str) -> Table:
    adjusted = any("p_adjusted_raw" in row for row in rows)
    kind = "Holm-adjusted p" if adjusted else "p"
    table = _table(title, f"* {kind} < {alpha:g}; intervals are 95 %, by bootstrap over words")
    table.add_column("test", no_wrap=True)
    if not name:  # else the names stand in the table of changes, which has room for them
        table.add_column("sets")
    table.add_column("words", justify="right", no_wrap=True)
    spaces = {"raw": "raw", "calibrated": name} if name else {"raw": "raw"}
    for shown in spaces.values():
        for heading in (f"d {shown}", "interval", kind):
            table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        found = row["words_found"]
        cells = [_label(row), *([] if name else [_plain(row["name"])]), f"{found}/{found + row['words_lost']}"]
        for space in spaces:
            star = "*" if _significant(row, space, alpha) else " "
            p = row.get(f"p_adjusted_{space}") if adjusted else row.get(f"p_{space}")
            cells += [number(row[f"d_{space}"], 2, sign=True) + star]
            cells += [limits(row, f"ci_low_{space}", f"ci_high_{space}"), p_value(p)]
        table.add_row(*cells)
    return table


def _changes_table(rows: Sequence[Row], name: str, title: str) -> Table:
    table = _table(title, "flip chance: how often two equally good readings of one truth get different verdicts")
    for heading in ("test", "status"):
        table.add_column(heading, no_wrap=True)
    for heading in ("Δd", "95 % interval", "flip chance", "|d| at most"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("sets")
    for row in rows:
        chance = row.get("flip_chance")
        table.add_row(
            _label(row),
            row.get("status") or "–",
            number(row.get("change"), 2, sign=True),
            limits(row, "change_low", "change_high"),
            "–" if chance is None else f"{chance:.0%}",
            number(row.get("d_bound"), 2),
            _plain(f"{row['name'].partition(' × ')[0]} ({row['category']})"),
        )
    return table


def suite_lines(data: Mapping[str, Any]) -> Iterator[str]:
    """What must be known beside the tables: words that are missing, why there is no figure, counts, conventions."""
    seen = set()
    for row in data["suites"]:
        for text in (_words_line(row), *_reasons(row)):
            if text and text not in seen:
                seen.add(text)
                yield text
    yield from status_lines(data)
    yield from convention_lines(data)


def status_lines(data: Mapping[str, Any]) -> Iterator[str]:
    """How many tests are stable, disappearing, emerging; or why nothing is counted."""
    rows, counts = data["suites"], data.get("status_counts")
    if counts:
        yield ", ".join(f"{name} {count}" for name, count in counts.items()) + f" of {len(rows)}"
    elif calibration_of(data):
        yield from dict.fromkeys(f"no status: {row['change_reason']}" for row in rows if row.get("change_reason"))


def _words_line(row: Row) -> str:
    if not row["words_lost"] and not row["left_out"]:
        return ""
    parts = [f"no vector for {_shortened(row['lost'])}"] if row["lost"] else []
    parts += [f"left out for balance {_shortened(row['left_out'])}"] if row["left_out"] else []
    changed = [
        f"{key.upper()} {row[f'of_{key}']} → {row[f'n_{key}']}" for key in "xyab" if row[f"of_{key}"] != row[f"n_{key}"]
    ]
    return f"{row['test']}: {'; '.join(parts)} ({', '.join(changed)})"


def _shortened(words: str, most: int = 12) -> str:
    every = words.split(", ")
    return words if len(every) <= most else f"{', '.join(every[:most])} and {len(every) - most} more"


def _reasons(row: Row) -> Iterator[str]:
    for key in ("reason", "reason_raw", "reason_calibrated"):
        if row.get(key):
            space = key.partition("_")[2]
            yield f"{row['test']}: no figure{f' ({space})' if space else ''}: {row[key]}"


def further_table(data: Mapping[str, Any]) -> Table:
    """The further scores: a row a test and score (and layer, where there are several)."""
    name = calibration_of(data)
    several = len({row["layer"] for row in data["further"]}) > 1
    table = _table("further scores")
    for heading in (*(("layer",) if several else ()), "test", "score", "of"):
        table.add_column(heading, no_wrap=True)
    for heading in ("raw", *((name,) if name else ())):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("")
    for row in data["further"]:
        reason = row.get("reason") or row.get("reason_raw") or row.get("reason_calibrated") or ""
        cells = [*([str(row["layer"])] if several else []), _plain(row["test"]), row["metric"], row["of"] or ""]
        cells += [number(row["raw"], sign=True), *([number(row.get("calibrated"), sign=True)] if name else [])]
        table.add_row(*cells, _plain(reason))
    return table


def convention_lines(data: Mapping[str, Any]) -> Iterator[str]:
    """The conventions that published figures differ in, in a few lines."""
    said = data["conventions"]
    if said["test"] == "ceat":
        test = f"d is the combined effect size of {said['samples']:,} samples, variance={said['variance']}"
    else:
        test = f"d with ddof={said['ddof']}; p {said['alternative']}, ties {said['ties']}"
    yield f"{test}; lists {said['list_version']} ({said['list_source']})"
    yield words_line(said["words"])
    yield from calibration_lines(data)
    if said.get("note"):
        yield str(said["note"])


def words_line(report: Mapping[str, Any]) -> str:
    """What the vectors of words are made from."""
    words = f"words: {report['form']}"
    if report.get("corpus"):
        words += f", up to {report['sentences']} sentences a word from corpus {report['corpus']}"
    elif report.get("templates"):
        words += f", {report['templates']} templates a word"
    return words


def calibration_lines(data: Mapping[str, Any], most: int = 3) -> Iterator[str]:
    """How each calibration was fitted; of many layers the first few."""
    fits = data["calibrations"]
    for fit in fits[:most]:
        where = f" at layer {fit['layer']}" if len(fits) > 1 else ""
        parts = [f"fitted on {fit['fitted_on']}"] if fit.get("fitted_on") else []
        if fit.get("eps") is not None:
            large = (
                ": directions with less variance than that are hardly whitened" if fit["eps_relative"] > LARGE else ""
            )
            parts.append(f"eps {fit['eps']:g}, {fit['eps_relative']:.2g} of the mean eigenvalue{large}")
        if fit.get("shrinkage_used") is not None:
            parts.append(f"shrinkage {fit['shrinkage_used']:.3g}")
        if fit.get("directions") is not None:
            parts.append(f"{fit['directions']} directions taken out")
        yield f"{fit['calibration']}{where}: {'; '.join(parts)}" if parts else f"{fit['calibration']}{where}"
    if len(fits) > most:
        yield f"… and {len(fits) - most} more layers (calibrations in result.json)"


# Isotropy and similarity ----------------------------------------------------------------------------------------

ISOTROPY = {
    "mean_cosine": "mean cosine",
    "sd_cosine": "sd",
    "top_50": "top 50 explain",
    "effective_rank": "effective rank",
    "iso_score": "IsoScore",
}


def isotropy_table(data: Mapping[str, Any]) -> Table:
    """A row a layer and space."""
    name = calibration_of(data)
    table = _table(f"{data['reference']['name']}: isotropy on held-out vectors")
    for heading in ("layer", "space", "vectors", *ISOTROPY.values()):
        table.add_column(heading, justify="left" if heading == "space" else "right", no_wrap=True)
    for row in data["isotropy"]:
        for space, shown in {"raw": "raw", **({"calibrated": name} if name else {})}.items():
            cells = [f"{row['layer']}", shown or "", f"{row['n']:,}"]
            for key in ISOTROPY:
                value = row.get(f"{key}_{space}")
                cells.append(number(value, 1 if key == "effective_rank" else 3))
            table.add_row(*cells)
    return table


def similarity_table(data: Mapping[str, Any]) -> Table:
    """A row a layer and set of pairs."""
    name = calibration_of(data)
    draws = data["conventions"]["draws"]
    table = _table(f"{data['reference']['name']}: Spearman's ρ with human scores", f"paired bootstrap, {draws:,} draws")
    for heading in ("layer", "set", "pairs", "ρ raw", *((f"ρ {name}", "Δρ", "95 % interval", "p") if name else ())):
        table.add_column(heading, justify="left" if heading == "set" else "right", no_wrap=True)
    for row in data["similarity"]:
        cells = [str(row["layer"]), row["set"], f"{row['pairs']}/{row['pairs'] + row['pairs_lost']}"]
        cells.append(number(row["rho_raw"]))
        if name:
            cells += [number(row["rho_calibrated"]), number(row["change"], sign=True)]
            cells += [limits(row, "change_low", "change_high", 3), p_value(row["p"])]
        table.add_row(*cells)
    return table


def reason_lines(rows: Sequence[Row], of: str) -> Iterator[str]:
    for row in rows:
        for key, value in row.items():
            if key.startswith("reason") and value:
                yield f"{row.get(of, row['layer'])}: no figure: {value}"


def cost_lines(data: Mapping[str, Any], folder: object) -> Iterator[str]:
    """The end of a run: stand-ins, what was encoded, where the files are."""
    for note in data["stand_ins"]:
        yield f"stand-in: {note['used']} is used in place of {note['wanted']}: {note['why']}"
    timings = data["timings"]
    seconds = sum(timings[key] for key in ("load_s", "encode_s", "score_s"))
    fresh, cached = timings["sentences_encoded"], timings["sentences_from_cache"]
    if fresh or cached:
        yield f"{fresh:,} sentences encoded, {cached:,} from the cache; {duration(seconds)} in all."
    yield f"files: {folder}"
