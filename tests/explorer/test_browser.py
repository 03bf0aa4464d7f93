"""The explorer in a real browser: what people do with it, and that it asks nobody but its own server."""

import json
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import batchlens as bl
from tests.explorer.browsing import browser, settle, why_not
from tests.program import run

REASON = why_not()
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(bool(REASON), reason=REASON),
    # what playwright leaves behind when it ends is not ours
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]
# Quick to compute, and not the default.
SMALL = "#dim=300&target=0.1&optimizer=sgd%2Cmomentum&batch_sizes=4%2C16%2C64%2C256&batch_size=16&curve=momentum+0"

Open = Callable[..., Any]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browser() as running:
        yield running


@pytest.fixture
def open_page(explorer: bl.Explorer, chromium: Any) -> Iterator[Open]:
    """Opens a page; afterwards nothing went wrong in it, and it asked no other server."""
    troubles: list[str] = []
    pages = []

    def begin(hash: str = SMALL, address: str = explorer.address, **options: Any) -> Any:
        page = chromium.new_page(**options)
        page.on("console", lambda message: troubles.append(message.text) if is_trouble(message) else None)
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("request", lambda request: check_address(request.url))
        page.goto(address + hash)
        settle(page)
        pages.append(page)
        return page

    def is_trouble(message: Any) -> bool:
        """A refused value is no trouble, though chromium logs the status."""
        return message.type in ("error", "warning") and "400 (Bad Request)" not in message.text

    def check_address(url: str) -> None:
        if not url.startswith((explorer.address, "data:", "file:", "blob:")):
            troubles.append(f"asked {url}")

    yield begin
    for page in pages:
        page.close()
    assert troubles == []


def wait_for(page: Any, script: str) -> None:
    """Waits for a condition; the page's policy forbids playwright's own way."""
    for _ in range(300):
        if page.evaluate(script):
            return
        page.wait_for_timeout(100)
    raise AssertionError(f"never true: {script}")


def path_of(page: Any, chart: str = "steps", line: int = 0) -> str:
    return str(page.locator(f"#{chart} .line path").nth(line).get_attribute("d"))


def change(page: Any, field: str, value: str) -> None:
    page.fill(f"#{field}", value)
    page.keyboard.press("Enter")


@pytest.mark.parametrize("slider", ["exponent", "dim", "target", "own_power", "batch_size"])
def test_sliders_move_figures(open_page: Open, slider: str) -> None:
    page = open_page()
    before = [page.inner_html("#steps"), page.text_content("#command"), page.text_content("#point-settings")]
    page.locator(f"#{slider}-slider").focus()
    page.keyboard.press("ArrowRight")
    settle(page)
    after = [page.inner_html("#steps"), page.text_content("#command"), page.text_content("#point-settings")]
    assert after[0] != before[0]
    if slider != "own_power":  # adds a curve, and leaves the point
        assert after[1] != before[1]
        assert after[2] != before[2]


def test_curves_that_are_followed_are_replaced_by_exact_ones(open_page: Open) -> None:
    page = open_page()
    page.evaluate("""() => { window.seen = [];
        document.addEventListener('batchlens:drawn', ({ detail }) => window.seen.push(detail.what)); }""")
    page.locator("#target-slider").focus()
    page.keyboard.press("ArrowRight")
    wait_for(page, "window.seen.includes('exact')")
    settle(page)
    assert page.evaluate("window.seen.slice(0, 3)") == ["curves", "training", "exact"]
    assert page.text_content("#status") == "Exact"


POINTS = [
    SMALL,
    SMALL + "&own_power=0.25&curve=sgd+0.25&exponent=1.3&bins=20&rounding=mean",
    "#dim=1000&target=0.05&optimizer=nesterov%2Csgd%2Bema&batch_sizes=8%2C128&batch_size=128&curve=sgd%2Bema+0&bins=0",
]


@pytest.mark.parametrize("hash", POINTS)
def test_what_is_copied_gives_the_numbers_shown(open_page: Open, capsys: pytest.CaptureFixture[str], hash: str) -> None:
    page = open_page(hash)
    shown = {
        row.locator("dt").text_content(): row.locator("dd").text_content().replace(",", "")
        for row in page.locator("#point-settings div").all()
    }
    command, python = page.text_content("#command"), page.text_content("#python")
    code, out, _ = run(f"{command.removeprefix('batchlens ')} --json", capsys)
    assert code == 0
    (point,) = json.loads(out)["curves"][0]["points"]
    assert int(shown["Steps"]) == point["steps"]
    assert float(shown["Learning rate"]) == pytest.approx(point["learning_rate"], rel=1e-3)
    assert float(shown.get("Momentum", 0)) == pytest.approx(point["momentum"], abs=2e-3)
    assert float(shown.get("Averaging", 0)) == pytest.approx(point["averaging"], abs=2e-3)
    names: dict[str, Any] = {}
    exec(python, names)  # what a person would paste
    assert names["best"].steps == point["steps"]
    assert capsys.readouterr().out.startswith(f"{point['steps']} UpdateRule")
    schedule = page.text_content("#schedule-command").removeprefix("batchlens ")
    steps = json.loads(run(f"{schedule} --json", capsys)[1])["steps"]
    assert f"{steps:,} steps" in page.text_content("#schedule-words")


