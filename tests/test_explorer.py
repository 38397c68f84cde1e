"""What the explorer answers is what the model says, and it answers its own page alone."""

import http.client
import json
import threading
from collections.abc import Iterator
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from gpcde import LinearGaussian
from gpcde.estimators.base import DensityEstimator, Rows
from gpcde.estimators.companions import Companions
from gpcde.estimators.linear import Line
from gpcde.explorer import answers
from gpcde.explorer import server as serving
from gpcde.explorer.answers import LEVELS, Explorer
from gpcde.explorer.draws import DRAWS, Draws
from gpcde.explorer.server import HEADERS, LARGEST, Server, serve
from small import fitted, frame, rows

TABLE, Y = frame(200)
DATA = TABLE.assign(y=Y)
LINEAR = LinearGaussian().fit(TABLE, pd.DataFrame({"y": Y}))


@pytest.fixture(scope="module")
def gpcde() -> Explorer:
    return Explorer(fitted("free-form")[0])


@pytest.fixture(scope="module")
def linear() -> Explorer:
    return Explorer(LINEAR, DATA)


@pytest.fixture(scope="module")
def server(linear: Explorer) -> Iterator[Server]:
    with Server(linear) as made:
        thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def ask(
    server: Server, path: str, body: Any = None, method: str | None = None, **headers: str | None
) -> tuple[http.client.HTTPResponse, Any]:
    """The response and its content; a header that is None is left out."""
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=20)
    content = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    sent = {"Host": f"127.0.0.1:{server.server_port}"}
    if content is not None:
        sent |= {"Content-Type": "application/json", "Content-Length": str(len(content))}
    sent |= {name.replace("_", "-"): value for name, value in headers.items()}  # type: ignore[misc]
    connection.putrequest(method or ("GET" if body is None else "POST"), path, skip_host=True)
    for name, value in sent.items():
        if value is not None:
            connection.putheader(name, value)
    connection.endheaders(content)
    response = connection.getresponse()
    text = response.read()
    connection.close()
    return response, json.loads(text) if response.headers.get_content_type() == "application/json" else text


# what is answered


def test_a_curve_is_the_models_density_with_its_quantiles_and_region(gpcde: Explorer) -> None:
    model = fitted("free-form")[0]
    density = model.predict_density([[0.8, -0.2]])
    answer = gpcde.density({"x": [0.8, -0.2], "outputs": [0], "level": 0.8})
    (curve,) = answer["curves"]
    y, height = np.array(curve["y"]), np.array(curve["density"])
    np.testing.assert_allclose(height, density.pdf_grid(y)[0], rtol=1e-4, atol=1e-12)
    assert np.trapezoid(height, y) == pytest.approx(1, abs=5e-3)
    np.testing.assert_allclose(curve["quantiles"], density.quantile([0.05, 0.25, 0.5, 0.75, 0.95])[0])
    assert curve["mean"] == pytest.approx(density.mean()[0])
    assert curve["std"] == pytest.approx(density.std()[0])
    exact = density.hdr(0.8)
    np.testing.assert_allclose(curve["region"], exact[0], atol=0.05 * curve["std"])  # by its grid
    assert curve["threshold"] == pytest.approx(np.exp(exact.log_threshold[0]), rel=0.05)
    assert curve["mode"] == pytest.approx(density.mode()[0], abs=0.05 * curve["std"])
    below = np.mean(np.array(answer["samples"][0]) <= curve["quantiles"][1])
    assert below == pytest.approx(0.25, abs=0.12)


