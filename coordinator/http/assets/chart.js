// The picture of a job: a lane for each node, a line for each process where it is, arrows where it went, dots for
// checkpoints. Names stand left of the lanes and times above them, so that nothing crosses them.

import { clock, h, micros, s, size, span, time } from "./dom.js";

const ROW = 7;
const PAD = 7;
const MOST_ROWS = 12;
const AXIS = 24;
const DOTS = 22;
const RIGHT = 10;
const MOST_LANES = 24;
const COLOURS = 6;
const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400].map((seconds) => seconds * 1000);
let number = 0;

/** A job's processes as spans of time on nodes, and the ways between them. */
function spansOf(told, end) {
  const spans = [];
  const ways = [];
  told.paths.forEach((path) => {
    path.places.forEach(([since, node], at) => {
      const next = path.places[at + 1];
      // A process stands from the loss on, not from the moment in which it runs elsewhere.
      const stop = next && told.stops.find((stop) => Math.abs(stop.to - next[0]) < 2);
      const until = next ? Math.min(stop ? stop.from : next[0], next[0]) : (path.end ?? end);
      const one = { path, node, from: since, to: Math.max(until, since) };
      if (at > 0) ways.push({ from: spans[spans.length - 1], to: one, stop: one.stop });
      if (stop) one.after = stop;
      spans.push(one);
    });
  });
  for (const way of ways) way.stop = way.from.after;
  return { spans, ways };
}

/** Gives each span a row of its node's lane that no other has at the time. */
function giveRows(spans) {
  const lanes = new Map();
  for (const one of [...spans].sort((a, b) => a.from - b.from || a.path.pid - b.path.pid)) {
    const ends = lanes.get(one.node) ?? [];
    let row = ends.findIndex((end) => end <= one.from);
    if (row < 0) row = Math.min(ends.length, MOST_ROWS - 1);
    ends[row] = Math.max(one.to, ends[row] ?? 0);
    one.row = row;
    lanes.set(one.node, ends);
  }
  return new Map([...lanes].map(([node, ends]) => [node, ends.length]));
}

/** Text that fits into so many pixels of the small font. */
function fitting(text, pixels) {
  const most = Math.max(3, Math.floor(pixels / 7));
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}

/** See the file. */
export class Chart {
  constructor(look) {
    this.look = look;
    this.arrows = `arrow-${(number += 1)}`;
    this.drawing = s("svg", { role: "img" });
    this.element = h("div", { class: "chart" }, this.drawing);
    let dragging = false;
    const point = (event) => {
      const x = event.clientX - this.drawing.getBoundingClientRect().left;
      const part = (x - this.left) / (this.width - this.left - RIGHT);
      this.look(part >= 1 ? null : Math.round(this.from + Math.max(part, 0) * (this.to - this.from)));
    };
    this.drawing.addEventListener("pointerdown", (event) => {
      dragging = true;
      this.drawing.setPointerCapture(event.pointerId);
      point(event);
    });
    this.drawing.addEventListener("pointermove", (event) => dragging && point(event));
    for (const end of ["pointerup", "pointercancel"]) this.drawing.addEventListener(end, () => (dragging = false));
    new ResizeObserver(() => this.again?.()).observe(this.element);
  }

  x(at) {
    const part = (at - this.from) / (this.to - this.from);
    return this.left + Math.min(Math.max(part, 0), 1) * (this.width - this.left - RIGHT);
  }

  /** Draws a job between two times; `at`: the moment that is looked at, null for now. */
  draw(told, nodes, [from, to], at, end) {
    this.again = () => this.draw(told, nodes, [from, to], at, end);
    this.width = Math.max(280, Math.floor(this.element.clientWidth) || 280);
    this.left = this.width < 500 ? 94 : 118;
    [this.from, this.to] = [from, to];
    const { spans, ways } = spansOf(told, end);
    const used = giveRows(spans);
    this.place(told, nodes, used);
    const colours = new Map([...new Set(told.paths.map((path) => path.home))].sort().map((home, n) => [home, n % COLOURS]));
    const parts = [this.arrowHeads(), ...this.axis(), ...this.laneParts(colours)];
    for (const one of spans) parts.push(...this.line(one, colours));
    // Over the lines, which are pale while the job does not run.
    parts.push(...told.stops.flatMap((stop) => this.stopParts(stop)));
    for (const way of ways) parts.push(...this.way(way));
    parts.push(...this.dots(told.checkpoints));
    if (at !== null) parts.push(s("line", { class: "cursor", x1: this.x(at), x2: this.x(at), y1: AXIS - 4, y2: this.height }));
    this.drawing.setAttribute("width", this.width);
    this.drawing.setAttribute("height", this.height);
    this.drawing.setAttribute("viewBox", `0 0 ${this.width} ${this.height}`);
    const about = `Processes of ${told.name} on ${this.lanes.size} nodes from ${clock(from)} to ${clock(to)}: ` +
      `${told.checkpoints.length} checkpoints, ${told.stops.length} losses and moves. The tables below say the same.`;
    this.drawing.setAttribute("aria-label", about);
    this.drawing.replaceChildren(...parts);
  }

  /** The lanes: the nodes of the job, and all others where there are few. */
  place(told, nodes, used) {
    const names = new Set(used.keys());
    for (const node of nodes) if (names.size < MOST_LANES / 3) names.add(node.name);
    const order = [...names].sort((a, b) => a.localeCompare(b, undefined, { numeric: true })).slice(0, MOST_LANES);
    this.lanes = new Map();
    let top = AXIS;
    for (const name of order) {
      const height = Math.max(1, used.get(name) ?? 1) * ROW + 2 * PAD;
      const node = nodes.find((one) => one.name === name);
      this.lanes.set(name, { top, height, state: node?.state ?? "gone" });
      top += height + 2;
    }
    this.dotsTop = top;
    this.height = top + DOTS;
  }

