// node with worker threads, an HTTP server, files and subprocesses: each result is computed again and compared.
// usage: node.mjs FILE: works until it is there
import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { createServer, request } from "node:http";
import { tmpdir } from "node:os";
import { promisify } from "node:util";
import { Worker, isMainThread, parentPort } from "node:worker_threads";

const STEPS = 500_000;
// Milliseconds that it works at least.
const LEAST = 1000;

function compute(number) {
    for (let step = 0; step < STEPS; step++) number = (Math.imul(number, 1103515245) + 12345) & 0x7fffffff;
    return number;
}

function ask(worker, number) {
    return new Promise((resolve) => {
        worker.once("message", resolve);
        worker.postMessage(number);
    });
}

function get(port, path) {
    return new Promise((resolve, reject) => {
        const asked = request({ port, host: "127.0.0.1", path }, (answer) => {
            let text = "";
            answer.on("data", (part) => (text += part));
            answer.on("end", () => resolve(text));
        });
        asked.on("error", reject);
        asked.end();
    });
}

async function main(end) {
    const began = Date.now();
    const server = createServer((asked, answer) => answer.end(asked.url.toUpperCase()));
    await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
    const { port } = server.address();
    const workers = [0, 1, 2].map(() => new Worker(new URL(import.meta.url)));
    const folder = await mkdtemp(`${tmpdir()}/ckptd-node-`);
    const run = promisify(execFile);
    let wrong = 0;
    console.log("started");
    for (let turn = 0; Date.now() - began < LEAST || !existsSync(end); turn++) {
        const found = await Promise.all(workers.map((worker, index) => ask(worker, turn + index)));
        found.forEach((number, index) => (wrong += number !== compute(turn + index)));
        const path = `/${"x".repeat(turn % 50)}`;
        wrong += (await get(port, path)) !== path.toUpperCase();
        await writeFile(`${folder}/file`, `turn ${turn}`);
        wrong += (await readFile(`${folder}/file`, "utf8")) !== `turn ${turn}`;
        if (turn % 8 === 0) wrong += (await run("echo", [String(turn)])).stdout !== `${turn}\n`;
        await new Promise((resolve) => setTimeout(resolve, 20));
    }
    await rm(folder, { recursive: true });
    console.log(wrong ? `node: ${wrong} wrong` : "node: right");
    process.exit(wrong ? 1 : 0);
}

if (isMainThread) await main(process.argv[2]);
else parentPort.on("message", (number) => parentPort.postMessage(compute(number)));
