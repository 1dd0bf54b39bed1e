"""Draw the picture of the first page: what `diht fit` prints, and the page that it writes.

``python docs/make_picture.py`` runs the command on the data that comes with scikit-learn and writes docs/figures/first-fit.png; it
needs chromium, and pillow, which matplotlib brings.
"""

from __future__ import annotations

import contextlib
import io
import sys
import tempfile
from html import escape
from pathlib import Path

from PIL import Image

from diht.cli import main as diht

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from browser import Browser

COMMAND = ["fit", "--quiet"]
PICTURE = Path(__file__).parent / "figures" / "first-fit.png"
WIDTH, HEIGHT = 1330, 640
SHOWN = 33  # lines of the terminal

STYLE = f"""
body{{margin:0;width:{WIDTH}px;height:{HEIGHT}px;overflow:hidden;background:#fff;font-family:"DejaVu Sans",sans-serif}}
.frame{{position:absolute;border:1px solid #b9c2cc;border-radius:8px;overflow:hidden;box-shadow:0 6px 22px rgba(20,30,50,.18)}}
.bar{{height:24px;background:#e8ecf1;color:#555;font-size:11px;line-height:24px;padding-left:12px}}
.terminal{{left:14px;top:12px;width:800px;height:610px;background:#101820}}
.terminal .bar{{background:#27323e;color:#b9c6d3}}
pre{{margin:0;padding:10px 14px;color:#dfe7ee;font:12.3px/16.6px "DejaVu Sans Mono",monospace}}
.page{{left:790px;top:66px;width:526px;height:560px;background:#fff}}
.page img{{width:526px}}
"""


def printed(folder: Path) -> str:
    """Run the command in a folder, twice, so that compiling is not part of its seconds; return what it prints."""
    for _ in range(2):
        with contextlib.chdir(folder), contextlib.redirect_stdout(io.StringIO()) as out:
            if diht(COMMAND) != 0:
                raise SystemExit("diht fit failed")
    return out.getvalue()


def main() -> None:
    """Write the picture."""
    with tempfile.TemporaryDirectory() as name, Browser() as browser:
        folder = Path(name)
        lines = ["$ diht fit", *printed(folder).splitlines()]
        report = folder / "diht-report" / "report.html"
        browser.open(report, width=760, height=820)
        (folder / "report.png").write_bytes(browser.picture(whole=False))
        shown = escape("\n".join(lines[:SHOWN]))
        (folder / "picture.html").write_text(
            f"<!doctype html><meta charset=utf-8><style>{STYLE}</style>"
            f'<div class="frame terminal"><div class="bar">terminal</div><pre>{shown}</pre></div>'
            '<div class="frame page"><div class="bar">diht-report/report.html</div><img src="report.png"></div>',
            encoding="utf-8",
        )
        browser.open(folder / "picture.html", width=WIDTH, height=HEIGHT)
        (folder / "picture.png").write_bytes(browser.picture(whole=False))
        with Image.open(folder / "picture.png") as picture:
            picture.convert("RGB").quantize(64).save(PICTURE, optimize=True)


if __name__ == "__main__":
    main()
