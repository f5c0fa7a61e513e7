// The stock consumer clients with their stock checkpoint store, all on one broker: they share the partitions evenly,
// take over from a killed client, and continue at its checkpoints.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { after, test } from "node:test";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { BlobCheckpointStore } from "@azure/eventhubs-checkpointstore-blob";
import { ContainerClient } from "@azure/storage-blob";
import { createHub, producerOf } from "../hubs.mjs";
import { sleep, until, useBroker } from "../steps.mjs";

const context = useBroker({ queues: [], keys: [], blobPort: "127.0.0.1:0" });
const PARTITIONS = [...Array(16).keys()].map(String);
// Each partition gets events for two checkpoints, and some after the last.
const BEFORE_COUNT = 25;
const AFTER_COUNT = 10;
const CHECKPOINT_EVERY = 10;
const LAST_CHECKPOINT = 19;
const PATIENCE_MS = 60_000;
const WORKER = fileURLToPath(new URL("../balance_worker.mjs", import.meta.url));

const workers = [];
after(() => Promise.all(workers.map((worker) => worker.kill())));

/** A consumer client in its own process, with its reports. */
class Worker {
  events = [];
  checkpoints = {};

  constructor(...places) {
    this.process = spawn(process.execPath, [WORKER, ...places], { stdio: ["ignore", "pipe", "inherit"] });
    const lines = createInterface({ input: this.process.stdout });
    lines.on("line", (line) => this.hear(...line.split(" ")));
    this.heard = once(lines, "close");
    workers.push(this);
  }

  hear(what, partition, number) {
    if (what === "event") this.events.push(`${partition}:${number}`);
    if (what === "checkpoint") this.checkpoints[partition] = Number(number);
  }

  async kill() {
    this.process.kill("SIGKILL");
    await this.heard;
  }
}

async function publish(producer, count) {
  for (const partitionId of PARTITIONS) await producer.sendBatch(Array(count).fill({ body: "reading" }), { partitionId });
}

const range = (from, to) => [...Array(to - from).keys()].map((number) => number + from);
const all = (count) => PARTITIONS.flatMap((partition) => range(0, count).map((number) => `${partition}:${number}`));

async function readAll(count) {
  const missing = () => {
    const seen = new Set(workers.flatMap((worker) => worker.events));
    return all(count).filter((event) => !seen.has(event));
  };
  await until(() => missing().length === 0, "every event to be read", PATIENCE_MS);
}

test("three clients share sixteen partitions", async () => {
  const { broker } = context;
  const hub = await createHub(broker, PARTITIONS.length);
  const container = new ContainerClient(broker.storageConnectionString, "balance");
  await container.create();
  const store = new BlobCheckpointStore(container);
  const producer = producerOf(broker, hub);
  const namespace = producer.fullyQualifiedNamespace;

  async function spreads(expected) {
    const deadline = Date.now() + PATIENCE_MS;
    // Greedy clients take partitions from each other for a while, and a client that has lost a partition reads on until
    // its link is detached. Several consecutive checks must therefore agree.
    let [last, looks] = ["", 0];
    for (;;) {
      const counts = new Map();
      const owners = await store.listOwnership(namespace, hub, "$Default");
      for (const { ownerId } of owners) {
        if (ownerId) counts.set(ownerId, (counts.get(ownerId) ?? 0) + 1);
      }
      const found = [...counts.values()].sort();
      const owned = owners.map(({ partitionId, ownerId }) => `${partitionId} ${ownerId}`).sort().join();
      looks = owned === last ? looks + 1 : 1;
      last = owned;
      if (looks >= 6 && String(found) === String(expected)) return;
      assert.ok(Date.now() < deadline, `the partitions are spread as ${found}`);
      await sleep(300);
    }
  }

  const places = [broker.connectionString, broker.storageConnectionString, hub, "balance"];
  // The clients start one after another: this store writes the first claim of a partition without a condition, so of
  // several clients that claim it at once one may be in the store and another on the link until the claim expires.
  for (const expected of [[16], [8, 8], [5, 5, 6]]) {
    new Worker(...places);
    await spreads(expected);
  }
  const [victim, ...others] = workers;
  await publish(producer, BEFORE_COUNT);
  await readAll(BEFORE_COUNT);
  const checkpoints = () => Object.assign({}, ...workers.map((worker) => worker.checkpoints));
  await until(() => PARTITIONS.every((partition) => checkpoints()[partition] === LAST_CHECKPOINT), "the checkpoints");

  await victim.kill();
  const readByOthers = new Set(others.flatMap((worker) => worker.events).map(partitionOf));
  const orphans = new Set(victim.events.map(partitionOf).filter((partition) => !readByOthers.has(partition)));
  assert.ok(orphans.size >= 1 && orphans.size <= 6);
  const seen = others.map((worker) => worker.events.length);
  await publish(producer, AFTER_COUNT);
  await readAll(BEFORE_COUNT + AFTER_COUNT);
  await spreads([8, 8]);
  await producer.close();
  for (const partition of PARTITIONS) {
    // This SDK may also move a partition between two live clients. A client that gets a partition starts after its
    // checkpoint; a client that keeps one continues.
    const runs = workers.flatMap((worker) => runsOf(worker.events, partition));
    assert.ok(runs.every(([first]) => first % CHECKPOINT_EVERY === 0), `partition ${partition} must continue at its checkpoints: ${JSON.stringify(runs)}`);
  }
  for (const partition of orphans) {
    const runs = others.flatMap((worker, index) => runsOf(worker.events.slice(seen[index]), partition));
    assert.ok(runs.some(([first]) => first === LAST_CHECKPOINT + 1), `partition ${partition} must continue at the killed client's checkpoint: ${JSON.stringify(runs)}`);
  }
});

const partitionOf = (event) => event.split(":")[0];

/** Returns the runs of consecutive numbers in a partition: the first and the last number of each. */
function runsOf(events, partition) {
  const runs = [];
  for (const event of events.filter((event) => event.startsWith(`${partition}:`))) {
    const number = Number(event.split(":")[1]);
    if (runs.at(-1)?.[1] === number - 1) runs.at(-1)[1] = number;
    else runs.push([number, number]);
  }
  return runs;
}