def test_a_file_is_looked_at_and_its_commands_give_the_numbers_shown(
    open_page: Open, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    page = open_page()
    (tmp_path / "my spectrum.csv").write_text("curvature,count\n" + "".join(f"{1 / i},2\n" for i in range(1, 30)))
    page.check('input[value="file"]')
    page.set_input_files("#problem-file", tmp_path / "my spectrum.csv")
    wait_for(page, "document.getElementById('command').textContent.includes('my spectrum')")
    settle(page)
    monkeypatch.chdir(tmp_path)
    command = page.text_content("#command").removeprefix("batchlens ")
    (point,) = json.loads(run(f"{command} --json", capsys)[1])["curves"][0]["points"]
    assert f"{point['steps']:,}" in page.text_content("#point-settings")
    names: dict[str, Any] = {}
    exec(page.text_content("#python"), names)
    assert names["best"].steps == point["steps"]
    assert page.text_content("#problem-name").startswith("my spectrum.csv: 58 coordinates in 29 bins")
    page.reload()
    settle(page)
    assert "my spectrum.csv" in page.text_content("#command")


def test_measured_runs_are_laid_over_and_taken_away(open_page: Open, tmp_path: Path) -> None:
    page = open_page()
    (tmp_path / "runs.csv").write_text("optimizer,batch_size,steps\nsgd,8,900\nsgd,32,300\nadam,32,200\n")
    page.set_input_files("#overlay-file", tmp_path / "runs.csv")
    wait_for(page, "document.querySelectorAll('#steps .measured .mark').length === 3")
    settle(page)
    assert "overlay=" in page.url
    page.reload()
    settle(page)
    assert page.locator("#steps .measured .mark").count() == 3
    page.click('button[aria-label="Remove runs.csv"]')
    assert page.locator("#steps .measured").count() == 0
    (tmp_path / "wrong.csv").write_text("batch,count\n1,2\n")
    page.set_input_files("#overlay-file", tmp_path / "wrong.csv")
    page.wait_for_selector("#error:not([hidden])")
    assert page.text_content("#error").startswith("wrong.csv, line 1 must name batch_size and steps")


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        ("exponent", "-1", "--exponent must be finite and at least 0, got -1.0."),
        ("target", "abc", "--target must be a number, got abc."),
        ("batch_sizes", "4..", "--batch-sizes must be a number, got nothing."),
        ("dim", "", "--dim must be a whole number, got nothing."),
        ("own_power", "2", "--power must be in [0, 1], got 2.0."),
    ],
)
def test_a_wrong_value_gets_a_sentence_and_the_figures_stay(
    open_page: Open, field: str, value: str, sentence: str
) -> None:
    page = open_page()
    before = path_of(page)
    change(page, field, value)
    page.wait_for_selector("#error:not([hidden])")
    assert page.text_content("#error") == sentence
    assert page.get_attribute(f"#{field}", "aria-invalid") == "true"
    assert path_of(page) == before
    change(page, field, {"batch_sizes": "4,16", "own_power": "0.1"}.get(field, "20"))
    page.wait_for_selector("#error", state="hidden")
    settle(page)


def test_the_address_holds_the_state(open_page: Open) -> None:
    page = open_page()
    change(page, "exponent", "1.24")
    wait_for(page, "location.hash.includes('exponent=1.24')")
    settle(page)
    sentence, path = page.text_content("#sentence"), path_of(page)
    other = open_page("#" + page.url.partition("#")[2])
    assert other.text_content("#sentence") == sentence
    assert path_of(other) == path
    assert other.input_value("#exponent") == "1.24"


