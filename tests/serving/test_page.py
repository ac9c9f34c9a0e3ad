"""The page in a real browser: it shows the model, follows what is typed, and loads nothing from elsewhere."""

import asyncio
import json
import re
import shutil
import sys
import threading
import time
from contextlib import asynccontextmanager, contextmanager

import pytest

from ddpn.serving import create_app

aiohttp = pytest.importorskip("aiohttp", reason="aiohttp drives the browser over a web socket")
uvicorn = pytest.importorskip("uvicorn")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(
    CHROMIUM is None or sys.platform != "linux", reason="no Chromium here: install the package chromium"
)
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync", "--hide-scrollbars", "--remote-debugging-port=0")  # fmt: skip
FAR = """[...document.body.querySelectorAll("*")].filter(each => !each.closest(".scroll") && !each.closest("pre")
    && each.getBoundingClientRect().right > innerWidth + 1).map(each => each.tagName)"""
FACTS = f"""(() => {{
    const text = id => document.getElementById(id).textContent, all = where => [...document.querySelectorAll(where)];
    const style = getComputedStyle(document.body), isNameless = each => !each.labels?.length && !each.ariaLabel;
    return JSON.stringify({{inner: innerWidth, scroll: document.documentElement.scrollWidth, far: {FAR},
        headline: text("headline"), flag: text("flag"), about: text("about"), fields: all(".field").length,
        bars: all("#distribution .bar").length, lines: all("#distribution .line").length,
        curves: all("#curves svg").length, changes: all("#contributions .size").map(each => each.textContent),
        last: all("#distribution .bar title").at(-1).textContent, row: state.row,
        cut: all("#fields, .field, #contributions span").filter(e => e.scrollHeight > e.clientHeight + 1).length,
        ink: style.color, page: style.backgroundColor, why: all(".why").map(each => each.textContent),
        nameless: all("input, select, button").filter(each => isNameless(each) && !each.textContent).length}});
}})()"""


