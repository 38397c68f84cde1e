// The page: controls make a view, the server answers what its density is, and pictures are drawn of the answer.
"use strict";

const $ = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";
const REST = 300; // ms: a band that takes long waits until the controls rest that long

let model; // what the server says of the model
let view; // what is looked at: x, outputs, level, axes, same, hidden
const tops = {}; // how high each output's axis reaches: it stays, unless the curve leaves it or shrinks to less than half

// ---- small helpers

function make(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key in node) node[key] = value;
    else node.setAttribute(key, value);
  }
  node.append(...children);
  return node;
}

function draw(name, attributes = {}, ...children) {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

const round = (value) => Math.round(value * 10) / 10;

function shown(value, range) {
  // as many digits as tell a thousandth of the range
  if (!Number.isFinite(value)) return "–";
  const digits = range > 0 ? Math.ceil(-Math.log10(range / 500)) : 3;
  if (digits > 8 || Math.abs(value) >= 1e7) return value.toPrecision(4);
  return value.toFixed(Math.max(0, digits)).replace("-", "−");
}

function ticks(low, high, count) {
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((k) => k * power).find((k) => k >= rough * 0.999);
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; i += 1) found.push(i * step);
  return { step, found };
}

const tickText = (value, step) => shown(Math.abs(value) < step / 1e6 ? 0 : value, step * 500);

function scale(low, high, from, to) {
  return (value) => from + ((value - low) / (high - low)) * (to - from);
}

// ---- the view, and the link that restores it

const sliders = () => model.inputs.map((input, i) => ({ ...input, i })).filter((input) => input.kind === "slider");

function firstView() {
  const outputs = model.outputs.length === 2 ? [0, 1] : [0];
  const first = { x: model.inputs.map((input) => input.value), outputs, level: 0.9, hidden: [], axes: [0, 1] };
  if (outputs.length === 2) first.axes = matching(outputs);
  first.same = outputs.length === 2 && overlap(first);
  return first;
}

function share(one, other) {
  // how much of the shorter of two ranges the other covers
  const both = Math.min(one.high, other.high) - Math.max(one.low, other.low);
  return both / Math.min(one.high - one.low, other.high - other.low);
}

function matching(outputs) {
  // the inputs that lie where these outputs do, else the first two
  const all = sliders();
  const best = outputs.map((j) => {
    const shares = all.map((input) => {
      const longer = Math.max(input.high - input.low, model.outputs[j].high - model.outputs[j].low);
      const shorter = Math.min(input.high - input.low, model.outputs[j].high - model.outputs[j].low);
      return share(input, model.outputs[j]) > 0.5 ? shorter / longer : 0;
    });
    return shares.indexOf(Math.max(...shares));
  });
  return all.length > 1 && best[0] !== best[1] ? best : [0, 1];
}

function overlap(some) {
  const pair = some.axes.map((i) => sliders()[i]);
  if (pair.some((input) => !input)) return false;
  return pair.every((input, side) => {
    const output = model.outputs[some.outputs[side]];
    const ratio = (input.high - input.low) / (output.high - output.low);
    return share(input, output) > 0.5 && ratio > 0.1 && ratio < 10;
  });
}

function link() {
  const parts = new URLSearchParams();
  model.inputs.forEach((input, i) => parts.append(`x.${input.name}`, view.x[i]));
  parts.append("show", view.outputs.join(","));
  parts.append("level", view.level);
  parts.append("map", view.axes.join(","));
  parts.append("same", view.same ? 1 : 0);
  if (view.hidden.length) parts.append("hide", view.hidden.join(","));
  return `#${parts}`;
}

