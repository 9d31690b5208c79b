"""Style sheet and script of the pages of a study.

The script shows whatever comes from the data by `textContent`: nothing of it ever
becomes an element. It asks the network for nothing but the address that the researcher
gives, and keeps the answers in the browser until they are handed in.
"""

__all__ = []

STYLE = """
:root{color-scheme:light dark;--line:#8886;--soft:#8882;--accent:#0b57d0;--on:#fff;
--mark:#ffe08a;--ink:#000}
@media (prefers-color-scheme:dark){:root{--accent:#8ab4f8;--on:#000}}
*{box-sizing:border-box}
body{font:17px/1.5 system-ui,sans-serif;margin:0 auto;max-width:52rem;padding:1rem;
background:Canvas;color:CanvasText}
h1{font-size:1.5rem;line-height:1.25;margin:.25rem 0 .75rem}
h1:focus{outline:none}
h2{font-size:1.15rem;margin:1.5rem 0 .5rem}
p{max-width:42rem;margin:.6rem 0;overflow-wrap:anywhere;white-space:pre-line}
progress{width:100%;height:.6rem;accent-color:var(--accent);margin-bottom:.75rem}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{padding:.35rem .5rem;text-align:left;vertical-align:top;font-weight:normal;
border-top:1px solid var(--line);overflow-wrap:anywhere;min-width:4.2rem}
thead th,thead td{border-top:0;position:sticky;top:0;background:Canvas;
box-shadow:0 1px var(--line)}
thead th{font-weight:600;vertical-align:bottom;overflow-wrap:normal;width:24%}
thead th:last-child,td:last-child{border-left:3px solid var(--line);
background:linear-gradient(var(--soft),var(--soft)),Canvas}
mark{background:var(--mark);color:var(--ink);font-weight:600;padding:0 .25em;
border-radius:.2em;border:1px solid var(--ink)}
.pictures{display:flex;flex-wrap:wrap;gap:1rem}
figure{margin:0;flex:0 1 11rem;min-width:7.5rem}
figure img{width:100%;image-rendering:pixelated;border:1px solid var(--line);
display:block}
figure.new img{border:3px solid var(--accent)}
figcaption{font-size:.95rem}
fieldset{border:0;padding:0;margin:1.25rem 0 .75rem}
legend{font-weight:600;padding:0;margin-bottom:.4rem}
.options{display:flex;gap:.75rem;flex-wrap:wrap}
.options label,.agree{display:flex;gap:.6rem;align-items:center;cursor:pointer}
.options label{flex:1 1 9rem;border:2px solid var(--line);border-radius:.5rem;
padding:.7rem 1rem}
.options label:has(:checked){border-color:var(--accent);background:var(--soft)}
input{width:1.2rem;height:1.2rem;accent-color:var(--accent);flex:none;margin:0}
.agree{margin:1rem 0;align-items:flex-start}
.buttons{display:flex;flex-wrap:wrap;gap:.75rem;margin:1rem 0}
button{font:inherit;padding:.6rem 1.4rem;border-radius:.5rem;cursor:pointer;
border:2px solid var(--accent);background:Canvas;color:CanvasText}
button.main{background:var(--accent);color:var(--on);font-weight:600}
:focus-visible{outline:3px solid var(--accent);outline-offset:2px}
.options label:focus-within{outline:3px solid var(--accent);outline-offset:2px}
.hidden{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%);
white-space:nowrap}
code{overflow-wrap:anywhere}
@media (max-width:34rem){
body{padding:.75rem;font-size:16px}
th,td{padding:.3rem .25rem;font-size:.85rem;min-width:3.4rem}
figure{flex:1 1 8rem;max-width:46%}
}
"""

SCRIPT = r"""
"use strict";
(() => {
const data = JSON.parse(document.getElementById("data").textContent);
const main = document.querySelector("main");
const address = new URLSearchParams(location.search);
const noun = data.features === null ? "picture" : "case";

// --- Elements ---

const make = (tag, attributes = {}, ...children) => {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "onclick" || name === "onsubmit") {
      element.addEventListener(name.slice(2), value);
    } else if (value === true) element.setAttribute(name, "");
    else if (value !== false) element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
};
const paragraphs = (text) =>
  text.split(/\n\s*\n/).map((part) => make("p", {}, part.trim()));
// Names of columns break after their underscores rather than anywhere.
const breakable = (text) => text.split(/(?<=[_/.-])/)
  .flatMap((part) => [part, make("wbr")]).slice(0, -1);
const button = (text, onclick, attributes = {}) =>
  make("button", {type: "button", onclick, ...attributes}, text);
const buttons = (...children) => make("div", {class: "buttons"}, ...children);

let isFirst = true;
const show = (title, ...children) => {
  const heading = make("h1", {tabindex: "-1"}, title);
  main.replaceChildren(heading, ...children);
  scrollTo(0, 0);
  // Whoever hears the page is told that it has changed.
  if (!isFirst) heading.focus({preventScroll: true});
  isFirst = false;
};

// --- Chance, of the kind that nobody can foresee ---

const random = (n) => {
  const values = crypto.getRandomValues(new Uint32Array(1));
  return Math.floor((values[0] / 2 ** 32) * n);
};
const shuffle = (values) => {
  values = [...values];
  for (let k = values.length - 1; k > 0; k--) {
    const other = random(k + 1);
    [values[k], values[other]] = [values[other], values[k]];
  }
  return values;
};
const newCode = () => [...crypto.getRandomValues(new Uint8Array(6))]
  .map((value) => value.toString(16).padStart(2, "0")).join("");

// --- What is kept ---

// A code goes into names of files and into spreadsheets.
const given = (address.get("participant") ?? "").slice(0, 64)
  .replace(/[^A-Za-z0-9_.-]/g, "_").replace(/^[.-]/, "_");
const place = `sklearn_clue.study.${data.study}${given && `.${given}`}`;
let keeps = true;
const save = () => {
  try {
    localStorage.setItem(place, JSON.stringify(state));
  } catch {
    keeps = false;
  }
};
const load = () => {
  try {
    const found = JSON.parse(localStorage.getItem(place));
    if (found === null || !(found.variant in data.variants)) return null;
    const known = data.variants[found.variant].questions;
    const isKnown = (code) => code in known || code.startsWith("check");
    return found.order.every(isKnown) && found.answers.length <= found.order.length
      ? found : null;
  } catch {
    return null;
  }
};
const forget = () => {
  try {
    localStorage.removeItem(place);
  } catch {
    keeps = false;
  }
};
let state = load();

const begin = () => {
  const codes = Object.keys(data.variants);
  const wanted = address.get("variant");
  const variant = codes.includes(wanted) ? wanted : codes[random(codes.length)];
  const order = shuffle(Object.keys(data.variants[variant].questions));
  // One check in the second half of each equal part.
  const n = order.length;
  for (let k = data.checks; k > 0; k--) {
    const from = Math.floor(n * (k - 0.5) / data.checks);
    const to = Math.floor(n * k / data.checks);
    order.splice(from + random(to - from + 1), 0, `check${k}`);
  }
  state = {
    participant: given || newCode(), variant, order, answers: [], spent: 0,
    sent: false,
  };
  save();
};

// --- Time that the page was visible ---

let since = null;
const pause = () => {
  if (since === null) return;
  state.spent += performance.now() - since;
  since = null;
};
const resume = () => {
  if (since === null && !document.hidden) since = performance.now();
};
document.addEventListener("visibilitychange", () => {
  if (!isAsking()) return;
  if (document.hidden) {
    pause();
    save();
  } else resume();
});
addEventListener("pagehide", () => {
  if (!isAsking()) return;
  pause();
  save();
});
const isAsking = () => state !== null && state.answers.length < state.order.length
  && document.getElementById("question") !== null;

// --- What a question shows ---

const heads = (shown) => {
  const all = [["context", "The model is unsure"]];
  if (shown.explanation !== null) {
    all.push(["explanation",
      shown.is_sure ? "The model is sure" : "The model is still unsure"]);
  }
  all.push(["test", `New ${noun}: sure or unsure?`]);
  return all;
};
const table = (shown) => {
  const columns = heads(shown);
  const head = make("tr", {}, make("td", {}),
    ...columns.map(([, text]) => make("th", {scope: "col"}, text)));
  const rows = data.features.map((name, j) => make("tr", {},
    make("th", {scope: "row"}, ...breakable(name)),
    ...columns.map(([key]) => {
      const text = shown[key][j];
      if (key !== "explanation" || text === shown.context[j]) {
        return make("td", {}, text);
      }
      return make("td", {}, make("mark", {},
        make("span", {class: "hidden"}, "differs: "), text));
    })));
  return make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows));
};
const pictures = (shown) => {
  const columns = heads(shown);
  if (shown.explanation !== null) {
    columns.splice(2, 0, ["difference",
      "What differs between the two: orange is darker, purple is brighter"]);
  }
  return make("div", {class: "pictures"}, ...columns.map(([key, text]) =>
    make("figure", {class: key === "test" ? "new" : "old"},
      make("img", {src: shown[key], alt: ""}), make("figcaption", {}, text))));
};
const draw = (shown) => data.features === null ? pictures(shown) : table(shown);
const WHAT = `Is the model sure about the new ${noun}?`;

// --- Screens ---

const consent = () => {
  const then = data.post_to === null
    ? "you save them as a file, and nothing is sent over the network"
    : `they are sent to ${data.post_to}`;
  const stored = "Your answers and the seconds that each of them takes are kept " +
    "under a code. Nothing else about you is recorded. They stay in this browser " +
    `until you finish; then ${then}. You can stop at any time by closing this page, ` +
    "and go on later in the same browser.";
  const form = make("form", {onsubmit: (event) => {
    event.preventDefault();
    begin();
    instructions();
  }},
  make("label", {class: "agree"},
    make("input", {type: "checkbox", id: "agree", required: true}),
    make("span", {}, "I have read this, and I agree to take part.")),
  buttons(make("button", {class: "main", id: "begin"}, "Begin"),
    button("I do not agree", () => show("Thank you",
      make("p", {}, "Nothing was recorded. You can close this page.")),
    {id: "decline"})));
  show(data.title, ...paragraphs(data.consent), make("p", {}, stored), form);
};

const instructions = () => {
  const {example, questions} = data.variants[state.variant];
  const fails = Object.values(questions).some((shown) => shown.is_sure === false);
  const explained = example.explanation === null ? "" :
    ` Beside it is a ${noun} that the model is sure about; what differs is marked.` +
    (fails ? " At times none was found: then it says that the model is still unsure."
      : "");
  const text = data.instructions ?? [
    `A computer model makes a prediction for each ${noun}. About some it is sure, ` +
    "about others it is unsure.",
    `Each question shows a ${noun} that the model is unsure about.${explained} Then ` +
    `there is a new ${noun}. Say whether the model is sure or unsure about the new ` +
    "one.",
  ].join("\n\n");
  const warning = keeps ? [] : [make("p", {}, make("strong", {},
    "This browser does not keep your answers. Please do not close the page."))];
  show("What you will be asked", ...paragraphs(text),
    make("h2", {}, "An example"), draw(example),
    make("p", {}, `${WHAT} The right answer is: `,
      make("strong", {id: "solution"}, data.solution), "."),
    make("p", {}, `There are ${state.order.length} questions like this one.`),
    ...warning,
    buttons(button("Start", ask, {class: "main", id: "start"})));
};

const ask = () => {
  const done = state.answers.length, total = state.order.length;
  if (done === total) return end();
  const code = state.order[done];
  const variant = data.variants[state.variant];
  const shown = code in variant.questions ? variant.questions[code] : variant.example;
  const option = (value, text) => make("label", {},
    make("input", {type: "radio", name: "answer", value, required: true}), text);
  const form = make("form", {id: "question", onsubmit: (event) => {
    event.preventDefault();
    pause();
    const answer = form.elements.answer.value;
    const seconds = Math.round(state.spent) / 1000;
    state.answers.push({question: code, answer, seconds});
    state.spent = 0;
    save();
    ask();
  }},
  make("fieldset", {}, make("legend", {}, WHAT),
    make("div", {class: "options"},
      option("sure", "Sure"), option("unsure", "Unsure"))),
  buttons(make("button", {class: "main", id: "next"},
    done + 1 < total ? "Next" : "Finish")));
  show(`Question ${done + 1} of ${total}`,
    make("progress", {max: total, value: done, "aria-label": "Questions answered"}),
    draw(shown), form);
  resume();
};

const sheet = () => ({
  format: data.format, study: data.study, participant: state.participant,
  variant: state.variant, answers: state.answers,
});
const asCsv = () => {
  const lines = state.answers.map(({question, answer, seconds}) => [data.study,
    state.participant, state.variant, question, answer, seconds]);
  const columns = ["study", "participant", "variant", "question", "answer", "seconds"];
  return [columns, ...lines].map((line) => line.join(",")).join("\r\n") + "\r\n";
};
const download = (content, type, suffix) => {
  const url = URL.createObjectURL(new Blob([content], {type}));
  const name = `answers-${state.participant}.${suffix}`;
  const link = make("a", {href: url, download: name});
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
};

const end = () => {
  const files = [
    button("Save as JSON", () =>
      download(JSON.stringify(sheet(), null, 1) + "\n", "application/json", "json"),
    {id: "json", class: data.post_to === null ? "main" : "other"}),
    button("Save as CSV", () => download(asCsv(), "text/csv", "csv"), {id: "csv"}),
  ];
  const status = make("p", {id: "status", role: "status"});
  const retry = button("Send again", () => send(), {id: "send", class: "main"});
  const send = async () => {
    status.textContent = "Your answers are being sent …";
    retry.hidden = true;
    try {
      // As plain text: a server need not answer a question of the browser first.
      const answer = await fetch(data.post_to, {
        method: "POST", body: JSON.stringify(sheet()), credentials: "omit",
        headers: {"Content-Type": "text/plain;charset=UTF-8"},
      });
      if (!answer.ok) throw new Error(`the server says ${answer.status}`);
      state.sent = true;
      save();
      status.textContent = "Your answers were sent. You can close this page.";
    } catch (error) {
      status.textContent = `Your answers could not be sent (${error.message}). ` +
        "Please send them again, or save them as a file for the researcher.";
      retry.hidden = false;
    }
  };
  const remove = button("Delete my answers from this browser", () => {
    forget();
    state = null;
    show("Deleted", make("p", {}, "This browser keeps nothing of the study any more."));
  }, {id: "delete"});
  const code = make("p", {}, "Your code is ", make("code", {}, state.participant), ".");
  if (data.post_to === null) {
    status.textContent = "Please save your answers, and give the file to the " +
      "researcher. One of the two forms is enough.";
    show("Thank you", status, buttons(...files), code, buttons(remove));
    return;
  }
  show("Thank you", status, buttons(retry), code,
    make("h2", {}, "A copy of your answers"), buttons(...files), buttons(remove));
  retry.hidden = true;
  if (state.sent) {
    status.textContent = "Your answers were sent. You can close this page.";
  } else send();
};

if (state === null) consent();
else if (state.answers.length === 0 && state.spent === 0) instructions();
else ask();
})();
"""