  y(one) {
    const lane = this.lanes.get(one.node);
    return lane && lane.top + PAD + one.row * ROW + ROW / 2;
  }

  arrowHeads() {
    const head = (kind) => s("marker", {
      id: `${this.arrows}-${kind}`, class: kind, viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 6, markerHeight: 6,
      markerUnits: "userSpaceOnUse", orient: "auto",
    }, s("path", { d: "M0 0L8 4L0 8z" }));
    return s("defs", {}, head("lost"), head("move"));
  }

  axis() {
    const length = this.to - this.from;
    const most = Math.max(2, Math.floor((this.width - this.left) / 90));
    const step = STEPS.find((one) => length / one <= most) ?? length / most;
    // Full minutes and hours of the place where it is read.
    const shift = new Date(this.to).getTimezoneOffset() * 60_000;
    const parts = [];
    for (let at = Math.ceil((this.from - shift) / step) * step + shift; at <= this.to; at += step) {
      const x = this.x(at);
      parts.push(s("line", { class: "grid", x1: x, x2: x, y1: AXIS - 4, y2: this.dotsTop - 2 }));
      // A label that would leave the picture is left out.
      if (x > this.left + 24 && x < this.width - 28) parts.push(s("text", { class: "tick", x, y: AXIS - 10 }, time(at)));
    }
    return parts;
  }

  laneParts(colours) {
    const parts = [];
    for (const [name, { top, height, state }] of this.lanes) {
      const middle = top + height / 2;
      parts.push(s("rect", { class: "lane", x: this.left, y: top, width: this.width - this.left - RIGHT, height }));
      if (colours.has(name)) {
        parts.push(s("rect", { class: `swatch home${colours.get(name)}`, x: 0, y: middle - 5, width: 4, height: 10, rx: 2 }));
      }
      const label = s("text", { class: `name ${state}`, x: 9, y: middle + 4 }, fitting(name, this.left - 16));
      label.append(s("title", {}, `${name}: ${state}`));
      parts.push(label);
    }
    parts.push(s("text", { class: "name soft", x: 9, y: this.dotsTop + 15 }, fitting("checkpoints", this.left - 12)));
    return parts;
  }

  stopParts(stop) {
    if (stop.to < this.from || stop.from > this.to) return [];
    const kind = stop.is_move ? "move" : "lost";
    const x = this.x(stop.from);
    const width = Math.max(2, this.x(stop.to) - x);
    const title = s("title", {}, `${stop.node ?? ""} ${stop.reason}: stood for ${span(stop.to - stop.from)}`);
    const parts = [s("rect", { class: `stop ${kind}`, x, y: AXIS, width, height: this.dotsTop - AXIS - 2 }, title)];
    const lane = this.lanes.get(stop.node);
    if (lane && !stop.is_move) {
      const y = lane.top + lane.height / 2;
      parts.push(s("path", { class: "cross", d: `M${x - 4} ${y - 4}l8 8M${x - 4} ${y + 4}l8 -8` }));
    }
    return parts;
  }

  line(one, colours) {
    const y = this.y(one);
    if (y === undefined || one.to < this.from || one.from > this.to) return [];
    const title = s("title", {}, `${one.path.name} (${one.path.pid}) of ${one.path.home}, on ${one.node} since ${clock(one.from)}`);
    const [x1, x2] = [this.x(one.from), Math.max(this.x(one.to), this.x(one.from) + 1)];
    return [s("line", { class: `process home${colours.get(one.path.home)}`, x1, x2, y1: y, y2: y }, title)];
  }

  /** The way of a process from one node to another. */
  way({ from, to, stop }) {
    const [y1, y2] = [this.y(from), this.y(to)];
    if (y1 === undefined || y2 === undefined || to.from < this.from || from.to > this.to) return [];
    const kind = stop?.is_move ? "move" : "lost";
    const [x1, x2] = [this.x(from.to), this.x(to.from)];
    const middle = (x1 + x2) / 2;
    const d = `M${x1} ${y1}C${middle} ${y1} ${middle} ${y2} ${x2} ${y2}`;
    const title = s("title", {}, `${to.path.name} (${to.path.pid}): from ${from.node} to ${to.node}`);
    return [s("path", { class: `way ${kind}`, d, "marker-end": `url(#${this.arrows}-${kind})` }, title)];
  }

  dots(checkpoints) {
    const shown = checkpoints.filter((one) => one.at >= this.from && one.at <= this.to);
    const r = shown.length > (this.width - this.left) / 9 ? 2 : 3.5;
    const y = this.dotsTop + DOTS / 2;
    return shown.flatMap((one, index) => {
      const about = `checkpoint ${one.number}, ${clock(one.at)}: pause ${micros(one.pause_us)}, ${size(one.bytes)}, ` +
        `${size(one.stored)} added`;
      const x = this.x(one.at);
      const parts = [s("circle", { class: "checkpoint", cx: x, cy: y, r }, s("title", {}, about))];
      // Pause and size stand beside the dot, where there is room for them up to the next one.
      const label = `${micros(one.pause_us)}, ${size(one.stored)}`;
      const next = index + 1 < shown.length ? this.x(shown[index + 1].at) - 8 : this.width;
      if (x + 8 + label.length * 6.2 < next) parts.push(s("text", { class: "beside", x: x + 8, y: y + 4 }, label));
      return parts;
    });
  }
}
