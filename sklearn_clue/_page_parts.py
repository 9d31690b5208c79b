"""Style sheet and script of the page of a report.

The script reads the rows as JSON and shows whatever comes from the data by
`textContent`: nothing of it ever becomes an element.
"""

from sklearn_clue._rendering import PART_COLORS

__all__ = []

STYLE = """
:root{color-scheme:light dark;--line:#8886;--soft:#8882;--accent:#0b57d0;
--aleatoric:ALEATORIC;--epistemic:EPISTEMIC}
@media (prefers-color-scheme:dark){:root{--accent:#8ab4f8;--epistemic:#56a4dc}}
*{box-sizing:border-box}
body{font:16px/1.5 system-ui,sans-serif;margin:0 auto;max-width:72rem;padding:1rem;
background:Canvas;color:CanvasText}
h1{font-size:1.6rem;line-height:1.25;margin:.5rem 0}
h2{font-size:1.25rem;margin:2rem 0 .5rem;border-top:2px solid var(--line);
padding-top:1rem}
h3{font-size:1.05rem;margin:1.25rem 0 .25rem}
p,li,figcaption{max-width:46rem;overflow-wrap:anywhere}
header p{font-size:1.1rem}
dfn{font-style:italic}
a{color:var(--accent)}
a:focus-visible,button:focus-visible,input:focus-visible,select:focus-visible,
summary:focus-visible,.scroll:focus-visible,pre:focus-visible{
outline:3px solid var(--accent);outline-offset:2px}
.skip{position:absolute;left:-99rem}
.skip:focus{position:static}
nav ul{display:flex;flex-wrap:wrap;gap:.25rem 1.25rem;list-style:none;padding:0}
.key{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(15rem,100%),1fr));
gap:.75rem;list-style:none;padding:0}
.key li{border:1px solid var(--line);border-radius:.5rem;padding:.75rem}
.key strong{display:block;font-size:1.5rem;line-height:1.3}
.charts{display:flex;flex-wrap:wrap;gap:1rem 2rem}
figure{flex:1 1 20rem;max-width:32rem;margin:0;min-width:0}
svg{width:100%;height:auto;font-size:11px}
svg text{fill:CanvasText}
svg .tick,svg .grid{stroke:var(--line);stroke-width:1}
svg polyline{fill:none;stroke:CanvasText;stroke-width:1.5}
svg .curve{stroke:var(--accent);stroke-width:2.5}
svg .dashed{stroke-dasharray:5 4}
svg circle{fill:var(--accent)}
figcaption{font-size:.9rem}
.split,.bars{display:flex;height:1.4rem;max-width:30rem;border:1px solid;
overflow:hidden}
.aleatoric{background:var(--aleatoric)}
.epistemic{background:repeating-linear-gradient(45deg,var(--epistemic) 0 4px,
Canvas 4px 6px)}
.swatch{display:inline-block;width:1.2em;height:.8em;border:1px solid}
.bar{display:inline-block;height:.8em;background:var(--accent);min-width:2px;
width:calc(8em*var(--size))}
.bars{display:inline-flex;height:.7em;min-width:2px;vertical-align:baseline}
.aleatoric,.epistemic,.bar{print-color-adjust:exact;-webkit-print-color-adjust:exact}
.scroll{overflow-x:auto;max-width:100%}
table{border-collapse:collapse;font-variant-numeric:tabular-nums}
th,td{padding:.4rem .6rem;text-align:left;vertical-align:top;font-weight:normal;
border-top:1px solid var(--line)}
thead th{font-weight:600;border-top:0;vertical-align:bottom}
#table{width:100%;font-size:.95rem}
#table td.words{min-width:16rem;overflow-wrap:anywhere}
#table td.value{max-width:18rem;overflow-wrap:anywhere}
#table td{max-width:36rem}
.piece{display:inline-block}
#table tr.open{background:var(--soft)}
#table td.detail{background:var(--soft);padding:.75rem 1rem}
td.detail table{margin:.5rem 0}
td.detail td,td.detail tbody th{max-width:20rem;min-width:4.5rem;
overflow-wrap:anywhere}
td.detail tbody th{min-width:7rem}
#table td.pictures{min-width:20rem}
#table img{width:84px;image-rendering:pixelated;border:1px solid;margin-right:.5rem}
.terms{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(20rem,100%),1fr));
gap:.6rem 2rem;font-size:.9rem;margin:.5rem 0}
.terms dt{font-weight:600}
.terms dd{margin:0}
.figures{display:flex;flex-wrap:wrap;gap:.3rem 2rem;margin:.25rem 0 .75rem}
.figures dt{font-size:.85rem}
.figures dd{margin:0;font-weight:600}
.changed{font-weight:600}
th button,.name{font:inherit;font-weight:600;color:inherit;background:none;border:0;
padding:0;text-align:left;cursor:pointer}
.name{color:var(--accent);text-decoration:underline;overflow-wrap:anywhere;
min-width:5.5rem}
.drivers td{white-space:nowrap}
.drivers th{overflow-wrap:break-word;max-width:20rem}
#table>thead button::after{content:"\\a0\\2195";opacity:.5}
th[aria-sort=ascending] button::after{content:"\\a0\\2191";opacity:1}
th[aria-sort=descending] button::after{content:"\\a0\\2193";opacity:1}
.controls{display:flex;flex-wrap:wrap;gap:.5rem 1rem;align-items:end;margin:.75rem 0}
.controls label{display:flex;flex-direction:column;font-size:.9rem;max-width:100%}
.controls label.box{flex-direction:row;gap:.4rem;align-items:center}
.controls input[type=search]{min-width:min(16rem,80vw)}
.controls select{max-width:min(16rem,80vw)}
input,select,.controls button,#more{font:inherit;padding:.3rem .5rem}
.chooser{display:flex;flex-wrap:wrap;gap:.2rem 1rem;max-height:12rem;overflow:auto;
padding:.5rem 0}
details{max-width:100%}
pre{background:var(--soft);padding:.75rem;overflow-x:auto}
code{overflow-wrap:anywhere;white-space:pre-wrap}
@media (max-width:40rem){
body{padding:.75rem}
#table>thead{position:absolute;left:-99rem}
#table,#table>tbody,#table>tbody>tr,#table>tbody>tr>*{display:block;border:0}
#table>tbody>tr{border-top:2px solid var(--line);padding:.4rem 0}
#table>tbody>tr>*{padding:.1rem 0;max-width:none}
#table>tbody>tr>td[data-head]::before{content:attr(data-head) ": ";opacity:.75}
#table td.words,#table td.pictures{min-width:0}
#table td.detail{padding:.5rem}
#table td.detail tr>*,.drivers tr>*{padding:.2rem .3rem;font-size:.9rem}
.drivers td{white-space:normal}
.bar{width:calc(3em*var(--size))}
}
@media print{
nav,.skip,.hint,.controls,#more{display:none}
body{max-width:none;font-size:11pt}
.scroll{overflow:visible}
#table{font-size:9pt}
#table td.words{min-width:10rem}
#table .name{min-width:0;color:inherit;text-decoration:none}
#table th,#table td{padding:.3rem .4rem}
tr,figure,.key li{break-inside:avoid}
#table>thead button::after{content:""}
}
""".replace("ALEATORIC", PART_COLORS["aleatoric"]).replace(
    "EPISTEMIC", PART_COLORS["epistemic"]
)

