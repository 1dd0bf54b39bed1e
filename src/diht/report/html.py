"""What HTML pages of this package share: one file that needs nothing else, light and dark, on a phone and on paper."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

__all__ = ["CSS", "document", "table"]

CSS = """
:root{color-scheme:light dark;--paper:#fff;--card:#f6f8fa;--ink:#1b1f24;--faint:#57606a;--edge:#d8dee4;
--yes:#116329;--part:#7a4e00;--no:#a40e26;--none:#57606a;--link:#0550ae}
@media (prefers-color-scheme:dark){:root{--paper:#0d1117;--card:#161b22;--ink:#e6edf3;--faint:#9aa4af;--edge:#343d47;
--yes:#56d364;--part:#e3b341;--no:#ff7b72;--none:#9aa4af;--link:#79c0ff}}
*{box-sizing:border-box}
body{margin:0 auto;padding:0 16px 48px;max-width:1200px;background:var(--paper);color:var(--ink);
font:16px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,sans-serif;overflow-wrap:break-word}
h1{font-size:1.7rem;line-height:1.2;margin:32px 0 8px}
h2{font-size:1.3rem;line-height:1.25;margin:48px 0 8px;padding-top:8px}
h3{font-size:1rem;margin:0 0 4px}
p{margin:0 0 8px}a{color:var(--link)}
.faint{color:var(--faint)}
.notice{border:1px solid var(--part);border-radius:8px;padding:8px 12px;margin:16px 0}
.card{background:var(--card);border:1px solid var(--edge);border-radius:10px;padding:16px;margin:16px 0;display:grid;
gap:16px 28px;grid-template-columns:minmax(0,1fr)}
.charts{display:grid;gap:16px 24px;grid-template-columns:repeat(auto-fit,minmax(min(100%,300px),1fr));
align-items:start;align-content:start}
.charts .chart{max-width:480px}
.head{display:flex;flex-wrap:wrap;gap:4px 10px;align-items:baseline}
.badge{display:inline-block;border:1.5px solid currentColor;border-radius:99px;padding:0 10px;font-size:.82rem;font-weight:600;
line-height:1.6;white-space:nowrap}
.yes{color:var(--yes)}.part{color:var(--part)}.no-badge{color:var(--no)}.none{color:var(--none)}
.scroll{overflow-x:auto;max-width:100%}
table{border-collapse:collapse;font-size:.88rem;font-variant-numeric:tabular-nums;margin:8px 0}
th,td{padding:3px 12px 3px 0;text-align:right;white-space:nowrap;border-bottom:1px solid var(--edge)}
th:first-child,td:first-child{text-align:left}
caption{text-align:left;color:var(--faint);padding-bottom:2px}
.about th{font-weight:400;color:var(--faint);vertical-align:top}.about td{white-space:normal;text-align:left}
details{min-width:0}summary{cursor:pointer;color:var(--link)}
ul{padding-left:20px}li{margin:4px 0}
@media print{body{max-width:none;padding:0}.card,tr,svg{break-inside:avoid}h2,h3{break-after:avoid}
details::details-content{content-visibility:visible;block-size:auto}}
"""


def document(title: str, style: str, header: str, main: str, footer: str) -> str:
    """Return a page of parts that are HTML already; the title is text."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title>\n<style>{CSS}{style}</style></head>\n<body>"
        f"<header>{header}</header>\n<main>{main}</main>\n<footer>{footer}</footer></body></html>\n"
    )


def table(caption: str, heads: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Return a table of texts that scrolls by itself where it is too wide."""
    head = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in heads)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in line) + "</tr>" for line in lines)
    return (
        f'<div class="scroll" tabindex="0"><table><caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )
