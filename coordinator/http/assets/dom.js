// Elements, and numbers as people read them. Text becomes text: nothing that comes from the cluster is ever markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

/** An element of the page. */
export function h(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** An element of a drawing. */
export function s(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

/** Sets an element's text, if it is another one: whatever is selected in it stays so. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/**
 * Brings a table's body to these rows, each a list of [label, text] with a key. Cells are changed in their places, so that a
 * reader of the screen hears only what is new.
 */
export function rows(body, wanted) {
  while (body.rows.length > wanted.length) body.deleteRow(-1);
  wanted.forEach(({ key, cells, className }, at) => {
    const row = body.rows[at] ?? body.insertRow();
    row.dataset.key = key;
    row.className = className ?? "";
    while (row.cells.length > cells.length) row.deleteCell(-1);
    cells.forEach(([label, text], cell) => {
      const found = row.cells[cell] ?? row.insertCell();
      found.dataset.label = label;
      // What others fill stays as it is.
      if (text !== null) say(found, text);
    });
  });
}

/** A table of these headings, whose body is to be filled. */
export function table(caption, headings) {
  const head = h("tr", {}, ...headings.map((heading) => h("th", { scope: "col" }, heading)));
  const body = h("tbody");
  const whole = h("table", {}, h("caption", {}, caption), h("thead", {}, head), body);
  return { whole, body };
}

export function size(bytes) {
  if (!Number.isFinite(bytes)) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let unit = 0;
  while (bytes >= 1023.5 && unit + 1 < units.length) {
    bytes /= 1024;
    unit += 1;
  }
  return `${unit > 0 && bytes < 9.95 ? bytes.toFixed(1) : Math.round(bytes)} ${units[unit]}`;
}

export function micros(us) {
  if (us < 9950) return `${(us / 1000).toFixed(1)} ms`;
  if (us < 999_500) return `${Math.round(us / 1000)} ms`;
  return `${(us / 1e6).toFixed(1)} s`;
}

export function span(ms) {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(1)} s`;
  const minutes = Math.floor(ms / 60_000);
  if (minutes < 60) return `${minutes} min ${Math.floor((ms % 60_000) / 1000)} s`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

const TIME = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
const DAY = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric" });

/** The time of day, and the day where it is not today. */
export function clock(ms) {
  const date = new Date(ms);
  const day = date.toDateString() === new Date().toDateString() ? "" : `${DAY.format(date)}, `;
  return day + TIME.format(date);
}

/** The time of day alone. */
export function time(ms) {
  return TIME.format(new Date(ms));
}

export function plural(count, one, many) {
  return `${count} ${count === 1 ? one : many}`;
}