def test_the_band_is_that_of_drawn_densities(gpcde: Explorer) -> None:
    """Its own 32 draws and 100 others agree, as far as so few can."""
    question = {"x": [0.8, -0.2], "outputs": [0], "level": 0.9}
    y = np.array(gpcde.density(question)["curves"][0]["y"])
    lower, upper = np.array(gpcde.band(question)["bands"][0])
    some = slice(None, None, 10)
    other = fitted("free-form")[0].sample_densities([[0.8, -0.2]], 100, random_state=1).band(0.9, y[some])
    assert gpcde.about()["quick_band"]
    assert (lower <= upper).all()
    wide = (other.upper - other.lower).max()
    assert wide > 0.01
    assert np.abs(lower[some] - other.lower[0]).max() < 0.6 * wide
    assert np.abs(upper[some] - other.upper[0]).max() < 0.6 * wide
    assert np.abs(upper[some] - other.upper[0]).mean() < 0.1 * wide


@pytest.mark.parametrize("share", [0.4, 1e-6])
def test_some_draws_are_those_of_what_stands_beside_the_model(share: float) -> None:
    """As many as its share is large; of all the explorer makes one band."""
    model, X, y = fitted("free-form")
    x, z = model._standard_rows(X, y)
    line = Line.of(Rows(x, z, np.ones(len(z))), ())
    beside = copy(model)
    beside.companions_ = Companions(np.array([share, 1 - share]), (line,))
    one, expected = x.take(np.arange(1)), line.components(x.take(np.arange(1)))
    drawn = Draws(beside).components(one)
    own, others = (drawn[0].n_rows, drawn[1:]) if share > 0.1 else (0, drawn)
    assert own + len(others) == DRAWS
    assert abs(own - share * DRAWS) < 9  # three standard errors
    for other in others:
        np.testing.assert_array_equal(other.mean, expected.mean)
    lower, upper = np.array(Explorer(beside).band({"x": [0.8, -0.2], "outputs": [0], "level": 0.9})["bands"][0])
    assert ((upper - lower).max() > 0.01) == (share > 0.1)  # of the line alone there is nothing to draw


