"""The report in a real browser: no error, every figure to be seen, nothing wider than the window."""

import html
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
    "--enable-logging=stderr", "--virtual-time-budget=10000",
)  # fmt: skip
#: Measures the page once it is laid out; what it finds is read from the page it leaves behind.
PROBE = """
<script>
addEventListener("load", () => {
  const wide = document.documentElement.clientWidth;
  const held = element => element.closest(".scroll") !== null;
  const far = [...document.body.querySelectorAll("*")]
    .filter(element => !held(element.parentElement) && element.getBoundingClientRect().right > wide + 1)
    .map(element => element.tagName + "." + element.getAttribute("class"));
  const pictures = [...document.querySelectorAll('svg[role="img"]')].map(svg => {
    const box = svg.getBoundingClientRect();
    const marks = [...svg.querySelectorAll("rect, path")].filter(mark => {
      const style = getComputedStyle(mark);
      return style.fill !== "none" || style.stroke !== "none";
    });
    return {width: box.width, height: box.height, marks: marks.length};
  });
  const words = [...document.querySelectorAll("svg[role=img] text")];
  const outside = words.filter(text => {
    const box = text.getBoundingClientRect(), frame = text.closest("svg").getBoundingClientRect();
    return box.left < frame.left - 1 || box.right > frame.right + 1;
  }).map(text => text.textContent);
  const found = {inner: innerWidth, scroll: document.documentElement.scrollWidth, far, pictures, outside,
    ink: getComputedStyle(document.body).color, page: getComputedStyle(document.body).backgroundColor};
  parent.postMessage(JSON.stringify(found), "*");
});
</script>
"""
#: A window has a least width, a frame in it has not.
FRAME = """<!DOCTYPE html><title>frame</title><body><pre id="probe"></pre><script>
addEventListener("message", event => { document.getElementById("probe").textContent = event.data; });
</script><iframe style="border: 0; width: WIDTHpx; height: 900px" srcdoc="PAGE"></iframe></body>"""

pytestmark = pytest.mark.skipif(
    CHROMIUM is None or sys.platform != "linux", reason="no Chromium here: install the package chromium"
)


def opened(page: Path, folder: Path) -> tuple[str, list[str]]:
    """The document after loading, and what the console said."""
    command = [str(CHROMIUM), *FLAGS, f"--user-data-dir={folder / 'profile'}", "--window-size=1400,1000", "--dump-dom"]
    done = subprocess.run([*command, page.as_uri()], capture_output=True, text=True, timeout=120, check=True)
    return done.stdout, re.findall(r".*CONSOLE.*", done.stderr)


def probed(text: str, width: int, folder: Path) -> dict:
    """What the probe measured in a copy of the page, so many pixels wide."""
    copy = html.escape(text.replace("</body>", PROBE + "</body>"))
    page = folder / "frame.html"
    page.write_text(FRAME.replace("WIDTH", str(width)).replace("PAGE", copy), encoding="utf-8")
    dom, console = opened(page, folder)
    assert console == []
    found = re.search(r'<pre id="probe">(.+?)</pre>', dom, re.S)
    assert found is not None, "the probe did not run"
    return json.loads(html.unescape(found.group(1)))


@pytest.mark.parametrize("width", [1280, 400])
def test_every_figure_is_seen_and_nothing_is_too_wide(written, tmp_path, width):
    found = probed(written.read_text(encoding="utf-8"), width, tmp_path)
    assert found["inner"] == width
    assert found["scroll"] <= width
    assert found["far"] == []
    assert found["outside"] == []
    assert len(found["pictures"]) == 17
    assert all(picture["width"] > 150 and picture["height"] > 50 for picture in found["pictures"])
    assert all(picture["marks"] > 3 for picture in found["pictures"])


def test_dark_mode_has_light_ink(written, tmp_path):
    text = written.read_text(encoding="utf-8").replace("(prefers-color-scheme: dark)", "all")
    found = probed(text, 800, tmp_path)
    ink, page = (sum(map(int, re.findall(r"\d+", found[key])[:3])) for key in ("ink", "page"))
    assert ink > 600
    assert page < 100


def test_errors_and_overflow_would_be_seen(tmp_path):
    page = tmp_path / "bad.html"
    page.write_text("<!DOCTYPE html><body><script>console.error('planted')</script></body>", encoding="utf-8")
    assert "planted" in opened(page, tmp_path)[1][0]
    wide = "<!DOCTYPE html><body><div style='width: 900px'>x</div></body>"
    assert probed(wide, 400, tmp_path)["far"] == ["DIV.null"]
