"""The plot of the page: one bar for each way to run the job, on a logarithmic scale. Plain SVG."""

from __future__ import annotations

import math
from html import escape
from typing import Any

WIDTH, LEFT, RIGHT, ROW, TOP, BOTTOM = 860, 230, 130, 24, 46, 40
OURS, THEIRS, INK, GRID = "#1f6f8b", "#b8b8b8", "#222222", "#e4e4e4"


def svg(calls: dict[str, Any]) -> str:
    """Medians as bars, a line on to the 99th percentile; the quickest on top."""
    rows = sorted(
        (found["ended"]["p50_ms"], found["ended"]["p99_ms"], name)
        for name, found in calls.items()
        if found["ended"] is not None
    )
    low = math.floor(math.log10(min(row[0] for row in rows)))
    high = math.ceil(math.log10(max(row[1] for row in rows)))
    height = TOP + ROW * len(rows) + BOTTOM
    bottom = height - BOTTOM

    def x(ms: float) -> float:
        inner = WIDTH - LEFT - RIGHT
        return round(LEFT + inner * (math.log10(ms) - low) / max(1, high - low), 1)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'font-family="sans-serif" font-size="12" fill="{INK}" role="img">',
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="{LEFT}" y="20" font-size="14">A no-op Python handler, from the call until all '
        "its processes are gone</text>",
    ]
    for power in range(low, high + 1):
        at = x(10.0**power)
        parts.append(f'<path d="M{at} {TOP - 8}V{bottom}" stroke="{GRID}"/>')
        label = f"{10.0**power:g} ms"
        parts.append(f'<text x="{at}" y="{bottom + 16}" text-anchor="middle">{label}</text>')
    for place, (p50, p99, name) in enumerate(rows):
        y = TOP + ROW * place
        middle, color = y + ROW / 2 - 2, OURS if name.startswith("toolcell") else THEIRS
        bar = f'<rect x="{LEFT}" y="{y}" width="{max(1.0, x(p50) - LEFT):.1f}" height="{ROW - 6}"'
        parts += [
            f'<text x="{LEFT - 8}" y="{middle + 3}" text-anchor="end">{escape(name)}</text>',
            f'{bar} fill="{color}"/>',
            f'<path d="M{x(p50)} {middle}H{x(p99)}m0 -4v8" stroke="{INK}"/>',
            f'<text x="{max(x(p99), x(p50)) + 8}" y="{middle + 3}">{p50:.3g} ms</text>',
        ]
    parts.append(
        f'<text x="{LEFT}" y="{height - 6}">bar: median; line: 99th percentile; the scale is '
        "logarithmic</text>"
    )
    return "\n".join([*parts, "</svg>", ""])