def test_two_tabs_do_not_disturb_each_other(open_page: Open) -> None:
    pages = [open_page(), open_page()]
    for _ in range(3):
        for page, key in zip(pages, ("ArrowLeft", "ArrowRight"), strict=True):
            page.locator("#exponent-slider").focus()
            page.keyboard.press(key)
    for page in pages:
        settle(page)
    assert [page.input_value("#exponent") for page in pages] == ["0.94", "1.06"]
    for page in pages:
        steps = bl.tune(bl.NoisyQuadratic.power_law(300, float(page.input_value("#exponent"))).binned(100, "down"),
                        "momentum", 16, 0.1).steps  # fmt: skip
        assert f"{steps:,}" in page.text_content("#point-settings")


def test_a_question_that_is_aborted_while_its_answer_arrives_is_superseded(open_page: Open) -> None:
    found = open_page().evaluate("""async () => {
        const { ask } = await import('/static/answers.js');
        window.fetch = async (_, { signal }) => new Response(new ReadableStream({
            start: (stream) => signal.addEventListener('abort', () => stream.error(signal.reason)) }));
        const abort = new AbortController();
        setTimeout(() => abort.abort());
        return ask('steps', {}, 1, abort.signal).catch(({ superseded }) => superseded);
    }""")
    assert found is True


def test_points_are_chosen_by_click_and_by_arrow_keys(open_page: Open) -> None:
    page = open_page()
    assert page.text_content("#point-title") == "momentum at batch size 16"
    circle = page.locator("#steps .line").first.locator("circle").nth(3)
    circle.scroll_into_view_if_needed()
    box = circle.bounding_box()
    page.mouse.click(box["x"] + 3, box["y"] + 3)
    settle(page)
    assert page.text_content("#point-title") == "sgd at batch size 256"
    page.focus("#steps")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowDown")
    settle(page)
    assert page.text_content("#point-title") == "momentum at batch size 64"
    page.locator("#moment").focus()
    before = page.text_content("#moment-words")
    page.keyboard.press("Home")
    assert page.text_content("#moment-words") != before
    assert page.text_content("#moment-words").startswith("After 1 steps the risk is")


def test_everything_that_can_be_used_has_a_name(open_page: Open) -> None:
    page = open_page()
    unnamed = page.evaluate("""() => {
      const used = document.querySelectorAll("input, select, button, a, svg[role], summary, [tabindex]");
      const named = (e) => e.ariaLabel || e.getAttribute("aria-labelledby") || e.labels?.length || e.textContent.trim();
      return [...used].filter((e) => !named(e)).map((e) => e.id);
    }""")
    assert unnamed == []
    page.click("#numbers summary")
    assert page.locator("#rows tr").count() == 2 * 4
    assert page.locator("#rows tr").first.locator("th, td").all_text_contents()[:3] == ["sgd", "0", "4"]
    with page.expect_download() as download:
        page.click("#csv")
    text = Path(download.value.path()).read_text()
    assert text.startswith("optimizer,power,batch_size,steps,learning_rate,momentum,averaging,status\nsgd,0,4,")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1600])
def test_nothing_is_wider_than_the_window(open_page: Open, width: int, scheme: str) -> None:
    page = open_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") == width
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    brightness = sum(map(int, re.findall(r"\d+", background)[:3])) / 3
    assert (brightness > 128) == (scheme == "light")


def test_a_server_that_has_ended_is_noticed(chromium: Any) -> None:
    page = chromium.new_page()
    with bl.explore(browser=False) as explorer:
        page.goto(explorer.address + SMALL)
        settle(page)
    change(page, "target", "0.2")
    page.wait_for_selector("#error:not([hidden])")
    assert page.text_content("#error") == "The explorer does not answer: batchlens explore has ended."
    page.close()


def test_an_exported_page_works_alone(
    open_page: Open, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("batchlens.explorer._export.EXPONENTS", (0.75, 1.0))
    monkeypatch.setattr("batchlens.explorer._export.TARGETS", (0.1, 0.3))
    monkeypatch.setattr("batchlens.explorer._export.BATCH_SIZES", "16,256")
    path = bl.export_explorer(tmp_path / "talk.html", optimizers=["sgd", "momentum"], powers=[0.0])
    page = open_page("", address=path.as_uri())
    assert page.input_value("#exponent") == "1"
    before = path_of(page)
    page.locator("#exponent-slider").focus()
    page.keyboard.press("ArrowLeft")
    wait_for(page, "location.hash.includes('exponent=0.75')")
    settle(page)
    assert path_of(page) != before
    assert page.locator("#spectrum image").count() == 1
    command = page.text_content("#command").removeprefix("batchlens ")
    (point,) = json.loads(run(f"{command} --json", capsys)[1])["curves"][0]["points"]
    assert f"{point['steps']:,}" in page.text_content("#point-settings")
    assert shlex.split(command)[2] == "momentum"
