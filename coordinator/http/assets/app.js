// The page: hears from the coordinator how the cluster is, and shows it.

import { h, plural, rows, say, size, table } from "./dom.js";
import { Job } from "./job.js";
import { acts, order } from "./orders.js";

const summary = document.getElementById("summary");
const warning = document.getElementById("alert");
const attention = document.getElementById("attention");
const jobsPlace = document.getElementById("jobs");
const jobs = new Map();

const nodes = table("Machines of the cluster", [
  "Node", "State", "Slots", "Speed", "Load", "Battery", "Free memory", "Runs", "Holds", ...(acts ? ["Order"] : []),
]);
document.getElementById("nodes").append(h("div", { class: "scroll" }, nodes.whole));
const none = h("p", { class: "soft" }, "No job has been run yet.");

function number(value, digits) {
  return Number.isFinite(value) ? value.toFixed(digits) : "–";
}

function battery(node) {
  if (!Number.isFinite(node.battery)) return "–";
  return `${node.battery} %${node.charging ? ", charging" : ""}`;
}

/** What may be ordered of a node, in the last cell of its row. */
function showOrders(row, node) {
  const what = { alive: "drain", draining: "uncordon", drained: "uncordon" }[(node.state ?? "").split(",")[0]] ?? "";
  const cell = row.cells[row.cells.length - 1];
  const key = `${what} ${node.name}`;
  if (cell.dataset.order === key) return;
  cell.dataset.order = key;
  if (what === "drain") cell.replaceChildren(order("Drain", what, node.name, `Drain ${node.name}?`));
  else if (what) cell.replaceChildren(order("Uncordon", what, node.name));
  else cell.replaceChildren("–");
}

function showNodes(list) {
  rows(nodes.body, list.map((node) => ({
    key: node.name,
    className: `node state-${(node.state ?? "").split(",")[0]}`,
    cells: [
      ["Node", node.name],
      ["State", node.state],
      ["Slots", `${node.slots ?? "–"}${node.spare ? " spare" : ""}`],
      ["Speed", number(node.speed, 2)],
      ["Load", number(node.load, 2)],
      ["Battery", battery(node)],
      ["Free memory", node.available_memory ? size(node.available_memory) : "–"],
      ["Runs", plural(node.instances?.length ?? 0, "instance", "instances")],
      ["Holds", plural(node.holds?.length ?? 0, "job", "jobs")],
      ...(acts ? [["Order", null]] : []),
    ],
  })));
  if (acts) list.forEach((node, at) => showOrders(nodes.body.rows[at], node));
}

function showJobs(view) {
  const there = new Set(view.jobs.map((job) => job.id));
  for (const [id, job] of jobs) {
    if (!there.has(id)) {
      job.element.remove();
      jobs.delete(id);
    }
  }
  view.jobs.forEach((told, at) => {
    let job = jobs.get(told.id);
    if (!job) {
      job = new Job(told.id);
      jobs.set(told.id, job);
    }
    if (jobsPlace.children[at] !== job.element) jobsPlace.insertBefore(job.element, jobsPlace.children[at] ?? null);
    job.show(told, view);
  });
  if (view.jobs.length === 0) jobsPlace.append(none);
  else none.remove();
}

function show(view) {
  const alive = view.nodes.filter((node) => ["alive", "draining", "drained"].includes(node.state)).length;
  const more = view.more_jobs ?? 0;
  const running = view.jobs.filter((job) => job.over === undefined || job.over === null).length + more;
  const hidden = more > 0 ? `; the ${more} oldest are not shown` : "";
  say(summary, `${alive} of ${plural(view.nodes.length, "node", "nodes")} alive, ${plural(running, "job", "jobs")} running${hidden}`);
  warn(view.error);
  const lines = view.attention ?? [];
  attention.hidden = lines.length === 0;
  say(attention, lines.join("\n"));
  showNodes(view.nodes);
  showJobs(view);
}

function warn(text) {
  warning.hidden = !text;
  say(warning, text ?? "");
}

// A page that nobody sees is told nothing: a browser has six connections to a host, and one of them for each page would soon be all.
let stream;

function follow() {
  if (document.hidden) {
    stream?.close();
    stream = undefined;
  } else if (!stream || stream.readyState === EventSource.CLOSED) {
    stream = listen();
  }
}

function listen() {
  const source = new EventSource("/events");
  source.addEventListener("message", (event) => show(JSON.parse(event.data)));
  source.addEventListener("error", () => {
    // Where the connection is refused, the browser gives up; else it tries again by itself.
    if (source.readyState === EventSource.CLOSED) warn("The coordinator does not let this page in any more: load it again.");
    else warn("Not connected to the coordinator: what is shown is old. Trying again.");
  });
  return source;
}

document.addEventListener("visibilitychange", follow);
follow();