function fromLink(text) {
  // what a link says, as far as it makes sense here
  const parts = new URLSearchParams(text.replace(/^#/, ""));
  const restored = firstView();
  const places = (name, count) => {
    const found = (parts.get(name) ?? "").split(",").filter((part) => /^\d+$/.test(part)).map(Number);
    return found.length && found.length < 3 && new Set(found).size === found.length && found.every((i) => i < count)
      ? found : null;
  };
  model.inputs.forEach((input, i) => {
    const value = parts.get(`x.${input.name}`);
    if (value === null) return;
    if (input.kind === "menu" && input.levels.includes(value)) restored.x[i] = value;
    if (input.kind === "slider" && value.trim() && Math.abs(Number(value)) <= 1e100) restored.x[i] = Number(value);
  });
  restored.outputs = places("show", model.outputs.length) ?? restored.outputs;
  const axes = places("map", sliders().length);
  if (axes?.length === 2) restored.axes = axes;
  if (model.levels.includes(Number(parts.get("level")))) restored.level = Number(parts.get("level"));
  if (parts.has("same")) restored.same = parts.get("same") === "1";
  restored.hidden = (parts.get("hide") ?? "").split(",").filter((name) => ["band", "samples", "near"].includes(name));
  return restored;
}

let linkTimer;
function keepLink() {
  clearTimeout(linkTimer);
  linkTimer = setTimeout(() => history.replaceState(null, "", link()), 200);
}

// ---- controls

function makeControls() {
  model.inputs.forEach((input, i) => {
    const box = make("div", { className: "input" });
    const id = `input-${i}`;
    box.append(make("label", { htmlFor: id, textContent: input.name, title: input.name }));
    if (input.kind === "menu") {
      const menu = make("select", { id }, ...input.levels.map((level) => make("option", { value: level, textContent: level })));
      menu.addEventListener("input", () => move([[i, menu.value]]));
      box.append(menu);
    } else {
      const number = make("input", { type: "number", id: `${id}-number`, step: "any" });
      number.setAttribute("aria-label", `${input.name}, exactly`);
      const range = make("input", { type: "range", id, min: input.low, max: input.high, step: input.step });
      number.addEventListener("input", () => {
        if (number.value.trim() && Number.isFinite(number.valueAsNumber)) move([[i, number.valueAsNumber]], number);
      });
      number.addEventListener("change", setControls);
      range.addEventListener("input", () => move([[i, range.valueAsNumber]]));
      box.append(number, range);
    }
    $("inputs").append(box);
  });
  const options = (names) => names.map((name, i) => make("option", { value: i, textContent: name }));
  $("output").append(...options(model.outputs.map((output) => output.name)));
  $("other").append(make("option", { value: "", textContent: "nothing" }), ...options(model.outputs.map((o) => o.name)));
  for (const id of ["pick-across", "pick-up"]) $(id).append(...options(sliders().map((input) => input.name)));
  $("level").append(...model.levels.map((level) => make("option", { value: level, textContent: `${level * 100} %` })));

  $("output").addEventListener("input", chooseOutputs);
  $("other").addEventListener("input", chooseOutputs);
  $("level").addEventListener("input", () => change({ level: Number($("level").value) }));
  $("same-map").addEventListener("input", () => change({ same: $("same-map").checked }));
  for (const name of ["band", "samples", "near"]) {
    $(`show-${name}`).addEventListener("input", (event) => {
      const hidden = view.hidden.filter((other) => other !== name);
      change({ hidden: event.target.checked ? hidden : [...hidden, name] });
    });
  }
  for (const [id, side] of [["pick-across", 0], ["pick-up", 1]]) {
    $(id).addEventListener("input", () => {
      const axes = [...view.axes];
      const wanted = Number($(id).value);
      if (axes[1 - side] === wanted) axes[1 - side] = axes[side];
      axes[side] = wanted;
      change({ axes });
    });
  }
  $("pick").addEventListener("click", (event) => moveTo(event, $("pick")));
  $("plane").addEventListener("click", (event) => { if (onOneMap()) moveTo(event, $("plane").firstElementChild); });
  $("reset").addEventListener("click", () => change(firstView()));
  $("copy").addEventListener("click", copyLink);
  $("controls").addEventListener("submit", (event) => event.preventDefault());
}

function chooseOutputs() {
  const first = Number($("output").value);
  const other = $("other").value === "" ? [] : [Number($("other").value)].filter((j) => j !== first);
  change({ outputs: [first, ...other] });
}

function setControls(except) {
  model.inputs.forEach((input, i) => {
    const control = $(`input-${i}`);
    control.value = view.x[i];
    if (input.kind === "menu") return;
    const number = $(`input-${i}-number`);
    if (number !== except) number.value = view.x[i];
  });
  const pair = view.outputs.length === 2;
  $("outputs").hidden = model.outputs.length < 2;
  $("output").value = view.outputs[0];
  $("other").value = pair ? view.outputs[1] : "";
  $("level").value = view.level;
  $("pick-across").value = view.axes[0];
  $("pick-up").value = view.axes[1];
  const possible = { band: !model.no_band, samples: true, near: model.rows !== null };
  for (const [name, can] of Object.entries(possible)) {
    $(`show-${name}`).checked = can && !view.hidden.includes(name);
    $(`show-${name}`).disabled = !can;
    $(`show-${name}`).parentElement.title = can ? "" : name === "band" ? model.no_band : "No data were given.";
  }
  const mapped = sliders().length > 1;
  $("same-map").parentElement.hidden = !(mapped && pair);
  $("same-map").checked = view.same;
  $("picker").hidden = !mapped || onOneMap();
}

const onOneMap = () => view.same && view.outputs.length === 2 && sliders().length > 1;
const visible = (name) => $(`show-${name}`).checked;

function move(values, except) {
  const x = [...view.x];
  for (const [i, value] of values) x[i] = value;
  change({ x }, except);
}

function change(parts, except) {
  view = { ...view, ...parts };
  setControls(except);
  keepLink();
  ask();
}

function moveTo(event, picture) {
  // the point of a map that was clicked, in the units of the two inputs
  const { domain, box } = picture.map;
  const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(picture.getScreenCTM().inverse());
  if (at.x < box.left || at.x > box.right || at.y < box.top || at.y > box.bottom) return;
  const place = [scale(box.left, box.right, ...domain[0])(at.x), scale(box.bottom, box.top, ...domain[1])(at.y)];
  move(view.axes.map((axis, side) => {
    const input = sliders()[axis];
    const steps = Math.round((Math.min(Math.max(place[side], input.low), input.high) - input.low) / input.step);
    return [input.i, Number((input.low + steps * input.step).toPrecision(12))];
  }));
}

async function copyLink() {
  history.replaceState(null, "", link());
  try {
    await navigator.clipboard.writeText(location.href);
    $("copy").textContent = "Copied";
  } catch {
    $("copy").textContent = "It is in the address bar";
  }
  setTimeout(() => { $("copy").textContent = "Copy link"; }, 1500);
}

// ---- questions: one at a time, always of the latest view

async function fetched(path, question) {
  const options = question && {
    method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(question),
  };
  const response = await fetch(path, options);
  const answer = await response.json();
  if (!response.ok) throw new Error(answer.error);
  return answer;
}

let asked = null; // the latest view not yet answered, and when it was asked for
let busy = false;
let wake = () => {};

function ask() {
  asked = { began: performance.now() };
  wake();
  if (!busy) answerAll();
}

async function answerAll() {
  busy = true;
  while (asked) {
    const { began } = asked;
    asked = null;
    const current = view;
    const question = { x: current.x, outputs: current.outputs, level: current.level };
    const wantsBand = visible("band");
    const quick = wantsBand && model.quick_band;
    try {
      const answers = [fetched("api/density", question)];
      if (quick) answers.push(fetched("api/band", question));
      const [answer, drawn] = await Promise.all(answers);
      await drawPoints();
      drawAll(answer, drawn);
      finish(began, answer, drawn);
      if (wantsBand && !quick && !asked) {
        await new Promise((done) => { wake = done; setTimeout(done, REST); });
        if (!asked) {
          const late = await fetched("api/band", question);
          if (!asked) drawAll(answer, late);
        }
      }
      $("trouble").hidden = true;
    } catch (error) {
      $("trouble").textContent = error instanceof TypeError
        ? "The server does not answer: start it again with gpcde explore." : error.message;
      $("trouble").hidden = false;
    }
  }
  busy = false;
}

function finish(began, answer, drawn) {
  requestAnimationFrame(() => {
    const total = performance.now() - began;
    const server = answer.ms + (drawn?.ms ?? 0);
    $("time").textContent = `Updated in ${Math.round(total)} ms, ${Math.round(server)} of them the model's.`;
    document.documentElement.dataset.updates = Number(document.documentElement.dataset.updates ?? 0) + 1;
    Object.assign(document.documentElement.dataset, { ms: total.toFixed(1), model: server.toFixed(1), band: drawn ? 1 : 0 });
  });
  clearTimeout(finish.timer);
  finish.timer = setTimeout(() => { $("said").textContent = summaryText(answer); }, 700);
}

// ---- pictures

function drawAll(answer, drawn) {
  $("plane").hidden = !answer.map;
  if (answer.map) drawPlane(answer);
  const curves = answer.curves.map((curve, side) => drawCurve(curve, side, answer, drawn?.bands[side]));
  $("curves").replaceChildren(...curves);
  const grey = drawn ? "; grey: its 90 % band" : "";
  $("key-curves").textContent = `Line: the density${grey}; filled: its ${view.level * 100} % region; upright: the median, `
    + "and dotted the 5, 25, 75 and 95 % quantiles.";
  drawSummary(answer);
  drawNear(answer);
}

const W = 800, LEFT = 92, RIGHT = 12;

function drawCurve(curve, side, answer, ends) {
  const output = model.outputs[view.outputs[side]];
  const small = answer.curves.length > 1;
  const top = 14, bottom = small ? 150 : 300;
  const low = curve.y[0], high = curve.y[curve.y.length - 1];
  const x = scale(low, high, LEFT, W - RIGHT);
  const most = Math.max(...curve.density, ...(ends ? ends[1] : []));
  const known = tops[output.name];
  const height = known >= most && most > 0.45 * known ? known : most * 1.12 || 1;
  tops[output.name] = height;
  const y = scale(0, height, bottom, top);
  const path = (heights) => curve.y.map((value, i) => `${round(x(value))},${round(y(heights[i]))}`);
  const parts = [];

  const up = ticks(0, height, small ? 2 : 4);
  for (const value of up.found) {
    parts.push(draw("path", { class: "grid", d: `M${LEFT} ${round(y(value))}H${W - RIGHT}` }));
    parts.push(draw("text", { x: LEFT - 8, y: round(y(value)) + 4, "text-anchor": "end" }, tickText(value, up.step)));
  }
  if (ends) {
    const there = path(ends[1]), back = path(ends[0]).reverse();
    parts.push(draw("polygon", { class: "band", points: [...there, ...back].join(" ") }));
  }
  for (const [from, to] of curve.region) {
    const inside = curve.y.map((value, i) => [value, curve.density[i]]).filter(([value]) => value > from && value < to);
    const edge = [[from, curve.threshold], ...inside, [to, curve.threshold]];
    const d = edge.map(([value, height]) => `${round(x(value))},${round(y(height))}`);
    parts.push(draw("polygon", {
      class: ends ? "held through" : "held",
      points: [`${round(x(from))},${bottom}`, ...d, `${round(x(to))},${bottom}`].join(" "),
    }));
  }
  curve.quantiles.forEach((value, i) => {
    const middle = model.quantiles[i] === 0.5;
    const at = nearest(curve.y, value);
    parts.push(draw("path", {
      class: middle ? "median" : "quantile", d: `M${round(x(value))} ${bottom}V${round(y(curve.density[at]))}`,
    }));
  });
  parts.push(draw("polyline", { class: "density", points: path(curve.density).join(" ") }));
  const across = ticks(low, high, 7);
  parts.push(draw("path", { class: "axis", d: `M${LEFT} ${bottom}H${W - RIGHT}` }));
  for (const value of across.found) {
    parts.push(draw("path", { class: "axis", d: `M${round(x(value))} ${bottom}v5` }));
    if (x(value) < LEFT + 26) continue; // there the name is
    parts.push(draw("text", { x: round(x(value)), y: bottom + 20, "text-anchor": "middle" }, tickText(value, across.step)));
  }
  parts.push(draw("text", { class: "name", x: LEFT - 8, y: bottom + 20, "text-anchor": "end" }, cut(output.name, 11)));

  let line = bottom + 42;
  const strip = (name) => {
    parts.push(draw("text", { x: LEFT - 8, y: line + 4, "text-anchor": "end" }, name));
    line += 22;
    return line - 22;
  };
  let place = strip(`${view.level * 100} % region`);
  for (const [from, to] of curve.region) {
    parts.push(draw("rect", { class: "bar", x: round(x(from)), y: place - 3, width: Math.max(1.5, round(x(to) - x(from))), height: 6 }));
  }
  if (visible("samples")) {
    place = strip("samples");
    const d = answer.samples[side].filter((value) => value >= low && value <= high).map((value) => `M${round(x(value))} ${place - 6}v12`);
    parts.push(draw("path", { class: "sample", d: d.join("") }));
  }
  if (visible("near") && answer.near) {
    place = strip("data near");
    const far = Math.max(...answer.near.distance) || 1;
    answer.near.y[side].forEach((value, i) => {
      if (value < low || value > high) return;
      parts.push(draw("circle", {
        class: "row", cx: round(x(value)), cy: place + ((i * 7) % 11) - 5, r: 3.2,
        opacity: round(1 - 0.7 * (answer.near.distance[i] / far)),
      }));
    });
  }
  const picture = draw("svg", { viewBox: `0 0 ${W} ${line - 8}`, role: "img", "aria-label": curveText(curve, side) }, ...parts);
  return make("figure", { className: "curve" }, picture);
}

function nearest(sorted, value) {
  const at = sorted.findIndex((other) => other >= value);
  return at < 0 ? sorted.length - 1 : at;
}

const cut = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

const LIGHT = [[255, 255, 255], [203, 223, 240], [130, 178, 217], [52, 116, 178], [9, 44, 94]];
const DARK = [[18, 24, 30], [29, 58, 88], [47, 103, 152], [118, 172, 217], [222, 239, 253]];

function colour(amount) {
  const stops = matchMedia("(prefers-color-scheme: dark)").matches ? DARK : LIGHT;
  const at = Math.min(amount, 0.9999) * (stops.length - 1);
  const first = Math.floor(at);
  return stops[first].map((value, i) => value + (at - first) * (stops[first + 1][i] - value));
}

function picture(map) {
  // the density as an image; the root makes thin places visible
  const canvas = make("canvas", { width: map.side, height: map.side });
  const pixels = new ImageData(map.side, map.side);
  map.shares.forEach((amount, i) => {
    const row = map.side - 1 - Math.floor(i / map.side);
    pixels.data.set([...colour(Math.sqrt(amount)), 255], 4 * (row * map.side + (i % map.side)));
  });
  canvas.getContext("2d").putImageData(pixels, 0, 0);
  return canvas.toDataURL();
}

function contour(map, height, x, y) {
  // marching squares: where the edges of each cell cross the height
  const n = map.side, v = map.shares;
  let d = "";
  const between = (a, b) => (height - a) / (b - a);
  for (let row = 0; row < n - 1; row += 1) {
    for (let column = 0; column < n - 1; column += 1) {
      const i = row * n + column;
      const corners = [v[i], v[i + 1], v[i + n + 1], v[i + n]];
      const code = corners.reduce((sum, value, k) => sum + (value >= height ? 1 << k : 0), 0);
      if (code === 0 || code === 15) continue;
      const edge = [
        () => [column + between(corners[0], corners[1]), row], () => [column + 1, row + between(corners[1], corners[2])],
        () => [column + between(corners[3], corners[2]), row + 1], () => [column, row + between(corners[0], corners[3])],
      ];
      const crossed = [0, 1, 2, 3].filter((k) => (corners[k] >= height) !== (corners[(k + 1) % 4] >= height));
      for (let k = 0; k + 1 < crossed.length; k += 2) {
        const [from, to] = [edge[crossed[k]](), edge[crossed[k + 1]]()];
        d += `M${round(x(from[0]))} ${round(y(from[1]))}L${round(x(to[0]))} ${round(y(to[1]))}`;
      }
    }
  }
  return d;
}

function frame(domain, box, names) {
  const parts = [];
  const [x, y] = [scale(...domain[0], box.left, box.right), scale(...domain[1], box.bottom, box.top)];
  const across = ticks(...domain[0], Math.max(2, (box.right - box.left) / 110));
  const up = ticks(...domain[1], Math.max(2, (box.bottom - box.top) / 60));
  for (const value of across.found) {
    parts.push(draw("path", { class: "axis", d: `M${round(x(value))} ${box.bottom}v5` }));
    parts.push(draw("text", { x: round(x(value)), y: box.bottom + 19, "text-anchor": "middle" }, tickText(value, across.step)));
  }
  for (const value of up.found) {
    parts.push(draw("path", { class: "axis", d: `M${box.left} ${round(y(value))}h-5` }));
    parts.push(draw("text", { x: box.left - 8, y: round(y(value)) + 4, "text-anchor": "end" }, tickText(value, up.step)));
  }
  if (names) {
    parts.push(draw("text", { class: "name", x: box.right, y: box.bottom + 37, "text-anchor": "end" }, names[0]));
    parts.push(draw("text", { class: "name", x: box.left, y: box.top - 8 }, names[1]));
  }
  parts.push(draw("rect", {
    class: "frame", x: box.left, y: box.top, width: box.right - box.left, height: box.bottom - box.top,
  }));
  return { x, y, parts };
}

function cross(x, y) {
  const d = `M${round(x)} ${round(y)}m-13 0h8m10 0h8m-13 -13v8m0 10v8`;
  const ring = { cx: round(x), cy: round(y), r: 5 };
  return ["cross halo", "cross"].flatMap((name) => [
    draw("path", { class: name, d }), draw("circle", { class: name, ...ring }),
  ]);
}

function drawPlane(answer) {
  const svg = $("plane").firstElementChild;
  const pair = view.outputs.map((j) => model.outputs[j]);
  const one = onOneMap();
  const inputs = view.axes.map((axis) => sliders()[axis]);
  const domain = pair.map((output, side) => one
    ? [Math.min(output.low, inputs[side].low), Math.max(output.high, inputs[side].high)] : [output.low, output.high]);
  const box = { left: LEFT, right: W - RIGHT, top: 26, bottom: 446 };
  const { x, y, parts } = frame(domain, box, pair.map((output) => output.name));
  const grid = [scale(0, answer.map.side - 1, pair[0].low, pair[0].high), scale(0, answer.map.side - 1, pair[1].low, pair[1].high)];
  const half = pair.map((output) => (output.high - output.low) / (answer.map.side - 1) / 2);
  const inner = [draw("image", {
    href: picture(answer.map), preserveAspectRatio: "none",
    x: x(pair[0].low - half[0]), y: y(pair[1].high + half[1]),
    width: x(pair[0].high + half[0]) - x(pair[0].low - half[0]), height: y(pair[1].low - half[1]) - y(pair[1].high + half[1]),
  })];
  if (visible("samples")) {
    answer.samples[0].forEach((value, i) => {
      inner.push(draw("circle", { class: "spot", cx: round(x(value)), cy: round(y(answer.samples[1][i])), r: 1.8 }));
    });
  }
  for (const level of new Set([0.5, view.level])) {
    const height = answer.map.thresholds[model.levels.indexOf(level)];
    if (!(height > 0)) continue;
    const d = contour(answer.map, height, (i) => x(grid[0](i)), (i) => y(grid[1](i)));
    const name = level === view.level ? "contour" : "contour half";
    inner.push(draw("g", {}, draw("path", { class: name, d }), draw("path", { class: name, d })));
  }
  if (visible("near") && answer.near) {
    answer.near.y[0].forEach((value, i) => {
      inner.push(draw("circle", { class: "row", cx: round(x(value)), cy: round(y(answer.near.y[1][i])), r: 3.2 }));
    });
  }
  if (one) inner.push(...cross(x(view.x[inputs[0].i]), y(view.x[inputs[1].i])));
  const clip = draw("clipPath", { id: "inside" }, draw("rect", {
    x: box.left, y: box.top, width: box.right - box.left, height: box.bottom - box.top,
  }));
  svg.setAttribute("viewBox", `0 0 ${W} ${box.bottom + 46}`);
  svg.setAttribute("aria-label", `Map of the joint density of ${pair[0].name} and ${pair[1].name}. `
    + `Lines enclose 50 % (dashed) and ${view.level * 100} %.${one ? " Click to move the condition." : ""}`);
  const marks = [visible("samples") && "dots: samples", visible("near") && answer.near && "rings: data near",
    one && "cross: the condition, click to move it"];
  const lines = view.level === 0.5 ? "Line: region of 50 %" : `Lines: regions of 50 % (dashed) and ${view.level * 100} %`;
  $("key-plane").textContent = `${[lines, ...marks.filter(Boolean)].join("; ")}.`;
  svg.classList.toggle("clickable", one);
  svg.map = { domain, box };
  svg.replaceChildren(clip, draw("g", { "clip-path": "url(#inside)" }, ...inner), ...parts);
}

let known = {}; // the points of the last pair of inputs

async function drawPoints() {
  if ($("picker").hidden) return;
  const svg = $("pick");
  const pair = view.axes.map((axis) => sliders()[axis]);
  const name = view.axes.join(",");
  if (model.rows !== null && known.name !== name) {
    known = { name, points: (await fetched("api/points", { inputs: view.axes })).inputs };
  }
  const domain = pair.map((input) => [input.low, input.high]);
  const box = { left: 52, right: 314, top: 10, bottom: 200 };
  const { x, y, parts } = frame(domain, box);
  const dots = (known.points?.[0] ?? []).map((value, i) => draw("circle", {
    class: "point", cx: round(x(value)), cy: round(y(known.points[1][i])), r: 1.3,
  }));
  svg.setAttribute("viewBox", "0 0 320 226");
  svg.setAttribute("aria-label", `Where ${pair[0].name} and ${pair[1].name} are; the sliders move them too.`);
  svg.map = { domain, box };
  svg.replaceChildren(...dots, ...parts, ...cross(x(view.x[pair[0].i]), y(view.x[pair[1].i])));
}

// ---- words and tables

const range = (side) => { const output = model.outputs[view.outputs[side]]; return output.high - output.low; };

const intervals = (curve, side) => curve.region
  .map(([from, to]) => `${shown(from, range(side))} to ${shown(to, range(side))}`);

function curveText(curve, side) {
  const name = model.outputs[view.outputs[side]].name;
  return `Density of ${name}: median ${shown(curve.quantiles[2], range(side))}, mode ${shown(curve.mode, range(side))}, `
    + `${view.level * 100} % region ${intervals(curve, side).join(" and ")}.`;
}

function summaryText(answer) {
  const where = model.inputs.map((input, i) => `${input.name} ${view.x[i]}`).join(", ");
  return `At ${where}. ${answer.curves.map(curveText).join(" ")}`;
}

function drawSummary(answer) {
  const row = (name, cell) => make("tr", {}, make("th", { scope: "row", textContent: name }),
    ...answer.curves.map((curve, side) => make("td", {}, ...cell(curve, side))));
  const number = (pick) => (curve, side) => [shown(pick(curve), range(side))];
  const region = (curve, side) => intervals(curve, side)
    .flatMap((ends, i) => [...(i ? [make("br")] : []), ...ends.split(/(?<= to) /).flatMap((end) => [make("span", { textContent: end }), " "])]);
  const names = view.outputs.map((j) => model.outputs[j].name);
  const head = make("tr", {}, make("td"), ...names.map((name) => make("th", { scope: "col", textContent: name, title: name })));
  const rows = [
    row("mean", number((curve) => curve.mean)),
    row("std", number((curve) => curve.std)),
    row("mode", number((curve) => curve.mode)),
    ...model.quantiles.map((q, i) => row(q === 0.5 ? "median" : `${q * 100} %`, number((curve) => curve.quantiles[i]))),
    row(`${view.level * 100} % region`, region),
  ];
  $("summary").replaceChildren(make("thead", {}, head), make("tbody", {}, ...rows));
}

function drawNear(answer) {
  const table = $("near");
  table.hidden = !answer.near || !visible("near");
  if (table.hidden) return;
  const { near } = answer;
  const columns = [
    ...model.inputs.map((input, i) => ({ ...input, values: near.inputs[i] })),
    ...model.outputs.map((output, j) => ({ ...output, values: near.outputs[j] })),
    { name: "distance", low: 0, high: 1, values: near.distance },
  ];
  const head = make("tr", {}, ...columns.map(({ name, kind }) => make("th", {
    scope: "col", textContent: name, className: kind === "menu" ? "text" : "",
  })));
  const rows = near.outputs[0].map((_, i) => make("tr", {}, ...columns.map(({ values, kind, low, high }) => (
    kind === "menu" ? make("td", { className: "text", textContent: values[i] })
      : make("td", { textContent: shown(values[i], high - low) })))));
  const text = `The nearest of the ${near.distance.length} rows shown; distance in standard deviations.`;
  table.replaceChildren(make("caption", { textContent: text }), make("thead", {}, head), make("tbody", {}, ...rows));
}

// ---- start

async function start() {
  try {
    model = await fetched("api/model");
  } catch (error) {
    $("trouble").textContent = `The model cannot be shown: ${error.message}`;
    $("trouble").hidden = false;
    return;
  }
  const names = (list) => list.map((item) => item.name).join(", ");
  const title = `p(${names(model.outputs)} | ${names(model.inputs)})`;
  $("title").textContent = title;
  $("title").title = title;
  document.title = `${title} – gpcde`;
  const rows = model.rows === null ? "" : ` · ${model.rows.toLocaleString("en")} rows of data`;
  const skipped = model.skipped ? `, ${model.skipped.toLocaleString("en")} left out` : "";
  $("about").textContent = model.model + rows + skipped;
  makeControls();
  view = fromLink(location.hash);
  setControls();
  ask();
  addEventListener("hashchange", () => {
    if (location.hash !== link()) change(fromLink(location.hash));
  });
}

start();
