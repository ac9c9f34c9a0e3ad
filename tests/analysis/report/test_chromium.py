"""Test the report in a real browser: no error, every figure visible, nothing wider than the window."""

import re

import pytest

pytestmark = pytest.mark.last
#: Measures a page.
PROBE = """() => {
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
  return {inner: innerWidth, scroll: document.documentElement.scrollWidth, far, images, outside,
    ink: getComputedStyle(document.body).color, page: getComputedStyle(document.body).backgroundColor};
}"""


@pytest.fixture(scope="module")
def seen(chromium, report_path):
    """The measures of the page in windows of several kinds, and what the browser complained about and loaded."""
    measures = {"complaints": [], "loaded": []}
    page = chromium.new_page()
    page.on("console", lambda message: measures["complaints"].append(message.text))
    page.on("pageerror", lambda error: measures["complaints"].append(str(error)))
    page.on("request", lambda request: measures["loaded"].append(request.url))
    for name, width, scheme in (("desktop", 1280, "light"), ("phone", 400, "light"), ("dark", 800, "dark")):
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=scheme)
        page.goto(report_path.as_uri())
        measures[name] = page.evaluate(PROBE)
    return measures


@pytest.mark.parametrize(("name", "width"), [("desktop", 1280), ("phone", 400)])
def test_every_figure_is_visible_and_nothing_is_too_wide(seen, name, width):
    measures = seen[name]
    assert measures["inner"] == width
    assert measures["scroll"] <= width
    assert measures["far"] == []
    assert measures["outside"] == []
    assert len(measures["images"]) == 19
    assert all(image["width"] > 150 and image["height"] > 50 for image in measures["images"])
    assert all(image["marks"] > 3 for image in measures["images"])


def test_dark_mode_has_light_text(seen):
    ink, page = (sum(map(int, re.findall(r"\d+", seen["dark"][key])[:3])) for key in ("ink", "page"))
    assert ink > 600
    assert page < 100


def test_the_browser_complains_about_nothing_and_loads_nothing_else(seen, report_path):
    assert seen["complaints"] == []
    assert {url for url in seen["loaded"] if not url.startswith("data:")} == {report_path.as_uri()}
