"""Test the page in a real browser: it shows the model, follows what is typed, and loads nothing from elsewhere."""

import re
import threading
import time
from contextlib import contextmanager

import pytest

from ddpn.serving import create_app

uvicorn = pytest.importorskip("uvicorn")
pytestmark = pytest.mark.last
FAR = """[...document.body.querySelectorAll("*")].filter(each => !each.closest(".scroll") && !each.closest("pre")
    && each.getBoundingClientRect().right > innerWidth + 1).map(each => each.tagName)"""
FACTS = f"""() => {{
    const text = id => document.getElementById(id).textContent, all = where => [...document.querySelectorAll(where)];
    const style = getComputedStyle(document.body), isNameless = each => !each.labels?.length && !each.ariaLabel;
    return {{inner: innerWidth, scroll: document.documentElement.scrollWidth, far: {FAR},
        headline: text("headline"), flag: text("flag"), about: text("about"), fields: all(".field").length,
        bars: all("#distribution .bar").length, lines: all("#distribution .line").length,
        last: all("#distribution .bar title").at(-1).textContent, row: state.row,
        cut: all("#fields, .field").filter(e => e.scrollHeight > e.clientHeight + 1).length,
        ink: style.color, page: style.backgroundColor, why: all(".why").map(each => each.textContent),
        nameless: all("input, select, button").filter(each => isNameless(each) && !each.textContent).length}};
}}"""


@contextmanager
def run_server(app):
    """Yield the address of the app on a free port."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_config=None, access_log=False))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join(10)


class Window:
    """A window of the browser that remembers what was complained about and loaded."""

    def __init__(self, browser) -> None:
        self.page, self.complaints, self.loaded = browser.new_page(), [], []
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.loaded.append(request.url))

    def show(self, address: str, width: int, scheme: str = "light") -> None:
        self.page.set_viewport_size({"width": width, "height": 900})
        self.page.emulate_media(color_scheme=scheme)
        self.page.goto(address)

    def field(self, column: str, which: str = "input"):
        return self.page.locator(f'.field[data-column="{column}"] {which}').first

    def wait_for_predictions(self) -> dict:
        """Return facts of the page once the newest values are predicted."""
        for _ in range(200):
            self.page.wait_for_timeout(100)
            if self.page.evaluate("Number(document.body.dataset.answered) === state.newest"):
                return self.page.evaluate(FACTS)
        raise AssertionError("the newest values were not predicted")


@pytest.fixture(scope="module")
def page_states(chromium, model_path):
    """Facts of the page in several situations, and what the browser complained about and loaded."""
    apps = (
        create_app({"patients": model_path}, reload_every=0.0),
        create_app({"patients": model_path}, reload_every=0.0, token="the-right-token"),
    )
    window = Window(chromium)
    with run_server(apps[0]) as address, run_server(apps[1]) as locked:
        states = {"address": address}
        window.show(address, 1280)
        states["desktop"] = window.wait_for_predictions()
        window.field("severity", "input[type=range]").fill("2")
        states["dragged"] = window.wait_for_predictions()
        window.field("severity").fill("60")
        states["outside"] = window.wait_for_predictions()
        window.field("days").fill("-1")
        window.page.wait_for_selector(".why")
        states["wrong"] = window.page.evaluate(FACTS)
        window.show(address, 400)
        states["phone"] = window.wait_for_predictions()
        window.page.locator(".field input[type=number]").first.focus()
        for key in ("ArrowUp", "ArrowUp", "Tab", "Tab"):
            window.page.keyboard.press(key)
        states["focus"] = window.page.evaluate("document.activeElement.closest('.field').dataset.column")
        states["keys"] = window.wait_for_predictions()
        window.show(address, 800, "dark")
        states["dark"] = window.wait_for_predictions()
        states["complaints"], states["loaded"] = list(window.complaints), list(window.loaded)
        window.show(locked, 800)
        window.page.locator("#token").fill("the-right-token")
        window.page.locator("#login button").click()
        states["login"] = window.wait_for_predictions()
    return states


@pytest.mark.parametrize(("name", "width"), [("desktop", 1280), ("phone", 400)])
def test_the_page_shows_everything_and_nothing_is_too_wide(page_states, name, width):
    state = page_states[name]
    assert (state["inner"], state["far"]) == (width, [])
    assert state["scroll"] <= width
    assert re.match(r"[\d.]+ visits expected; \d+ to \d+ with [\d.]+% \(at least 90% asked\)", state["headline"])
    assert state["fields"] == 7
    assert state["bars"] > 3
    assert state["lines"] == 2
    assert state["cut"] == 0
    assert "Intervals are calibrated on" in state["about"]
    assert state["nameless"] == 0


def test_the_axis_ends_where_hardly_any_mass_is_left(page_states, client):
    body = {"rows": [page_states["desktop"]["row"]], "quantiles": [0.998, 0.9995]}
    (expected,) = client.post("/predict", json=body).json()["predictions"]
    last = int(re.match(r"P\((\d+)\)", page_states["desktop"]["last"])[1])
    assert expected["q0.998"] <= last <= expected["q0.9995"]


def test_the_form_works_by_mouse_and_keyboard_and_explains_a_wrong_value(page_states):
    assert page_states["dragged"]["headline"] != page_states["desktop"]["headline"]
    assert page_states["desktop"]["flag"].startswith("Like the training data")
    assert "'severity' above the training range: 60" in page_states["outside"]["flag"]
    assert page_states["focus"] != "severity"
    assert page_states["keys"]["headline"] != page_states["phone"]["headline"]
    assert page_states["wrong"]["why"] == ["The value must be a number above 0, got -1."]


def test_dark_mode_has_light_text_and_a_token_opens_the_page(page_states):
    ink, page = (sum(map(int, re.findall(r"\d+", page_states["dark"][key])[:3])) for key in ("ink", "page"))
    assert ink > 600
    assert page < 100
    assert page_states["login"]["bars"] > 3


def test_the_browser_complains_about_nothing_and_loads_nothing_from_elsewhere(page_states):
    # The wrong value alone is reported by the browser itself, as an answer with status 422.
    assert [text for text in page_states["complaints"] if "422" not in text] == []
    assert len(page_states["loaded"]) > 5
    assert [url for url in page_states["loaded"] if not url.startswith((page_states["address"], "data:"))] == []