@contextmanager
def running(app):
    """The address of the app on a free port."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_config=None, access_log=False))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join(10)


class Tab:
    """A tab of the browser, by the DevTools protocol."""

    def __init__(self, socket) -> None:
        self._socket, self._number, self.events = socket, 0, []

    async def call(self, method: str, **parameters):
        self._number += 1
        await self._socket.send_json({"id": self._number, "method": method, "params": parameters})
        async for message in self._socket:
            found = json.loads(message.data)
            if found.get("id") == self._number:
                assert "error" not in found, found
                return found["result"]
            self.events.append(found)
        raise AssertionError("the browser closed the connection")

    async def run(self, script: str):
        return (await self.call("Runtime.evaluate", expression=script))["result"].get("value")

    async def until(self, script: str):
        for _ in range(200):
            if found := await self.run(script):
                return found
            await asyncio.sleep(0.05)
        raise AssertionError(f"never true: {script}")

    async def settled(self) -> dict:
        """Facts once the newest values are predicted and explained."""
        await asyncio.sleep(0.1)
        await self.until("Number(document.body.dataset.explained) === state.newest")
        return json.loads(await self.run(FACTS))

    async def show(self, address: str, width: int, scheme: str = "light") -> None:
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
        await self.call("Emulation.setDeviceMetricsOverride", **size)
        await self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        await self.call("Page.navigate", url=address)
        await self.until("document.readyState === 'complete'")

    async def type(self, key: str, times: int = 1) -> None:
        codes = {"ArrowUp": 38, "Tab": 9, "ArrowDown": 40, "Enter": 13}
        for _ in range(times):
            for kind in ("rawKeyDown", "keyUp"):
                known = {"key": key, "code": key, "windowsVirtualKeyCode": codes[key]}
                await self.call("Input.dispatchKeyEvent", type=kind, **known)


@asynccontextmanager
async def browser(folder):
    """A tab of a new browser."""
    command = [str(CHROMIUM), *FLAGS, f"--user-data-dir={folder}", "about:blank"]
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
    try:
        line = ""
        while "ws://" not in line:
            line = (await process.stderr.readline()).decode()
        base = re.search(r"ws://([^/]+)", line)[1]
        async with aiohttp.ClientSession() as session, session.get(f"http://{base}/json") as response:
            place = next(tab for tab in await response.json() if tab["type"] == "page")["webSocketDebuggerUrl"]
            async with session.ws_connect(place, max_msg_size=0) as socket:
                tab = Tab(socket)
                for domain in ("Runtime", "Log", "Page", "Network"):
                    await tab.call(f"{domain}.enable")
                yield tab
    finally:
        process.kill()
        await process.wait()


SET = """(() => {{
    const box = [...document.querySelectorAll(".field")].find(each => each.dataset.column === "{column}");
    const input = box.querySelector("{which}");
    input.value = "{value}";
    input.dispatchEvent(new Event("input"));
}})()"""


@pytest.fixture(scope="module")
def seen(saved, tmp_path_factory):
    """What the page showed in several situations, and what the browser complained about and loaded."""

    async def visit(address: str, locked: str) -> dict:
        found = {}
        async with browser(tmp_path_factory.mktemp("profile")) as tab:
            await tab.show(address, 1280)
            found["desktop"] = await tab.settled()
            await tab.run(SET.format(column="severity", which="input[type=range]", value="2"))
            found["dragged"] = await tab.settled()
            await tab.run(SET.format(column="severity", which="input", value="60"))
            found["outside"] = await tab.settled()
            await tab.run(SET.format(column="days", which="input", value="-1"))
            await tab.until("Boolean(document.querySelector('.why'))")
            found["wrong"] = json.loads(await tab.run(FACTS))
            await tab.show(address, 400)
            found["phone"] = await tab.settled()
            await tab.run("document.querySelector('.field input[type=number]').focus()")
            await tab.type("ArrowUp", 2)
            await tab.type("Tab", 2)
            found["focus"] = await tab.run("document.activeElement.closest('.field').dataset.column")
            found["keys"] = await tab.settled()
            await tab.show(address, 800, "dark")
            found["dark"] = await tab.settled()
            found["events"] = list(tab.events)
            await tab.show(locked, 800)
            await tab.until("!document.getElementById('login').hidden")
            await tab.run("document.getElementById('token').value = 'the-right-token'")
            await tab.run("document.querySelector('#login button').click()")
            found["login"] = await tab.settled()
        return found

    apps = (
        create_app({"patients": saved}, reload_every=0.0),
        create_app({"patients": saved}, reload_every=0.0, token="the-right-token"),
    )
    with running(apps[0]) as address, running(apps[1]) as locked:
        found = asyncio.run(visit(address, locked))
    return found | {"address": address}


@pytest.mark.parametrize(("name", "width"), [("desktop", 1280), ("phone", 400)])
def test_the_page_shows_everything_and_nothing_is_too_wide(seen, name, width):
    found = seen[name]
    assert (found["inner"], found["far"]) == (width, [])
    assert found["scroll"] <= width
    assert re.match(r"[\d.]+ visits expected; 90% interval \d+ to \d+", found["headline"])
    assert found["fields"] == 7
    assert found["bars"] > 3
    assert found["lines"] == 2
    assert len(found["changes"]) == 6
    assert all(re.fullmatch(r"[+−][\d.,]+%|no change", words) for words in found["changes"])
    assert found["cut"] == 0
    assert found["curves"] == 7
    assert "Intervals are calibrated on" in found["about"]
    assert found["nameless"] == 0


def test_the_axis_ends_where_hardly_any_mass_is_left(seen, client):
    body = {"rows": [seen["desktop"]["row"]], "quantiles": [0.998, 0.9995]}
    (expected,) = client.post("/predict", json=body).json()["predictions"]
    last = int(re.match(r"P\((\d+)\)", seen["desktop"]["last"])[1])
    assert expected["q0.998"] <= last <= expected["q0.9995"]


def test_the_prediction_follows_the_form(seen):
    assert seen["dragged"]["headline"] != seen["desktop"]["headline"]
    assert seen["desktop"]["flag"].startswith("Like the training data")
    assert "'severity' above the training range: 60" in seen["outside"]["flag"]


def test_the_page_works_by_keyboard(seen):
    assert seen["focus"] != "severity"
    assert seen["keys"]["headline"] != seen["phone"]["headline"]


def test_a_wrong_value_is_explained_at_its_field(seen):
    assert seen["wrong"]["why"] == ["The value must be a number above 0, got -1."]


def test_dark_mode_has_light_text(seen):
    ink, page = (sum(map(int, re.findall(r"\d+", seen["dark"][key])[:3])) for key in ("ink", "page"))
    assert ink > 600
    assert page < 100


def test_a_token_opens_the_page(seen):
    assert seen["login"]["bars"] > 3


def test_the_browser_complains_about_nothing_and_loads_nothing_from_elsewhere(seen):
    # The wrong value alone is reported by the browser itself, as an answer with status 422.
    logs = [each["params"]["entry"] for each in seen["events"] if each["method"] == "Log.entryAdded"]
    assert [each["text"] for each in logs if "422" not in each["text"]] == []
    assert [each for each in seen["events"] if each["method"] == "Runtime.exceptionThrown"] == []
    sent = [
        each["params"]["request"]["url"] for each in seen["events"] if each["method"] == "Network.requestWillBeSent"
    ]
    assert len(sent) > 5
    assert [url for url in sent if not url.startswith((seen["address"], "data:"))] == []
