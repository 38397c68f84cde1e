"""The picture of the explorer, and how long an update takes: python docs/explorer.py (extra `gpcde[test-all]`).

The demo's model is learnt and served, a real browser opens the page, and the slider moves from end to end. An update's
time is the page's own: from the slider's event, through the server, to the frame after the pictures were drawn.
"""

import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from gpcde import GPCDE, demo
from gpcde.explorer.answers import Explorer
from gpcde.explorer.server import Server

PICTURE = Path(__file__).with_name("images") / "explorer.png"


def chromium() -> str | None:
    """Where Chromium is; installed from Debian's packages where that is possible and it is missing, else None."""
    names = ("chromium", "chromium-browser", "google-chrome")
    found = next((path for path in map(shutil.which, names) if path), None)
    if found or os.geteuid() != 0 or not shutil.which("apt-get"):
        return found
    for command in ("update", "install -y --no-install-recommends chromium"):
        subprocess.run(["apt-get", *command.split()], capture_output=True, timeout=300, check=False)
    return shutil.which("chromium")


@contextmanager
def browser() -> Iterator[Any]:
    """Chromium without a window, driven by Playwright."""
    from playwright.sync_api import sync_playwright

    path = chromium()
    if path is None:
        raise RuntimeError("there is no Chromium here, and it could not be installed: apt-get install chromium")
    with sync_playwright() as playwright:
        # a container's root has no sandbox; the only page is our own
        page = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        try:
            yield page
        finally:
            page.close()


@contextmanager
def served(explorer: Explorer) -> Iterator[Server]:
    """The page, in a thread of its own."""
    with Server(explorer) as server:
        explorer.warm_up()
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def main() -> None:
    import pandas as pd

    x, y = demo.sample(np.random.default_rng(0), 400)
    data = pd.DataFrame({"x": x, "y": y})
    model = GPCDE(random_state=0).fit(data[["x"]], data[["y"]])
    with served(Explorer(model, data)) as server, browser() as chrome:
        page = chrome.new_page(viewport={"width": 1240, "height": 700}, device_scale_factor=1.5)
        page.goto(server.url)
        page.wait_for_selector("html[data-updates='1']")
        times = []
        page.focus("#input-0")
        page.keyboard.press("Home")
        for count in range(2, 42):
            page.wait_for_selector(f"html[data-updates='{count}']")
            times.append([float(page.get_attribute("html", f"data-{name}")) for name in ("ms", "model", "band")])
            page.keyboard.press("PageUp" if count % 5 == 0 else "ArrowRight")
        page.wait_for_selector("html[data-updates='42']")
        page = chrome.new_page(viewport={"width": 1240, "height": 700}, device_scale_factor=1.5)
        page.goto(f"{server.url}#x.x=0.49")
        page.wait_for_selector("html[data-updates='1']")
        page.goto(f"{server.url}#x.x=0.5")
        page.wait_for_selector("html[data-updates='2']")
        page.screenshot(path=PICTURE, full_page=True)
    *_, band = np.mean(times, axis=0)
    median, most = np.median(times, axis=0), np.quantile(times, 0.95, axis=0)
    print(f"{len(times)} updates, {band:.0%} of them with the band:")
    print(f"in all {median[0]:.0f} ms in the median, {most[0]:.0f} ms at most in 95 of 100;")
    print(f"of them the model's: {median[1]:.0f} ms in the median, {most[1]:.0f} ms at most in 95 of 100")
    print(f"The picture: {PICTURE}")


if __name__ == "__main__":
    main()
