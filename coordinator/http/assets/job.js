// One job: its picture, the moment that is looked at, its processes, checkpoints, recoveries, log.

import { clock, h, micros, plural, rows, say, size, span, table, time } from "./dom.js";
import { Chart } from "./chart.js";
import { acts, order } from "./orders.js";

const SPANS = [["whole", "whole time"], ["3600000", "1 hour"], ["600000", "10 minutes"], ["60000", "1 minute"]];
const LOG_PERIOD = 2000;
const REASONS = {
  lost: "lost", leave: "left as announced", drain: "was drained", join: "joined and took a share", speed: "changed its speed",
  broken: "a part of the job was broken", again: "the attempt before failed", recovered: "the coordinator was back",
  restart: "restarted", address: "got another address",
};

/** Where a process is at a time, and where it was before; null: it is not there. */
function placeAt(path, at) {
  if (path.end !== null && path.end <= at) return null;
  let found = null;
  for (const [index, [since, node]] of path.places.entries()) {
    if (since <= at) found = { since, node, before: index > 0 ? path.places[index - 1][1] : null };
  }
  return found;
}

function stopText(stop) {
  const why = REASONS[stop.reason] ?? stop.reason;
  const about = stop.node ? `${stop.node} ${why}` : why;
  const from = stop.checkpoint === null ? "from its beginning" : `from checkpoint ${stop.checkpoint}`;
  const moves = Object.entries(stop.moves).map(([node, count]) => `${count} to ${node}`).join(", ");
  const moved = moves ? `; processes moved: ${moves}` : "";
  return `${clock(stop.from)}: ${about}; went on ${from} after ${span(stop.to - stop.from)}${moved}`;
}

/** See the file. */
export class Job {
  constructor(id) {
    this.id = id;
    // Null: now.
    this.at = null;
    this.build();
  }

  build() {
    const id = `job-${Math.random().toString(36).slice(2)}`;
    this.name = h("span");
    this.state = h("span", { class: "badge" });
    this.facts = h("p", { class: "soft facts" });
    this.spans = h("select", {}, ...SPANS.map(([value, text]) => h("option", { value }, text)));
    this.live = h("button", { type: "button" }, "Now");
    this.slider = h("input", { type: "range", class: "time", "aria-label": "Moment that is shown" });
    this.moment = h("p", { class: "moment" });
    this.chart = new Chart((at) => this.look(at));
    this.processes = table("Processes at that moment", ["Process", "Node", "Came from", "Began on"]);
    this.checkpoints = table("The newest first", ["Checkpoint", "Taken", "Pause", "Size", "Added", "Copies"]);
    this.checkpointsTitle = h("summary");
    this.stopsTitle = h("summary");
    this.stops = h("ol", { class: "stops" });
    this.log = h("pre", { tabindex: "0", "aria-label": "Log of the job" });
    this.logBox = h("details", { class: "log" }, h("summary", {}, "Log"), this.log);
    const label = h("label", {}, "Show ", this.spans);
    this.checkpoint = acts ? order("Checkpoint now", "checkpoint", this.id) : null;
    this.element = h("article", { class: "job", "aria-labelledby": id },
      h("h3", { id }, this.name, " ", this.state), this.facts,
      h("div", { class: "controls" }, label, this.live, this.checkpoint ?? "", this.moment),
      this.chart.element, this.slider,
      h("details", { class: "stops-box", open: "" }, this.stopsTitle, this.stops),
      h("div", { class: "scroll" }, this.processes.whole),
      h("details", {}, this.checkpointsTitle, h("div", { class: "scroll" }, this.checkpoints.whole)),
      this.logBox);
    this.element.dataset.job = this.id;
    this.spans.addEventListener("change", () => this.draw());
    this.live.addEventListener("click", () => this.look(null));
    this.slider.addEventListener("input", () => {
      const at = Number(this.slider.value);
      // The last step may end before the very last moment.
      this.look(at + Number(this.slider.step) > Number(this.slider.max) ? null : at);
    });
    this.logBox.addEventListener("toggle", () => this.readLog());
  }

  show(told, view) {
    this.told = { checkpoints: [], stops: [], paths: [], ...told };
    this.view = view;
    this.end = told.over ?? view.now;
    this.element.dataset.name = told.name;
    say(this.name, told.name);
    const state = told.state === "over" ? (told.end ?? "over") : told.state;
    say(this.state, state);
    this.state.className = `badge job-${told.state}`;
    say(this.facts, this.factsText());
    if (this.checkpoint) this.checkpoint.hidden = told.state !== "running";
    this.showStops();
    this.showCheckpoints();
    this.draw();
  }

  factsText() {
    const { user, command, live, waiting, failure, more } = this.told;
    const parts = [`${user}: ${(command ?? []).join(" ")}`];
    if (live?.interval_s) parts.push(`a checkpoint every ${span(live.interval_s * 1000)}`);
    if (waiting) parts.push(`${plural(waiting, "copy", "copies")} on the way`);
    if (more) parts.push(`${plural(more, "process", "processes")} not drawn`);
    if (failure) parts.push(failure);
    return parts.join(" · ");
  }

