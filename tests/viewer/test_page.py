"""The page of steps in headless Chromium."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator

import pytest
from PIL import Image

from dacergnn.viewer import page
from tests.support.chromium import Page, shown
from tests.viewer.steps import ATTENTION, LEARNED, steps_of_program

VISIBLE = ".step:not([hidden])"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    folder = tmp_path_factory.mktemp("page")
    files = {(0, "forward"): "00_frontend.sdfg"}
    steps = steps_of_program(ATTENTION, LEARNED)
    (folder / "steps.html").write_text(page(steps, {"E": 1000}, files, "a < b"), encoding="utf-8")
    with shown(folder / "steps.html", folder / "profile") as opened:
        yield opened
        assert opened.complaints == []


def panel(browser: Page) -> str:
    return browser.value("document.getElementById('panel').innerText")


def colours(browser: Page, selector: str) -> int:
    """How many colours an element has on the screen."""
    at = browser.value(f"document.querySelector({selector!r}).getBoundingClientRect().toJSON()")
    picture = Image.open(io.BytesIO(browser.picture())).convert("RGB")
    area = picture.crop((int(at["left"]), int(at["top"]), int(at["right"]), int(at["bottom"])))
    return len(area.getcolors(area.width * area.height) or [])


def step(browser: Page, name: str) -> None:
    """Chooses a step."""
    number = browser.value(
        f"[...document.querySelectorAll('nav button')].find(b => b.innerText.includes({name!r})).dataset.step"
    )
    browser.click(f'nav [data-step="{number}"]')


@pytest.mark.check
def test_forward_and_backward_stand_side_by_side(browser: Page) -> None:
    step(browser, "select adjacency")
    sides = browser.value(
        f"[...document.querySelectorAll('{VISIBLE} figure')].map(f => f.getBoundingClientRect().toJSON())"
    )
    assert len(sides) == 2
    assert sides[0]["right"] <= sides[1]["left"]
    assert sides[0]["top"] == sides[1]["top"]
    assert sides[1]["right"] <= 1600
    assert colours(browser, f"{VISIBLE} .forward svg") > 30
    assert colours(browser, f"{VISIBLE} .phases svg") > 30


@pytest.mark.check
def test_a_click_on_a_box_shows_its_statements(browser: Page) -> None:
    step(browser, "frontend")
    assert "The program as the front end wrote it." in panel(browser)
    assert "00_frontend.sdfg" in panel(browser)
    browser.click(f'{VISIBLE} [data-peer="hs"]')
    text = panel(browser)
    assert "hs = x[src] W[etype] [E x 8]" in text
    assert 'E: e["hs"] = linear(e.src["x"], W[e.etype])' in text
    assert "writes\ths\tE x 8\t1,000 x 8\t32 kB" in text
    browser.click(f"{VISIBLE} figcaption")
    assert "The program as the front end wrote it." in panel(browser)


@pytest.mark.check
def test_a_step_shows_what_it_changed(browser: Page) -> None:
    step(browser, "compact materialization")
    text = panel(browser)
    assert 'E: e["hs"] = linear(e.src["x"], W[e.etype])' in text[text.index("removed") : text.index("added")]
    assert 'U: p["hs"] = linear(p.src["x"], W[p.etype])' in text[text.index("added") :]
    fill = "getComputedStyle(document.querySelector('{} [data-peer={}] rect')).fill"
    assert browser.value(fill.format(VISIBLE, "hs")) == "rgb(217, 242, 221)"
    assert browser.value(fill.format(VISIBLE, "largest")) == "rgb(255, 255, 255)"


@pytest.mark.check
def test_the_backward_is_collapsed_until_asked(browser: Page) -> None:
    step(browser, "traversal fusion")
    browser.click(f'{VISIBLE} .phases [data-peer="att"]')
    assert "gradient of att, tmp" in panel(browser)
    chosen = browser.value(f"[...document.querySelectorAll('{VISIBLE} .peer')].map(b => b.dataset.peer)")
    assert chosen == ["att", "att"]  # the phase, and the loop of the forward that it belongs to
    boxes = f"[...document.querySelectorAll('{VISIBLE} .box')].filter(b => b.checkVisibility()).length"
    collapsed = browser.value(boxes)
    browser.click(f"{VISIBLE} .switch")
    assert browser.value(boxes) > collapsed
    browser.click(f"{VISIBLE} .switch")
    assert browser.value(boxes) == collapsed


@pytest.mark.check
def test_every_text_is_inside_its_box(browser: Page) -> None:
    outside = f"""[...document.querySelectorAll('{VISIBLE} .box')].filter(b => b.checkVisibility()).filter(b => {{
        const right = b.querySelector('rect').getBoundingClientRect().right;
        return [...b.querySelectorAll('text')].some(t => t.getBoundingClientRect().right > right);
    }}).map(b => b.dataset.box)"""
    for name in ("frontend", "select adjacency"):
        step(browser, name)
        assert browser.value(outside) == []


SIZES = f"""[...document.querySelectorAll('{VISIBLE} svg')].filter(s => s.checkVisibility())
    .map(s => s.getBoundingClientRect().width / s.viewBox.baseVal.width)"""
"""Computes how large letters are, as parts of their size in the picture, in each picture that is shown."""


def resize(browser: Page, width: int) -> None:
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.call("Emulation.setDeviceMetricsOverride", **size)


@pytest.mark.check
@pytest.mark.parametrize("width", [800, 1400, 1600])
def test_letters_are_readable_and_the_page_is_as_wide_as_the_screen(browser: Page, width: int) -> None:
    resize(browser, width)
    for name in ("frontend", "select adjacency"):
        step(browser, name)
        assert min(browser.value(SIZES)) > 0.84
        assert browser.value("document.documentElement.scrollWidth") == width
    resize(browser, 1600)


def mouse(browser: Page, kind: str, **arguments: float | str) -> None:
    browser.call("Input.dispatchMouseEvent", **{"type": kind, "x": 500, "y": 500, **arguments})


def wheel(browser: Page, along: float, modifiers: int) -> None:
    mouse(browser, "mouseWheel", deltaX=0, deltaY=along, modifiers=modifiers)
    browser.value("new Promise(done => setTimeout(done, 300))")  # scrolling is smooth


def key(browser: Page, name: str, code: int = 0) -> None:
    for kind in ("keyDown", "keyUp"):
        browser.call("Input.dispatchKeyEvent", type=kind, key=name, windowsVirtualKeyCode=code)
    browser.value("new Promise(done => setTimeout(done, 300))")


def drag(browser: Page) -> None:
    mouse(browser, "mousePressed", button="left", clickCount=1)
    for y in (480, 440, 400):
        mouse(browser, "mouseMoved", y=y, button="left", buttons=1)
    mouse(browser, "mouseReleased", y=400, button="left", clickCount=1)


ZOOMS: dict[str, tuple[Callable[[Page], None], float]] = {
    "button +": (lambda b: b.click(f"{VISIBLE} [data-zoom='+']"), 1.25),
    "button -": (lambda b: b.click(f"{VISIBLE} [data-zoom='-']"), 0.8),
    "wheel up": (lambda b: wheel(b, -100, 2), 1.25),
    "wheel down": (lambda b: wheel(b, 100, 2), 0.8),
    "key +": (lambda b: key(b, "+"), 1.25),
    "key -": (lambda b: key(b, "-"), 0.8),
}
MOVES: dict[str, Callable[[Page], None]] = {
    "wheel": lambda b: wheel(b, 100, 0),
    "key": lambda b: key(b, "ArrowDown", 40),
    "drag": drag,
}


@pytest.fixture
def forward(browser: Page) -> Iterator[Page]:
    """A page whose forward has the focus and its readable size, at the top of the screen."""
    step(browser, "select adjacency")
    browser.value(f"window.scrollTo(0, 0), document.querySelector('{VISIBLE} .forward').focus()")
    yield browser
    browser.value(f"zoomTo(document.querySelector('{VISIBLE} .forward'), null)")


@pytest.mark.check
@pytest.mark.parametrize("way", ZOOMS)
def test_zoom(forward: Page, way: str) -> None:
    change, factor = ZOOMS[way]
    before, other = forward.value(SIZES)
    change(forward)
    assert forward.value(SIZES) == [pytest.approx(before * factor, rel=0.01), other]
    step(forward, "traversal fusion")  # other steps have the zoom, too
    assert forward.value(SIZES)[0] == pytest.approx(before * factor, rel=0.01)
    forward.click(f"{VISIBLE} [data-zoom='0']")
    assert forward.value(SIZES)[0] == pytest.approx(before, rel=0.01)


@pytest.mark.check
def test_the_wheel_keeps_the_place_below_the_pointer(forward: Page) -> None:
    forward.value(f"zoomTo(document.querySelector('{VISIBLE} .forward'), 3)")
    place = f"""(s => [(500 - s.left) / s.width, (500 - s.top) / s.height])(
        document.querySelector('{VISIBLE} .forward svg').getBoundingClientRect())"""
    forward.value(f"document.querySelector('{VISIBLE} .forward').scrollTo(400, 300)")
    before = forward.value(place)
    wheel(forward, -100, 2)
    assert forward.value(place) == pytest.approx(before, abs=0.005)


@pytest.mark.check
@pytest.mark.parametrize("way", MOVES)
def test_moves(forward: Page, way: str) -> None:
    forward.value(f"zoomTo(document.querySelector('{VISIBLE} .forward'), 3)")
    top = f"document.querySelector('{VISIBLE} .forward').scrollTop"
    before = forward.value(f"{top} = 50")
    MOVES[way](forward)
    assert forward.value(top) > before
    assert forward.value(f"document.querySelectorAll('{VISIBLE} .selected').length") == 0  # a drag is no click


@pytest.mark.check
def test_the_whole_picture_fits(forward: Page) -> None:
    key(forward, "f")
    assert forward.value(f"(v => v.scrollHeight <= v.clientHeight)(document.querySelector('{VISIBLE} .forward'))")


def test_the_page_is_whole_without_network() -> None:
    text = page(steps_of_program(ATTENTION, []), {}, {}, "a < b")
    assert "<title>a &lt; b</title>" in text
    assert re.findall(r"(?:src|href)=[\"']([^\"']*)|url\((?!#)", text) == []
    assert "https:" not in text