SCRIPT = r"""
"use strict";
(() => {
const data = JSON.parse(document.getElementById("data").textContent);
if (data === null) return;
const STEP = 50;
const make = (tag, attributes = {}, ...children) => {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name in element && typeof value !== "string") element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
};
const figure = (x) => x === null || x === undefined ? "–" :
  x === 0 || (Math.abs(x) >= 0.005 && Math.abs(x) < 1000) ? x.toFixed(2) :
  String(Number(x.toPrecision(3)));
const unit = data.unit ? ` (${data.unit})` : "";
const square = (x) => data.unit ? x || 0 : (x || 0) ** 2;

const collator = new Intl.Collator("en", {numeric: true});
const percent = (part) => part === null ? "" : Math.abs(part) < 0.5 && part ?
  "<1 %" : part >= 99.5 && part < 100 ? ">99 %" : `${Math.round(part)} %`;
// What belongs together stays on one line.
const pieces = (text) => text.split(" → ").flatMap((piece, k) =>
  [...(k ? [" "] : []), make("span", {class: "piece"}, (k ? "→ " : "") + piece)]);

const bars = (parts) => {
  const [total, aleatoric, epistemic] = parts;
  const whole = square(aleatoric) + square(epistemic) || 1;
  const words = `aleatoric ${figure(aleatoric)}, epistemic ${figure(epistemic)}`;
  const bar = make("span", {class: "bars", role: "img", "aria-label": words,
    title: words});
  bar.style.width = `${5 * (total || 0) / data.largest}em`;
  for (const [kind, part] of [["aleatoric", aleatoric], ["epistemic", epistemic]]) {
    const piece = make("span", {class: kind});
    piece.style.width = `${100 * square(part) / whole}%`;
    bar.append(piece);
  }
  return bar;
};

const move = (row, k) => `${figure(row.before[k])} → ${figure(row.after[k])}`;
const pictures = (row) => ["before", "after", "difference"].map((what, k) =>
  make("img", {src: row.pictures[k], alt: `${what} of ${row.name}`}));

// Columns: name, what to sort by, and what to show.
const columns = [
  {name: "verdict", key: (r) => r.verdict},
  {name: data.goal === "sure" ? "what would make it sure" : "what changes",
    key: (r) => r.nChanged, show: (r) => r.words, style: "words"},
  {name: "before, after, difference", key: (r) => r.pictures && r.before[0],
    nodes: (r) => pictures(r), style: "pictures"},
  {name: "prediction", key: (r) => r.prediction, nodes: (r) => pieces(r.prediction)},
  {name: "truth", key: (r) => r.truth,
    nodes: (r) => [r.truth ?? "–", ...(r.wrong ?
      [" ", make("span", {class: "piece"}, "(✗ wrong)")] : [])]},
  {name: data.measure + unit, key: (r) => r.before[0], nodes: (r) =>
    [...pieces(move(r, 0)), " ", bars(r.before)]},
  {name: "fall" + unit, key: (r) => r.before[0] - r.after[0], hidden: true},
  {name: "after auto-encoding" + unit, key: (r) => r.rebuilt, hidden: true},
  {name: "columns changed", key: (r) => r.nChanged, hidden: true},
  {name: "distance", key: (r) => r.distance, hidden: true},
  {name: "plausibility", key: (r) => r.plausibility, hidden: true},
  {name: "aleatoric" + unit, key: (r) => r.before[1], hidden: true},
  {name: "epistemic" + unit, key: (r) => r.before[2], hidden: true},
].filter((c) => data.rows.some((r) => ![undefined, null, ""].includes(c.key(r))));
const changeOf = (row, j) => row.changes.find((change) => change[0] === j);
data.features.forEach((name, j) => columns.push({
  name, hidden: true, style: "value",
  key: (r) => {
    const text = r.values[j], number = Number(text.replaceAll(",", ""));
    return text === "missing" ? null : Number.isNaN(number) ? text : number;
  },
  show: (r) => {
    const change = changeOf(r, j);
    return change ? `${change[1]} → ${change[2]}` : r.values[j];
  },
}));
columns.unshift({name: "row", key: (r) => r.name});
for (const column of columns) {
  column.show ??= (r) => {
    const value = column.key(r);
    return typeof value === "number" && !Number.isInteger(value) ? figure(value) :
      value ?? "–";
  };
}
data.rows.forEach((row, position) => {
  row.position = position;
  row.text = [row.name, row.verdict, row.words, row.prediction, row.truth ?? "",
    ...row.values].join("\n").toLowerCase();
});

const state = {search: "", tests: {}, sort: null, rising: true, limit: STEP,
  open: new Set()};
let found = data.rows;

const compare = (a, b) => {
  const none = (x) => x === null || x === undefined || x === "";
  if (none(a) || none(b)) return none(a) - none(b);
  const order = typeof a === "number" && typeof b === "number" ? a - b :
    collator.compare(a, b);
  return state.rising ? order : -order;
};

const table = document.getElementById("table");
const head = table.createTHead().insertRow();
const body = table.createTBody();
const shown = () => columns.filter((column) => !column.hidden);

const drawHead = () => {
  head.replaceChildren(...shown().map((column) => {
    const button = make("button", {type: "button"}, column.name);
    button.addEventListener("click", () => {
      if (state.sort === column) state.rising = !state.rising;
      else {
        state.sort = column;
        // Words rise from a to z, and of figures the largest are asked for.
        state.rising = found.some((r) => typeof column.key(r) === "string");
      }
      update();
      head.querySelectorAll("button")[shown().indexOf(column)].focus();
    });
    const cell = make("th", {scope: "col"}, button);
    if (state.sort === column) {
      cell.setAttribute("aria-sort", state.rising ? "ascending" : "descending");
    }
    return cell;
  }));
};

const line = (...cells) => make("tr", {}, ...cells);
const cellOf = (text, style = "") => make("td", {class: style}, text);
const grid = (label, heads, rows) => make("div", {class: "scroll", tabIndex: 0,
  role: "region", "aria-label": label}, make("table", {},
  make("thead", {}, line(...heads.map((h) => make("th", {scope: "col"}, h)))),
  make("tbody", {}, ...rows)));
const detail = (row) => {
  const figures = [
    ["prediction", row.prediction], ["truth", row.truth],
    [data.measure + unit, move(row, 0)], ["aleatoric", move(row, 1)],
    ["epistemic", move(row, 2)], ["distance", figure(row.distance)],
    ["plausibility", row.plausibility === null ? undefined : figure(row.plausibility)],
    ["after auto-encoding", row.rebuilt === null ? undefined : figure(row.rebuilt)],
    ["group", row.group >= 0 ? String(row.group + 1) : undefined],
  ].filter(([name, value]) => value !== undefined);
  const content = [make("dl", {class: "figures"}, ...figures.map(([name, value]) =>
    make("div", {}, make("dt", {}, name), make("dd", {}, value))))];
  const values = (change, j) => [make("th", {scope: "row"}, data.features[j]),
    ...change.map((text, k) => cellOf(text, k === 1 ? "changed" : "")),
    ...(row.neighbor ? [cellOf(row.neighbor[j])] : [])];
  const more = row.neighbor ? ["nearest sure training row"] : [];
  const moved = [...row.changes].sort((a, b) => b[6] - a[6] || b[5] - a[5]);
  if (moved.length) {
    const parts = [
      ["before", (c) => c[1]], ["after", (c) => c[2]],
      ["training percentile", (c) => c[3] === null ? "" : `${c[3]} → ${c[4]}`],
      ["share of the fall", (c) => percent(c[5])],
    ].filter(([head, show]) => moved.some((c) => show(c) !== ""));
    content.push(grid(`What changes in ${row.name}`,
      ["column", ...parts.map(([head]) => head), ...more],
      moved.map((c) => line(...values(parts.map(([head, show]) => show(c)), c[0])))));
  }
  const same = data.features.map((name, j) => j).filter((j) => !changeOf(row, j));
  if (same.length) {
    const count = same.length === 1 ? "1 column stays" : `${same.length} columns stay`;
    content.push(make("details", {open: !moved.length}, make("summary", {},
      `${count} as they are`.replace("stays as they are", "stays as it is")),
      grid(`What stays in ${row.name}`, ["column", "value", ...more], same.map((j) =>
        line(make("th", {scope: "row"}, data.features[j]), cellOf(row.values[j]),
          ...(row.neighbor ? [cellOf(row.neighbor[j])] : []))))));
  }
  if (row.others && row.others.length) {
    content.push(make("p", {}, "Other answers:"),
      make("ol", {}, ...row.others.map((text) => make("li", {}, text))));
  }
  const cell = make("td", {class: "detail", colSpan: shown().length}, ...content);
  return make("tr", {id: `detail-${row.position}`}, cell);
};

const drawRow = (row) => {
  const isOpen = state.open.has(row);
  const cells = shown().map((column, k) => {
    if (k === 0) {
      const button = make("button", {type: "button", class: "name",
        "aria-expanded": String(isOpen)}, row.name);
      if (isOpen) button.setAttribute("aria-controls", `detail-${row.position}`);
      button.addEventListener("click", () => {
        state.open.has(row) ? state.open.delete(row) : state.open.add(row);
        update();
        document.querySelector(`[data-row="${row.position}"] .name`).focus();
      });
      return make("th", {scope: "row"}, button);
    }
    const cell = make("td", {class: column.style ?? "", "data-head": column.name});
    cell.append(...(column.nodes ? column.nodes(row) : [String(column.show(row))]));
    return cell;
  });
  const drawn = make("tr", {"data-row": String(row.position),
    class: isOpen ? "open" : ""}, ...cells);
  return isOpen ? [drawn, detail(row)] : [drawn];
};

const status = document.getElementById("status");
const more = document.getElementById("more");
const update = () => {
  const tests = Object.values(state.tests).filter((test) => test);
  const search = state.search.toLowerCase().trim();
  found = data.rows.filter((row) => row.text.includes(search) &&
    tests.every((test) => test(row)));
  if (state.sort) found.sort((a, b) => compare(state.sort.key(a), state.sort.key(b)));
  drawHead();
  body.replaceChildren(...found.slice(0, state.limit).flatMap(drawRow));
  const n = Math.min(found.length, state.limit);
  const written = (number) => number.toLocaleString("en");
  status.textContent = `${written(found.length)} of ${written(data.rows.length)} rows` +
    (n < found.length ? `, the first ${n} shown` : "") +
    (found.length ? "." : ": no row is like that. Remove a filter.");
  more.hidden = n >= found.length;
};
more.addEventListener("click", () => { state.limit += 4 * STEP; update(); });

// --- Controls ---
const controls = document.getElementById("controls");
const labelled = (text, control) => make("label", {}, text, control);
const restart = () => { state.limit = STEP; update(); };
const search = make("input", {type: "search", id: "search"});
search.addEventListener("input", () => { state.search = search.value; restart(); });
controls.append(labelled("Search", search));
const choose = (name, text, options) => {
  const select = make("select", {id: `filter-${name}`},
    make("option", {value: ""}, "all"),
    ...options.map(([label], k) => make("option", {value: String(k)}, label)));
  select.addEventListener("change", () => {
    state.tests[name] = select.value === "" ? null : options[select.value][1];
    restart();
  });
  if (options.length > 1) controls.append(labelled(text, select));
};
const verdicts = [...new Set(data.rows.map((row) => row.verdict))].sort();
choose("verdict", "Verdict", verdicts.map(
  (v) => [v || "none", (r) => r.verdict === v]));
const isClear = (row, j) => row.changes.some((c) => c[0] === j && c[6]);
const changed = new Set(data.rows.flatMap((row) =>
  row.changes.filter((c) => c[6]).map((c) => c[0])));
choose("column", "Column that changes", [...changed].sort((a, b) => a - b).map(
  (j) => [data.features[j], (row) => isClear(row, j)]));
if (data.rows.some((row) => row.flips)) {
  choose("flips", "Prediction", [["flips", (r) => r.flips],
    ["stays", (r) => !r.flips]]);
}
if (data.rows.some((row) => row.wrong)) {
  choose("wrong", "The model is", [["wrong", (r) => r.wrong],
    ["right", (r) => r.wrong === false]]);
}
choose("group", "Group", data.groups.map((text, k) =>
  [`${k + 1}: ${text}`, (r) => r.group === k]));

const boxes = make("div", {class: "chooser"});
columns.slice(1).forEach((column) => {
  const box = make("input", {type: "checkbox", checked: !column.hidden});
  box.addEventListener("change", () => { column.hidden = !box.checked; update(); });
  boxes.append(make("label", {class: "box"}, box, column.name));
});
controls.append(make("details", {}, make("summary", {}, "Columns shown"), boxes));

// A program for tables would run what begins like a formula.
const field = (value) => {
  let text = String(value ?? "");
  if (/^[=+\-@\t\r]/.test(text) && Number.isNaN(Number(text.replaceAll(",", "")))) {
    text = `'${text}`;
  }
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
};
const bare = (text, j) => !data.numeric[j] ? text :
  text === "missing" ? "" : text.replaceAll(",", "");
const asCSV = () => {
  const heads = ["row", "verdict", columns.find((c) => c.style === "words").name,
    "prediction", ...(data.hasTruth ? ["truth"] : []), `${data.measure} before`,
    `${data.measure} after`, "distance", ...data.features,
    ...data.features.map((name) => `${name} (after)`)];
  const lines = found.map((r) => [r.name, r.verdict, r.words, r.prediction,
    ...(data.hasTruth ? [r.truth] : []), r.before[0], r.after[0], r.distance,
    ...r.values.map(bare),
    ...r.values.map((value, j) => bare((changeOf(r, j) ?? [0, 0, value])[2], j))]);
  return [heads, ...lines].map((cells) => cells.map(field).join(",")).join("\r\n");
};
const save = make("button", {type: "button", id: "save"}, "Download these rows as CSV");
save.addEventListener("click", () => {
  const file = new Blob(["\ufeff", asCSV(), "\r\n"], {type: "text/csv"});
  const link = make("a", {href: URL.createObjectURL(file), download: "rows.csv"});
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
});
controls.append(save);
const terms = document.getElementById("terms");
if (innerWidth < 640) terms.open = false;
let usual = STEP;
window.addEventListener("beforeprint", () => {
  usual = state.limit;
  terms.open = true;
  state.limit = Infinity;
  update();
});
window.addEventListener("afterprint", () => { state.limit = usual; update(); });
update();
})();
"""
