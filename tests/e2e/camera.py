"""A headless Chromium that takes pictures of Airflow's web page, each of its subject as a whole."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import BrowserContext, Page, sync_playwright

from tests.e2e.server import Call

#: The width of the pages of Airflow and of the reports, and the height that they have at first, in CSS pixels.
WIDTH, REPORT_WIDTH, HEIGHT = 1600, 1020, 720
#: What Airflow keeps in the browser: what stands at the left of the pages of a Dag, and the widths of left and right in
#: percent, for each of the two views.
SETTINGS: dict[str, Any] = {
    "default_dag_view": "grid",
    "react-resizable-panels:grid-ltr": {"details-panel,main-panel": {"expandToSizes": {}, "layout": [22, 78]}},
    "react-resizable-panels:graph-ltr": {"details-panel,main-panel": {"expandToSizes": {}, "layout": [28, 72]}},
}
#: The space between pictures that are saved side by side, in pixels.
GAP = 24
#: How many pixels of content lie outside of what scrolls: to the right, and below.
HIDDEN = """() => {
    const hidden = [0, 0]
    for (const element of document.querySelectorAll('*')) {
        const style = getComputedStyle(element)
        if (/auto|scroll/.test(style.overflowX))
            hidden[0] = Math.max(hidden[0], element.scrollWidth - element.clientWidth)
        if (/auto|scroll/.test(style.overflowY))
            hidden[1] = Math.max(hidden[1], element.scrollHeight - element.clientHeight)
    }
    return hidden
}"""

#: The frame with a page of the quality panel, and how many pixels of that page lie below its end.
PANEL = "iframe[title=Quality]"
HIDDEN_IN_FRAME = "frame => frame.contentDocument.documentElement.scrollHeight - frame.clientHeight"
#: On an OpenAPI page that shows an answer: no more space for the request than it needs, and no list of other answers.
ONLY_ANSWER = """
    textarea.body-param__text { min-height: 0; height: 9em }
    div:has(> .live-responses-table) ~ *, .responses-table:not(.live-responses-table) { display: none }