@pytest.mark.parametrize("name", ["two outputs", "full mdn", "P"])
def test_a_map_is_the_joint_density_of_two_outputs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Components along the axes, with axes of their own, or with those of P."""
    monkeypatch.setattr(answers, "_draws", lambda model: (None, "not needed here"))
    model = fitted(name)[0]
    explorer = Explorer(model)
    outputs = [1, 0] if model.n_outputs_ == 2 else [2, 0]
    answer = explorer.density({"x": [0.4, 0.1], "outputs": outputs})
    density = model.predict_density([[0.4, 0.1]]).marginal(outputs)
    side = answer["map"]["side"]
    across, up = (np.linspace(low, high, side) for low, high in explorer.axes[outputs])
    points = np.stack(np.meshgrid(across, up), axis=-1)[::7, ::7].reshape(-1, 2)
    heights = answer["map"]["peak"] * np.reshape(answer["map"]["shares"], (side, side))[::7, ::7].ravel()
    np.testing.assert_allclose(heights, density.pdf_grid(points)[0], atol=1e-4 * answer["map"]["peak"])
    for level, threshold in zip(LEVELS, answer["map"]["thresholds"], strict=True):
        exact = np.exp(density.hdr(level).log_threshold[0])
        assert threshold * answer["map"]["peak"] == pytest.approx(exact, rel=0.2)
    assert [len(curve["y"]) for curve in answer["curves"]] == [301, 301]


def test_a_bounded_output_has_no_density_outside_of_its_bounds() -> None:
    explorer = Explorer(fitted("log")[0])
    (curve,) = explorer.density({"x": [0.0, 0.0], "outputs": [0]})["curves"]
    assert curve["y"][0] >= -50
    assert np.isfinite(curve["density"]).all()
    assert np.trapezoid(curve["density"], curve["y"]) == pytest.approx(1, abs=0.01)


def test_the_page_is_told_inputs_with_ranges_levels_and_where_to_start(linear: Explorer) -> None:
    about = linear.about()
    number, town, level = about["inputs"]
    assert (number["kind"], town["kind"], level["kind"]) == ("slider", "menu", "menu")
    assert (town["levels"], level["levels"]) == (("x", "y", "z"), ("0", "10"))
    assert number["low"] <= DATA["a"].min()
    assert number["high"] >= DATA["a"].max()
    assert number["high"] - number["low"] < 1.05 * (DATA["a"].max() - DATA["a"].min())
    assert number["value"] == pytest.approx(DATA["a"].median(), abs=number["step"])
    assert about["rows"] == len(DATA)
    plain = Explorer(LINEAR).about()
    assert plain["rows"] is None
    assert plain["inputs"][0]["low"] < DATA["a"].mean() - 2 * DATA["a"].std()
    assert "LinearGaussian" in plain["no_band"]


def test_the_data_near_are_the_nearest_rows(linear: Explorer) -> None:
    answer = linear.density({"x": [0.3, "y", "10"], "outputs": [0]})
    near = answer["near"]
    same = DATA[(DATA["town"] == "y") & (DATA["level"] == 10)]
    nearest = same.iloc[(same["a"] - 0.3).abs().argsort()[:6]]
    np.testing.assert_allclose(near["inputs"][0], nearest["a"], rtol=1e-6)
    assert near["inputs"][1:] == [["y"] * 6, ["10"] * 6]
    np.testing.assert_allclose(near["outputs"][0], nearest["y"], rtol=1e-6)
    assert len(near["y"][0]) == 20
    assert near["distance"] == sorted(near["distance"])


def test_rows_that_cannot_be_shown_are_left_out_and_missing_columns_named() -> None:
    broken = DATA.astype({"town": str}).copy()
    broken.loc[3, "a"] = np.nan
    broken.loc[5, "town"] = "elsewhere"
    about = Explorer(LINEAR, broken).about()
    assert (about["rows"], about["skipped"]) == (len(DATA) - 2, 2)
    with pytest.raises(ValueError, match="data lacks columns that the model has: town, y; it has a, level"):
        Explorer(LINEAR, DATA[["a", "level"]])
    with pytest.raises(ValueError, match="column a of data must hold numbers"):
        Explorer(LINEAR, DATA.assign(a="many"))
    with pytest.raises(TypeError, match="data must be a data frame or the path of a CSV file, got list"):
        Explorer(LINEAR, [1, 2])


def test_a_file_and_a_model_without_names_go_by_the_order_of_columns(tmp_path: Path) -> None:
    X, y = rows()
    pd.DataFrame({"first": X[:, 0], "second": X[:, 1], "third": y}).to_csv(tmp_path / "data.csv", index=False)
    explorer = Explorer(LinearGaussian().fit(X, y), tmp_path / "data.csv")
    assert [control.name for control in explorer.condition.controls] == ["x0", "x1"]
    points = explorer.points({"inputs": [1, 0], "outputs": [0]})
    assert sorted(points["inputs"][0]) == pytest.approx(sorted(X[:, 1]))
    assert sorted(points["outputs"][0]) == pytest.approx(sorted(y))


def test_a_model_that_answers_with_samples_is_refused() -> None:
    class Sampled(DensityEstimator):
        pass

    del DensityEstimator._kinds["Sampled"]
    with pytest.raises(TypeError, match="needs a model whose answers are mixtures; Sampled has none"):
        Explorer(Sampled())


# who is answered

VIEW = {"x": [0.0, "x", "10"], "outputs": [0], "level": 0.9}


def test_the_page_and_its_answers_are_served_with_a_policy_that_names_no_other_host(server: Server) -> None:
    assert server.server_address[0] == "127.0.0.1"
    for path, kind in (("/", "text/html"), ("/explorer.css", "text/css"), ("/explorer.js", "text/javascript")):
        response, text = ask(server, path)
        assert (response.status, response.headers.get_content_type()) == (200, kind)
        assert len(text) > 500
        assert b"https://" not in text
        assert text.count(b"http://") == text.count(b"http://www.w3.org/2000/svg")
        for name, value in HEADERS.items():
            assert response.headers[name] == value
        assert "Access-Control-Allow-Origin" not in response.headers
    assert "default-src 'none'" in HEADERS["Content-Security-Policy"]
    assert ask(server, "/api/model")[1]["model"] == "LinearGaussian"
    response, answer = ask(server, "/api/density", VIEW, Origin=server.url[:-1])
    assert response.status == 200
    assert len(answer["curves"]) == 1


@pytest.mark.parametrize("path", ["/", "/api/model", "/api/density"])
@pytest.mark.parametrize(
    "headers", [{"Host": "evil.test"}, {"Host": None}, {"Origin": "http://evil.test"}, {"Origin": "null"}]
)
def test_other_hosts_and_origins_are_refused(server: Server, path: str, headers: dict[str, str | None]) -> None:
    response, answer = ask(server, path, VIEW if path == "/api/density" else None, **headers)
    assert response.status == 403
    assert list(answer) == ["error"]


@pytest.mark.parametrize(
    ("status", "path", "body", "headers"),
    [
        (404, "/explorer.py", None, {}),
        (404, "/../server.py", None, {}),
        (404, "/api/other", VIEW, {}),
        (404, "/", VIEW, {}),
        (415, "/api/density", VIEW, {"Content_Type": "text/plain"}),
        (411, "/api/density", VIEW, {"Content_Length": None}),
        (411, "/api/density", VIEW, {"Content_Length": "-1"}),
        (413, "/api/density", VIEW, {"Content_Length": str(LARGEST + 1)}),
        (400, "/api/density", b"{", {}),
        (400, "/api/density", b"\xff", {}),
        (400, "/api/density", b"[" * 60_000, {}),
        (400, "/api/density", [1], {}),
        (400, "/api/density", {**VIEW, "x": [0.0, "x"]}, {}),
        (400, "/api/density", {**VIEW, "x": [0.0, "nowhere", "10"]}, {}),
        (400, "/api/density", {**VIEW, "x": [0.0, ["x"], "10"]}, {}),
        (400, "/api/density", {**VIEW, "x": [float("nan"), "x", "10"]}, {}),
        (400, "/api/density", {**VIEW, "x": [True, "x", "10"]}, {}),
        (400, "/api/density", {**VIEW, "x": [10**400, "x", "10"]}, {}),
        (400, "/api/density", {**VIEW, "outputs": [1]}, {}),
        (400, "/api/density", {**VIEW, "outputs": [0, 0]}, {}),
        (400, "/api/density", {**VIEW, "outputs": []}, {}),
        (400, "/api/density", {**VIEW, "level": 1}, {}),
        (400, "/api/band", VIEW, {}),
        (400, "/api/points", {"inputs": [3]}, {}),
    ],
)
def test_bad_questions_get_a_word_and_the_right_number(
    server: Server, status: int, path: str, body: Any, headers: dict[str, str | None]
) -> None:
    response, answer = ask(server, path, body, **headers)
    assert response.status == status
    assert answer["error"]


def test_other_methods_are_unknown(server: Server) -> None:
    assert ask(server, "/", method="DELETE")[0].status == 501


# the whole


def test_serve_reads_a_model_opens_the_page_and_ends_when_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    LINEAR.save(tmp_path / "model.gpcde")
    opened: list[str] = []
    monkeypatch.setattr(serving.webbrowser, "open", opened.append)

    def interrupted(_: Server) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Server, "serve_forever", interrupted)
    serve(tmp_path / "model.gpcde", DATA)
    assert len(opened) == 1
    assert opened[0] in capsys.readouterr().out
    serve(tmp_path / "model.gpcde", open_browser=False)
    assert len(opened) == 1


def test_a_port_that_is_taken_is_named(server: Server, tmp_path: Path) -> None:
    LINEAR.save(tmp_path / "model.gpcde")
    with pytest.raises(OSError, match=f"port {server.server_port} of 127.0.0.1 cannot be had"):
        serve(tmp_path / "model.gpcde", port=server.server_port, open_browser=False)
    with pytest.raises(OSError, match="port 70000 of 127.0.0.1 cannot be had"):
        serve(tmp_path / "model.gpcde", port=70000, open_browser=False)
