"""The report in a real browser: no error, every figure visible, nothing wider than the window."""

import html
import json
import re
import shutil
import subprocess
import sys

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
    "--enable-logging=stderr", "--virtual-time-budget=10000", "--window-size=1400,1000", "--dump-dom",
)  # fmt: skip
#: Measures a page once it is laid out, and sends the result to the page around it.
PROBE = """
<script>
addEventListener("load", () => {
  const wide = document.documentElement.clientWidth;
  const held = element => element.closest(".scroll") !== null;
  const far = [...document.body.querySelectorAll("*")]
    .filter(element => !held(element.parentElement) && element.getBoundingClientRect().right > wide + 1)
    .map(element => element.tagName + "." + element.getAttribute("class"));
  const images = [...document.querySelectorAll('svg[role="img"]')].map(svg => {
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
  const found = {name: "NAME", inner: innerWidth, scroll: document.documentElement.scrollWidth, far, images, outside,
    ink: getComputedStyle(document.body).color, page: getComputedStyle(document.body).backgroundColor};
  parent.postMessage(JSON.stringify(found), "*");
});
</script>
"""
#: A window has a minimal width, a frame in it has not. All pages are probed by one start of the browser.
AROUND = """<!DOCTYPE html><title>frames</title><body><script>
addEventListener("message", event => {
  const line = document.createElement("pre");
  line.className = "probe";
  line.textContent = event.data;
  document.body.append(line);
});
</script>FRAMES</body>"""
FRAME = '<iframe style="border: 0; width: {width}px; height: 900px" srcdoc="{page}"></iframe>'
PLANTED = "<!DOCTYPE html><body><div style='width: 900px'>x</div><script>console.error('planted')</script></body>"

pytestmark = pytest.mark.skipif(
    CHROMIUM is None or sys.platform != "linux", reason="no Chromium here: install the package chromium"
)


@pytest.fixture(scope="module")
def browser(written, tmp_path_factory):
    """The measures of every page by name, and the lines of the browser's console."""
    folder, text = tmp_path_factory.mktemp("chromium"), written.read_text(encoding="utf-8")
    dark = text.replace("(prefers-color-scheme: dark)", "all")
    pages = {"desktop": (1280, text), "phone": (400, text), "dark": (800, dark), "planted": (400, PLANTED)}
    frames = ""
    for name, (width, page) in pages.items():
        probed = page.replace("</body>", PROBE.replace("NAME", name) + "</body>")
        frames += FRAME.format(width=width, page=html.escape(probed))
    around = folder / "frames.html"
    around.write_text(AROUND.replace("FRAMES", frames), encoding="utf-8")
    command = [str(CHROMIUM), *FLAGS, f"--user-data-dir={folder / 'profile'}", around.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    lines = re.findall(r'<pre class="probe">(.+?)</pre>', done.stdout, re.S)
    found = {each["name"]: each for each in (json.loads(html.unescape(line)) for line in lines)}
    assert set(found) == set(pages), "not every probe ran"
    return found, re.findall(r".*CONSOLE.*", done.stderr)


@pytest.mark.parametrize(("name", "width"), [("desktop", 1280), ("phone", 400)])
def test_every_figure_is_visible_and_nothing_is_too_wide(browser, name, width):
    found = browser[0][name]
    assert found["inner"] == width
    assert found["scroll"] <= width
    assert found["far"] == []
    assert found["outside"] == []
    assert len(found["images"]) == 26
    assert all(image["width"] > 150 and image["height"] > 50 for image in found["images"])
    assert all(image["marks"] > 3 for image in found["images"])


def test_dark_mode_has_light_text(browser):
    ink, page = (sum(map(int, re.findall(r"\d+", browser[0]["dark"][key])[:3])) for key in ("ink", "page"))
    assert ink > 600
    assert page < 100


def test_there_is_no_error_and_planted_defects_are_found(browser):
    found, console = browser
    assert ["planted" in line for line in console] == [True]
    assert found["planted"]["far"] == ["DIV.null"]
