"""The explorer's page in a real browser: it shows the density, follows its controls, and asks no one else."""

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from gpcde import LinearGaussian
from gpcde.explorer.answers import Explorer

pytestmark = pytest.mark.slow

SPEC = importlib.util.spec_from_file_location("pictures", Path(__file__).parent.parent / "docs" / "explorer.py")
assert SPEC is not None
assert SPEC.loader is not None
pictures = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(pictures)

UPDATES = "() => Number(document.documentElement.dataset.updates ?? 0)"
CURVE = "() => document.querySelector('.density').getAttribute('points')"


def places() -> Explorer:
    """From one place to another: two outputs that lie where two of the inputs do, and a category."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"lon": rng.normal(10, 1, 300), "lat": rng.normal(50, 1, 300)})
    table["size"], table["kind"] = rng.normal(0, 9, 300), rng.choice(["near", "far"], 300)
    to = table[["lon", "lat"]] + rng.normal(0, 0.5, (300, 2)) + 2 * (table[["kind"]] == "far").to_numpy()
    to.columns = ["to_lon", "to_lat"]
    return Explorer(LinearGaussian().fit(table, to), pd.concat([table, to], axis=1))


@pytest.fixture(scope="module")
def chrome() -> Iterator[Any]:
    """The browser; without one, and no way to install it, the tests are skipped and say so."""
    pytest.importorskip(
        "playwright.sync_api", reason="the browser tests need Playwright: pip install 'gpcde[test-all]'"
    )
    if pictures.chromium() is None:
        pytest.skip(
            "the browser tests need Chromium, which is not here and cannot be installed: apt-get install chromium"
        )
    with pictures.browser() as browser:
        yield browser


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with pictures.served(places()) as server:
        yield server.url


@pytest.fixture
def seen(chrome: Any, url: str) -> Iterator[SimpleNamespace]:
    """A page at its first view, with all it asked for and complained of; nothing may have gone elsewhere or wrong."""
    context = chrome.new_context(viewport={"width": 1200, "height": 900})
    page = context.new_page()
    asked: list[str] = []
    wrong: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: wrong.append(message.text))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("requestfailed", lambda request: wrong.append(request.url))
    page.goto(url)
    page.wait_for_selector("html[data-updates='1']")
    yield SimpleNamespace(page=page, asked=asked, wrong=wrong)
    assert not wrong
    assert len(asked) > 4
    assert all(where.startswith((url, "data:")) for where in asked)
    context.close()


def after(page: Any, act: Any) -> None:
    """Do something, and wait until the page has followed it."""
    before = page.evaluate(UPDATES)
    act()
    page.wait_for_function(f"() => Number(document.documentElement.dataset.updates) > {before}")


def median(page: Any) -> float:
    """The first output's median, as the table of numbers tells it."""
    return float(page.locator("#summary tr:has-text('median') td").first.inner_text().replace("−", "-"))


def test_the_page_follows_a_slider_by_mouse_and_keyboard(seen: SimpleNamespace) -> None:
    page = seen.page
    assert page.title() == "p(to_lon, to_lat | lon, lat, size, kind) – gpcde"
    curve, middle = page.evaluate(CURVE), median(page)
    assert middle == pytest.approx(10, abs=3)

    box = page.locator("#input-0").bounding_box()
    after(page, lambda: page.mouse.click(box["x"] + 0.9 * box["width"], box["y"] + box["height"] / 2))
    assert page.evaluate(CURVE) != curve
    assert median(page) > middle + 1

    page.keyboard.press("Tab")  # the second input's exact value, and then its slider
    page.keyboard.press("Tab")
    focused = page.evaluate("() => [document.activeElement.id, getComputedStyle(document.activeElement).outlineStyle]")
    assert focused == ["input-1", "solid"]
    latitude = float(page.locator("#input-1-number").input_value())
    after(page, lambda: page.keyboard.press("PageUp"))
    assert float(page.locator("#input-1-number").input_value()) > latitude

    curve = page.evaluate(CURVE)
    page.focus("#input-3")
    after(page, lambda: page.keyboard.press("ArrowUp" if page.input_value("#input-3") == "near" else "ArrowDown"))
    assert page.evaluate(CURVE) != curve

    after(page, lambda: page.fill("#input-0-number", "9.123"))
    assert page.input_value("#input-0-number") == "9.123"
    after(page, lambda: page.click("#reset"))
    assert median(page) == middle


def test_a_click_on_the_map_moves_the_condition(seen: SimpleNamespace) -> None:
    page = seen.page
    assert page.is_checked("#same-map")  # the places overlap: one map shows both
    assert page.is_hidden("#picker")
    assert page.locator("#plane image").count() == 1
    assert page.locator("#plane .contour").count() == 4
    box = page.locator("#plane svg").bounding_box()
    after(page, lambda: page.mouse.click(box["x"] + 0.3 * box["width"], box["y"] + 0.3 * box["height"]))
    west = page.input_value("#input-0-number"), page.input_value("#input-1-number")
    after(page, lambda: page.mouse.click(box["x"] + 0.7 * box["width"], box["y"] + 0.6 * box["height"]))
    east = page.input_value("#input-0-number"), page.input_value("#input-1-number")
    assert float(west[0]) < float(east[0])
    assert float(west[1]) > float(east[1])

    after(page, lambda: page.uncheck("#same-map"))
    assert page.locator("#pick .point").count() == 300
    box = page.locator("#pick").bounding_box()
    after(page, lambda: page.mouse.click(box["x"] + 0.3 * box["width"], box["y"] + 0.3 * box["height"]))
    assert page.input_value("#input-0-number") != east[0]

    after(page, lambda: page.select_option("#other", ""))
    assert page.is_hidden("#plane")
    assert page.locator(".curve").count() == 1


def test_a_link_restores_the_view(seen: SimpleNamespace) -> None:
    page = seen.page
    after(page, lambda: page.fill("#input-0-number", "11.5"))
    after(page, lambda: page.select_option("#input-3", "far"))
    after(page, lambda: page.select_option("#level", "0.5"))
    after(page, lambda: page.uncheck("#show-samples"))
    after(page, lambda: page.select_option("#output", "1"))
    page.wait_for_function("() => location.hash.includes('hide=samples') && location.hash.includes('show=1')")
    numbers, link = page.inner_text("#summary"), page.url
    assert "x.lon=11.5" in link
    other = page.context.new_page()
    other.goto(link)
    other.wait_for_selector("html[data-updates='1']")
    assert other.inner_text("#summary") == numbers
    assert other.input_value("#input-0-number") == "11.5"
    assert (other.input_value("#input-3"), other.input_value("#level")) == ("far", "0.5")
    assert not other.is_checked("#show-samples")
    nonsense = f"{page.url.split('#')[0]}#x.lon=nowhere&x.kind=other&show=7,7&level=2&map=9&hide=all"
    after(other, lambda: other.goto(nonsense))
    assert median(other) == pytest.approx(10, abs=3)
    assert other.is_hidden("#trouble")
