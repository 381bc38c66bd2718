"""The report as one page of HTML that needs nothing else: no network, no framework, light and dark."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from html import escape
from pathlib import Path
from typing import Any

from wmsched.report.charts import bar, curve_chart, roofline_chart, stack
from wmsched.report.text import disturbed, number, threads_of

__all__ = ["page"]

STYLE, SCRIPT = (Path(__file__).resolve().with_name(f"page.{kind}") for kind in ("css", "js"))
SHOWN = 15  # functions with a bar
OWN = "own"  # colour of what is no function's
NAMES = {
    "untuned": "before: not tuned",
    "tuned": "after",
    "eager": "PyTorch eager",
    "onnxruntime": "onnxruntime",
    "wmsched": "this model",
}
COLUMNS = (
    ("function", "what it computes, and its name in the library"),
    ("ms", "of all its calls in one run of the model"),
    ("share", "of the model's time"),
    ("calls", "in one run of the model"),
    ("us a call", "inside the model, with the caches that the other functions leave"),
    ("warm", "us of a second call at once: its arguments are in the caches"),
    (
        "limit",
        "us that a call takes at least on this machine: arithmetic or memory, and the handing over of loops",
    ),
    ("GFLOP/s", "arithmetic operations"),
    ("GB/s", "arguments, each byte once"),
    ("waits for", "which of the limits explains its time"),
    ("threads", "how many of its parallel loops several threads ran"),
    ("trials", "schedules of it that were measured"),
)


def page(found: Mapping[str, Any]) -> str:
    """Return the page of a report (`wmsched.report.gather.gather`), whose numbers are in it as JSON, too."""
    data = json.dumps(found).replace("<", "\\u003c")  # no name ends the script
    body = "".join(
        (
            _head(found),
            _notes(found),
            _section("Where the time goes", _functions(found)),
            _section("What it waits for", _waits(found)),
            _section("Beside what this machine allows", _roofline(found)),
            _section("Before, after, and other runtimes", _latencies(found)),
            _section("The search", _search(found)),
            _section("All functions", _table(found)),
            _section("What no measurement chose", _left(found)),
            _section("How this was measured", _how(found)),
        )
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(_short(found['model']))}: where its time goes</title>"
        f"<style>{STYLE.read_text(encoding='utf-8')}</style></head><body><main>{body}</main>"
        f'<script type="application/json" id="report">{data}</script>'
        f"<script>{SCRIPT.read_text(encoding='utf-8')}</script></body></html>\n"
    )


def _short(name: str) -> str:
    return Path(name).name


def _section(title: str, inner: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{inner}</section>" if inner else ""


def _time(seconds: float | None) -> str:
    """A time with three digits that mean something, and its unit; "-" for none."""
    if seconds is None:
        return "-"
    value, unit = next(
        ((seconds * times, unit) for times, unit in ((1.0, "s"), (1e3, "ms")) if seconds * times >= 0.1),
        (seconds * 1e6, "µs"),
    )
    return f"{value:.0f} {unit}" if value >= 100 else f"{value:.3g} {unit}"


def _head(found: Mapping[str, Any]) -> str:
    whole, then = found["profile"], found["then"]
    tiles = [("one run", f"{_time(whole['seconds'])}")]
    if "untuned" in then and "tuned" in then:
        tiles.append(("before tuning", f"{_time(then['untuned'])}"))
        tiles.append(("times as fast", f"{then['untuned'] / then['tuned']:.2f}"))
    tiles.append(("functions", str(len(found["functions"]))))
    tiles.append(("calls in a run", str(sum(row["calls"] for row in found["functions"]))))
    tiles.append(("trials", str(found["search"]["trials"])))
    cpu = _cpu(found["target"])
    return (
        f"<header><h1>{escape(_short(found['model']))}</h1><p class=sub>{escape(cpu)}, {found['threads']} "
        f"threads, {'constructed' if found['constructed'] else 'tuned'} {escape(found['tuned'][:10])}, timed "
        f"{escape(found['date'][:10])}, TVM {escape(str(found['versions'].get('tvm', '')))}</p>"
        "<div class=tiles>"
        + "".join(f"<div><b>{escape(value)}</b><span>{escape(label)}</span></div>" for label, value in tiles)
        + "</div></header>"
    )


def _cpu(target: str) -> str:
    try:
        told = json.loads(target)
        return str(told.get("mcpu") or told.get("arch") or told.get("kind"))
    except (ValueError, AttributeError):
        return target


def _notes(found: Mapping[str, Any]) -> str:
    notes = []
    if why := disturbed(found):
        notes.append(f"{why}.")
    if found["why_unknown"]:
        notes.append(f"Operations are not known: {found['why_unknown']}.")
    if found["library"]["why"]:
        notes.append(f"{found['library']['why']}: the library is the one without tuning.")
    return "".join(f"<p class=warn>{escape(note[:1].upper() + note[1:])}</p>" for note in notes)


def _functions(found: Mapping[str, Any]) -> str:
    rows, whole = found["functions"], found["profile"]
    longest = max((row["seconds"] for row in rows[:1]), default=0.0)
    longest = max(longest, whole["machine"], whole["rest"]) or 1.0
    lines = []
    for row in rows[:SHOWN]:
        limit = row["limit"]["seconds"]
        title = f"{row['name']}: {_time(row['seconds'])}, {row['calls']} calls, at least {_time(limit)}"
        lines.append(
            _line(
                escape(row["what"]) + (f" <i>&times;&nbsp;{row['calls']}</i>" if row["calls"] > 1 else ""),
                bar(
                    row["seconds"] / longest,
                    row["limit"]["waits"],
                    title,
                    None if limit is None else limit / longest,
                ),
                row["seconds"],
                row["share"],
            )
        )
    left = rows[SHOWN:]
    others = [
        (f"{len(left)} more functions", sum(row["seconds"] for row in left), len(left)),
        ("the virtual machine's own functions", whole["machine"], 1),
        ("between the functions: the virtual machine's steps", whole["rest"], 1),
    ]
    for label, seconds, there in others:
        if there:
            part = min(1.0, seconds / longest)
            share = seconds / whole["seconds"]
            lines.append(_line(escape(label), bar(part, OWN, f"{_time(seconds)}"), seconds, share))
    return (
        f"<p>Time of each function inside the model. The tick is the least that this machine allows; "
        f"the colour is what it waits for.</p>{_legend(found)}<div class=bars>{''.join(lines)}</div>"
    )


def _line(label: str, drawn: str, seconds: float, share: float) -> str:
    return (
        f"<div class=line><span class=what>{label}</span>{drawn}"
        f"<span class=num>{_time(seconds)}</span><span class=num>{100 * share:.1f} %</span></div>"
    )


def _legend(found: Mapping[str, Any]) -> str:
    used = [name for name in found["meaning"] if name in found["waits"]]
    keys = [f'<span><svg width="12" height="12"><rect width="12" height="12" rx="2" class="w-{name}"/></svg>'
            f"{escape(name)}</span>" for name in used]  # fmt: skip
    return f"<p class=legend>{''.join(keys)}</p>"


def _waits(found: Mapping[str, Any]) -> str:
    whole = found["profile"]
    parts = [(name, seconds, f"{name}: {_time(seconds)}") for name, seconds in found["waits"].items()]
    parts.append((OWN, whole["machine"] + whole["rest"], "the virtual machine"))
    items = [
        f"<li><b>{escape(name)}</b> {_time(seconds)}, {100 * seconds / whole['seconds']:.0f} %: "
        f"{escape(found['meaning'][name])}</li>"
        for name, seconds in found["waits"].items()
    ]
    own = whole["machine"] + whole["rest"]
    items.append(
        f"<li><b>the virtual machine</b> {_time(own)}, {100 * own / whole['seconds']:.0f} %: "
        "allocations, and the steps between functions</li>"
    )
    over = sum(max(0.0, row["over"] or 0.0) for row in found["functions"])
    return (
        f"{stack(parts)}<ul>{''.join(items)}</ul><p>All functions together take {_time(over)} longer than "
        "their limits.</p>"
    )


def _roofline(found: Mapping[str, Any]) -> str:
    chart, machine = roofline_chart(found), found["machine"]
    if not chart:
        return "<p>Not known here: the page needs operations, and a C++ compiler to measure the machine.</p>"
    said = [f"{machine['gflops']:.0f} GFLOP/s"]
    if machine["int8"] is not None:
        said.append(f"{machine['int8']:.0f} of 8-bit integers")
    touched = f"{found['profile']['memory'] / 1e6:.1f} MB"
    said.append(f"{machine['memory']:.1f} GB/s out of as much memory as a run touches ({touched})")
    if machine["handover"] is not None:
        said.append(f"{_time(machine['handover'])} to hand a parallel loop to another thread")
    return (
        f"{chart}<p>One dot is a function; its size is its share. This machine, measured on "
        f"{machine['threads']} threads: {', '.join(said)}.</p>"
    )


def _latencies(found: Mapping[str, Any]) -> str:
    parts: list[tuple[str, dict[str, float], dict[str, str]]] = [("when it was built", found["then"], {})]
    if found["compared"]:
        parts.insert(0, ("now, in turns", found["compared"]["seconds"], found["compared"]["missing"]))
    shown = []
    for title, seconds, missing in parts:
        longest = max(seconds.values(), default=0.0) or 1.0
        lines = []
        for name, value in seconds.items():
            label = NAMES.get(name, name)
            ours = "code" if name in ("tuned", "wmsched") else OWN
            lines.append(
                f"<div class=line><span class=what>{escape(label)}</span>"
                f"{bar(value / longest, ours, f'{label}: {_time(value)}')}"
                f"<span class=num>{_time(value)}</span><span class=num></span></div>"
            )
        why = "".join(f"<p class=sub>{escape(name)}: {escape(text)}</p>" for name, text in missing.items())
        if lines:
            shown.append(f"<h3>{escape(title)}</h3><div class=bars>{''.join(lines)}</div>{why}")
    if not found["compared"]:
        shown.append(
            "<p class=sub><code>wmsched report DIR --compare</code> times the other runtimes now.</p>"
        )
    return "".join(shown)


def _search(found: Mapping[str, Any]) -> str:
    told = found["search"]
    if not told["trials"]:
        seconds = told["construct_seconds"]
        how = "" if seconds is None else f" They took {seconds:.0f} s."
        return f"<p>No search: its schedules are those that the cost model ranks first.{how}</p>"
    failed = f", of which {told['failed']} failed" if told["failed"] else ""
    return (
        f"{curve_chart(told['curve'])}<p>{told['trials']} trials{failed}, in {told['seconds'] / 60:.1f} "
        "minutes. The curve adds up the functions' best times by themselves, each as often as the model "
        "calls it.</p>"
    )


def _table(found: Mapping[str, Any]) -> str:
    heads = "".join(
        f'<th scope=col title="{escape(why, quote=True)}"><button type=button>{escape(name)}</button></th>'
        for name, why in COLUMNS
    )
    rows = "".join(f"<tr>{''.join(_cells(row))}</tr>" for row in found["functions"])
    return (
        f"<div class=wide tabindex=0><table id=functions><thead><tr>{heads}</tr></thead>"
        f"<tbody>{rows}</tbody></table></div><p class=sub>A click on a heading sorts.</p>"
    )


def _cells(row: Mapping[str, Any]) -> Iterable[str]:
    each = 1e6 / row["calls"]
    limit, waits = row["limit"]["seconds"], row["limit"]["waits"]
    shapes = ", ".join(row["shapes"])
    yield (
        f'<th scope=row title="{escape(shapes, quote=True)}" data-v="{escape(row["what"], quote=True)}">'
        f"{escape(row['what'])}<small>{escape(row['name'])}</small></th>"
    )
    for key, value, text in (
        ("seconds", row["seconds"], number(row["seconds"], ".3f", 1e3)),
        ("share", row["share"], f"{100 * row['share']:.1f} %"),
        ("calls", row["calls"], str(row["calls"])),
        ("call", row["seconds"] / row["calls"], number(row["seconds"], ".1f", each)),
        ("warm", row["warm"], number(row["warm"], ".1f", each)),
        ("limit", limit, number(limit, ".1f", each)),
        ("gflops", row["gflops"], number(row["gflops"], ".1f")),
        ("gbs", row["gbs"], number(row["gbs"], ".1f")),
    ):
        yield f'<td data-k="{key}" data-v="{"" if value is None else repr(value)}">{text}</td>'
    colour = f'<svg width="10" height="10"><rect width="10" height="10" rx="2" class="w-{waits}"/></svg>'
    yield f'<td class=left data-v="{waits}">{colour} {escape(waits)}</td>'
    yield f'<td data-v="{row["shared"]}">{threads_of(row)}</td>'
    trials = row["trials"]
    how = row["how"] if trials == 0 and row["how"] else None
    text = how or ("-" if trials is None else str(trials))
    yield f'<td data-v="{"" if trials is None else trials}">{escape(text)}</td>'


def _left(found: Mapping[str, Any]) -> str:
    by_why: dict[str, list[str]] = {}
    for one in found["left"]:
        by_why.setdefault(one["why"], []).append(one["name"])
    if not by_why:
        return "<p>Every function's schedule was chosen by measurements.</p>"
    return "".join(
        f"<details{' open' if len(names) < 8 else ''}><summary>{len(names)} functions: {escape(why)}"
        f"</summary><p>{', '.join(f'<code>{escape(name)}</code>' for name in names)}</p></details>"
        for why, names in by_why.items()
    )


def _how(found: Mapping[str, Any]) -> str:
    whole = found["profile"]
    low, high = whole["spread"]
    return (
        f"<p>{whole['rounds']} runs with a clock and as many without took turns; of each function the median "
        f"counts. Runs without the clock took {_time(whole['measured'])} (median; tenth to ninetieth "
        f"percentile {_time(low)} to {_time(high)}). The clock lengthened a run by {_time(whole['clock'])}, "
        "which is left out.</p><p>Operations are counted from TensorIR, one for each addition, product or "
        "call of a function. Bytes are those of the arguments, each once. The limit for memory takes weights "
        "from as far as all lies that a run touches, and what one function hands to the next from where so "
        "many bytes have room. The machine's numbers are the best of several tries.</p>"
    )