"""


@dataclass(frozen=True)
class Camera:
    """Takes pictures of pages of Airflow, where the browser is logged in, and saves them in the folder."""

    browser: BrowserContext
    url: str
    folder: Path

    def take_graph(self, name: str, dag: str, path: str) -> None:
        """Take a picture of a page of Airflow with the graph of the Dag at its left, from top to bottom."""
        with self._open(path, default_dag_view="graph", **{f"direction-{dag}": "DOWN"}) as page:
            _unfold_groups(page)
            _show_all(page)
            page.locator(".react-flow__controls-fitview").click()
            page.mouse.move(0, 0)  # no tooltip
            no_map = ".react-flow__minimap { display: none }"  # it covers the last tasks
            self._save(name, _settled(page).screenshot(scale="css", style=no_map))

    def take_grid(self, name: str, path: str) -> None:
        """Take a picture of a page of Airflow with the grid of the Dag's runs at its left."""
        with self._open(path) as page:
            _unfold_groups(page)
            _show_all(page)
            self._save(name, page.screenshot(scale="css"))

    def take_form(self, name: str, path: str, sections: list[str]) -> None:
        """Take a picture of the trigger form of a Dag, once with each of the sections unfolded, side by side."""
        with self._open(path) as page:
            page.get_by_test_id("trigger-dag-button").click()
            self._save(name, *[_unfold_section(page, section) for section in sections])

    def take_report(self, name: str, path: str, last: str) -> None:
        """Take a picture of a report, from its top to the end of the section whose title starts with `last`."""
        with self._open(path) as page:
            page.set_viewport_size({"width": REPORT_WIDTH, "height": HEIGHT})
            section = page.locator("section", has=page.locator("h2", has_text=last)).bounding_box()
            assert section, f"{path} has no section {last}"
            end = section["y"] + section["height"] + GAP
            head = page.screenshot(full_page=True, clip={"x": 0, "y": 0, "width": REPORT_WIDTH, "height": end})
            self._save(name, head)

    def take_panel(self, name: str, path: str, ready: str, last: str | None = None) -> None:
        """Take a picture of a page of the quality panel in Airflow, and a dark one, whose name ends with "-dark".

        Args:
            name: the name of the picture.
            path: the path of the page in Airflow.
            ready: a selector of what the panel shows last.
            last: a selector of what the picture ends with; None for the whole page.
        """
        with self._open(path) as page:
            panel = page.frame_locator(PANEL)
            panel.locator(ready).first.wait_for()
            height = HEIGHT + max(_settled(page).locator(PANEL).evaluate(HIDDEN_IN_FRAME), 0)
            if last:
                box = panel.locator(last).bounding_box()
                assert box, f"{path} shows no {last}"
                height = round(box["y"] + box["height"])
            page.set_viewport_size({"width": WIDTH, "height": height})
            self._save(name, _settled(page).screenshot(scale="css"))
            page.emulate_media(color_scheme="dark")  # Airflow follows it
            self._save(f"{name}-dark", _settled(page).screenshot(scale="css"))

    def take_answer(self, name: str, url: str, operation: str) -> None:
        """Take a picture of an OpenAPI page that has sent the example of an operation, with the answer."""
        page = self.browser.new_page()
        page.set_viewport_size({"width": REPORT_WIDTH, "height": HEIGHT})
        page.goto(url)
        shown = page.locator(".opblock", has=page.get_by_text(operation, exact=True))
        shown.locator(".opblock-summary").click()
        shown.get_by_role("button", name="Try it out").click()
        shown.get_by_role("button", name="Execute").click()
        shown.locator(".live-responses-table").wait_for()
        _settled(page)
        self._save(name, page.screenshot(full_page=True, scale="css", style=ONLY_ANSWER))
        page.close()

    @contextmanager
    def _open(self, path: str, **settings: str) -> Iterator[Page]:
        page = self.browser.new_page()
        for key, value in {**SETTINGS, **settings}.items():
            page.add_init_script(f"localStorage.setItem({key!r}, {json.dumps(value)!r})")
        page.set_viewport_size({"width": WIDTH, "height": HEIGHT})
        page.goto(self.url + path)
        yield _settled(page)
        page.close()

    def _save(self, name: str, *pictures: bytes) -> None:
        """Save the pictures side by side as one, with 256 colours, which makes the file about three times smaller."""
        images = [Image.open(io.BytesIO(picture)).convert("RGB") for picture in pictures]
        width = sum(image.width for image in images) + GAP * (len(images) - 1)
        whole = Image.new("RGB", (width, max(image.height for image in images)), "lightgrey")
        left = 0
        for image in images:
            whole.paste(image, (left, 0))
            left += image.width + GAP
        file = self.folder / f"{name}.png"
        whole.quantize(256, dither=Image.Dither.NONE).save(file, optimize=True)
        print(f"{file}: {whole.width} x {whole.height}, {file.stat().st_size / 1000:.0f} kB", flush=True)


@contextmanager
def camera(chromium: str, call: Call, folder: Path) -> Iterator[Camera]:
    """Start the browser and log in to Airflow."""
    with sync_playwright() as driver:
        program = driver.chromium.launch(executable_path=chromium)
        browser = program.new_context(
            device_scale_factor=2, color_scheme="light", reduced_motion="reduce", locale="en-US", timezone_id="UTC"
        )
        browser.set_default_timeout(300_000)  # a page may wait for a training to begin, on a busy machine
        browser.add_cookies([{"name": "_token", "value": call.token, "url": call.url}])
        yield Camera(browser, call.url, folder)
        program.close()


def _settled(page: Page) -> Page:
    """Wait until nothing is fetched and nothing moves any more."""
    page.wait_for_load_state("networkidle")
    page.wait_for_timeout(1000)
    return page


def _unfold_groups(page: Page) -> None:
    button = page.get_by_test_id("expand-all-button")
    if button.is_enabled():
        button.click()


def _unfold_section(page: Page, section: str) -> bytes:
    form = page.get_by_role("dialog")
    form.get_by_role("button", name=section, exact=True).click()
    _show_all(page)
    return bytes(form.screenshot(scale="css"))


def _show_all(page: Page) -> None:
    right, below = 0, 0
    for _ in range(6):
        right, below = _settled(page).evaluate(HIDDEN)
        size = page.viewport_size
        if size is None or (right, below) == (0, 0):
            return
        page.set_viewport_size({"width": size["width"] + right, "height": size["height"] + below})
    raise RuntimeError(f"{page.url} hides {right} pixels at the right and {below} below, however large the window is")