  /** Looks at a moment, in milliseconds; null: now. */
  look(at) {
    this.at = at === null || at >= this.end ? null : Math.max(at, this.told.created);
    this.draw();
  }

  window() {
    const { created } = this.told;
    const chosen = this.spans.value;
    const whole = Math.max(this.end - created, 1000);
    if (chosen === "whole") return [created, created + whole];
    const length = Math.min(Number(chosen), whole);
    let to = this.end;
    if (this.at !== null && this.at < to - length) to = Math.max(this.at + length / 2, created + length);
    return [to - length, to];
  }

  draw() {
    if (!this.told) return;
    const at = this.at ?? this.end;
    this.slider.min = this.told.created;
    this.slider.max = this.end;
    this.slider.step = Math.max(1, Math.round((this.end - this.told.created) / 500));
    this.slider.value = at;
    this.slider.setAttribute("aria-valuetext", this.at === null ? "now" : clock(at));
    this.live.disabled = this.at === null;
    this.chart.draw(this.told, this.view.nodes, this.window(), this.at, this.end);
    // The slider is below the lanes, as far as its knob lets it be.
    this.slider.style.marginLeft = `${this.chart.left - 8}px`;
    this.slider.style.width = `calc(100% - ${this.chart.left - 8}px)`;
    this.showMoment(at);
    this.showProcesses(at);
  }

  showMoment(at) {
    const before = this.told.checkpoints.filter((one) => one.at <= at);
    const newest = before[before.length - 1];
    const when = this.at === null ? (this.told.over ? "At its end" : "Now") : clock(at);
    const what = newest
      ? `checkpoint ${newest.number}: pause ${micros(newest.pause_us)}, ${size(newest.bytes)}, ${size(newest.stored)} added`
      : "no checkpoint yet";
    say(this.moment, `${when}: ${what}`);
  }

  showProcesses(at) {
    const found = [];
    for (const path of this.told.paths) {
      const place = placeAt(path, at);
      if (place) found.push([path, place]);
    }
    const shown = found.map(([path, place]) => ({
      key: `${path.home}/${path.pid}`,
      className: place.before ? "moved" : "",
      cells: [
        ["Process", `${path.name} (${path.pid})`],
        ["Node", place.node],
        ["Came from", place.before ? `${place.before}, ${time(place.since)}` : "–"],
        ["Began on", path.home],
      ],
    }));
    // Before the first checkpoint it is known only where the job's first process is.
    if (shown.length === 0 && this.at === null) {
      for (const { pid, name, node, home } of this.told.processes ?? []) {
        const cells = [["Process", `${name} (${pid})`], ["Node", node], ["Came from", "–"], ["Began on", home]];
        shown.push({ key: `${home}/${pid}`, cells });
      }
    }
    rows(this.processes.body, shown);
    this.processes.whole.parentElement.hidden = shown.length === 0;
  }

  showStops() {
    const { stops } = this.told;
    say(this.stopsTitle, `Losses and moves: ${stops.length}`);
    this.stops.parentElement.hidden = stops.length === 0;
    const texts = stops.map(stopText);
    while (this.stops.children.length > texts.length) this.stops.lastChild.remove();
    texts.forEach((text, at) => {
      const item = this.stops.children[at] ?? this.stops.appendChild(h("li"));
      say(item, text);
    });
  }

  showCheckpoints() {
    const { checkpoints } = this.told;
    say(this.checkpointsTitle, `Checkpoints: ${checkpoints.length}`);
    this.checkpointsTitle.parentElement.hidden = checkpoints.length === 0;
    rows(this.checkpoints.body, [...checkpoints].reverse().slice(0, 50).map((one) => ({
      key: one.number,
      cells: [
        ["Checkpoint", String(one.number)], ["Taken", clock(one.at)], ["Pause", micros(one.pause_us)],
        ["Size", size(one.bytes)], ["Added", size(one.stored)], ["Copies", String(one.copies)],
      ],
    })));
  }

  /** Reads the end of the log, again and again while it is open. */
  async readLog() {
    clearTimeout(this.timer);
    if (!this.logBox.open || !this.element.isConnected) return;
    try {
      const answer = await fetch(`/log?job=${encodeURIComponent(this.id)}`);
      const text = await answer.text();
      if (!answer.ok) throw new Error(text);
      const { start, text: log } = JSON.parse(text);
      const atEnd = this.log.scrollTop + this.log.clientHeight >= this.log.scrollHeight - 4;
      say(this.log, (start > 0 ? `[${size(start)} before this]\n` : "") + (log || "(nothing yet)"));
      if (atEnd) this.log.scrollTop = this.log.scrollHeight;
    } catch (error) {
      say(this.log, String(error.message));
    }
    this.timer = setTimeout(() => this.readLog(), LOG_PERIOD);
  }
}
