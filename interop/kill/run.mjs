// The kill loop: senders and receivers of a queue, and publishers and readers of a hub work continuously while the
// broker is killed repeatedly at random moments, also while it starts. Then the queue is drained, the hub is read from
// its first event to its last, and the logs are checked.
//
// Usage: node run.mjs [--kills N] [--seed N]. The seed determines the moments of the kills, and is printed.
import { fork } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { Broker, freeFixedPort } from "../js/broker.mjs";
import { check, line } from "./check.mjs";
import { QUEUE } from "./dial.mjs";
import { checkHub } from "./hub/check.mjs";
import { DECLARATION } from "./hub/events.mjs";
import { StepLog, readSteps } from "./log.mjs";
import { Random } from "./random.mjs";

const LOCK_MS = 5000;
const SENDERS = 2;
const RECEIVERS = 3;
const PUBLISHERS = 1;
const READERS = 2;
const TIME_MAX_MS = 400_000;
const QUIET_WORK_MS = 2000;
// A run with very few confirmations proves nothing.
const CONFIRMED_PER_KILL_MIN = 10;
const VIOLATIONS_SHOWN = 20;

const { values } = parseArgs({ options: { kills: { type: "string", default: "100" }, seed: { type: "string" } } });
const kills = Number(values.kills);
const seed = Number(values.seed ?? Math.floor(Math.random() * 2 ** 31));
const random = new Random(seed);
const folder = mkdtempSync(join(tmpdir(), "peeklock-kill-"));
const logs = join(folder, "logs");
mkdirSync(logs);
const log = new StepLog(logs, "killer");
console.log(`kill loop: ${kills} kills, seed ${seed}, in ${folder}`);

const deadline = setTimeout(() => fail(`not done after ${TIME_MAX_MS / 1000} s`), TIME_MAX_MS);
const port = await freeFixedPort();
const blobPort = `127.0.0.1:${await freeFixedPort()}`;
const queues = [`${QUEUE},lock=${LOCK_MS / 1000}s,max-delivery=2000`];
const config = join(folder, "hub.toml");
writeFileSync(config, DECLARATION);
const broker = new Broker({ folder, listen: `127.0.0.1:${port}`, blobPort, queues, configs: [config] });
const parties = [];

await broker.start();
const { storageConnectionString } = broker;
const senders = startParties("sender", SENDERS);
const receivers = startParties("receiver", RECEIVERS);
const publishers = startParties("hub/publisher", PUBLISHERS);
const readers = startParties("hub/reader", READERS, storageConnectionString);
for (let number = 1; number <= kills; number++) {
  await killOnce(number);
  broker.spawn();
}
await broker.ready;
await sleep(QUIET_WORK_MS);
await Promise.all([endQueue(), endHub()]);
await broker.stop();
clearTimeout(deadline);
conclude();

/**
 * Waits for a random moment and kills the broker: a fifth of the kills while it starts, a fifth just after, the rest
 * under load.
 */
async function killOnce(number) {
  const dice = random.next();
  if (dice > 0.2) await broker.ready.catch((error) => fail(error.message));
  await sleep(dice < 0.4 ? random.between(0, 30) : random.between(50, 1500));
  if (broker.process.exitCode !== null) fail(`the broker ended by itself with ${broker.process.exitCode}`);
  log.write("kill", { number });
  await broker.kill();
}

async function endQueue() {
  await order(senders, "stop");
  await order(receivers, "drain");
  await order(startParties("auditor", 1));
}

/** Runs the last pass, which determines the ends of the partitions, so that readers can wait for them. */
async function endHub() {
  await order(publishers, "stop");
  await order(startParties("hub/replayer", 1));
  const replayed = readSteps(logs).filter(({ step }) => step === "replayed");
  await order(readers, "finish", Object.fromEntries(replayed.map(({ partition, next }) => [partition, next])));
}

/** Starts the parties of a role. A role is a script of this folder; its parties are named after it. */
function startParties(role, count, ...more) {
  return Array.from({ length: count }, (_, index) => {
    const script = new URL(`${role}.mjs`, import.meta.url);
    const name = `${role.split("/").at(-1)}${index}`;
    const party = fork(script, [String(port), logs, name, String(seed + index), ...more]);
    party.ended = new Promise((resolve) => party.once("exit", resolve));
    party.once("exit", (code) => code !== 0 && fail(`${name} ended with ${code}`));
    parties.push(party);
    return party;
  });
}

async function order(group, word, details) {
  if (word) for (const party of group) party.send({ word, details });
  await Promise.all(group.map((party) => party.ended));
}

function conclude() {
  const steps = readSteps(logs);
  const queue = check(steps, { lockMs: LOCK_MS });
  const hub = checkHub(steps);
  const violations = [...queue.violations, ...hub.violations];
  for (const violation of violations.slice(0, VIOLATIONS_SHOWN)) console.log(JSON.stringify(violation));
  console.log(`kill loop, queue: ${line(queue.summary)}`);
  console.log(`kill loop, hub: ${line(hub.summary)}`);
  if (violations.length > 0) return fail(`${violations.length} violations`);
  const idle = idleness(queue.summary, hub.summary);
  if (idle) return fail(idle);
  rmSync(folder, { recursive: true });
}

/** Returns the reason why the run proves nothing, if there is one. */
function idleness(queue, hub) {
  if (queue.kills < kills) return `only ${queue.kills} kills`;
  if (queue.confirmed < kills * CONFIRMED_PER_KILL_MIN) return `only ${queue.confirmed} sends were confirmed`;
  if (queue.completed === 0 || queue.redelivered === 0) return "nothing was completed or redelivered";
  if (hub.confirmed < kills * CONFIRMED_PER_KILL_MIN) return `only ${hub.confirmed} events were confirmed`;
  if (hub.resumed < kills) return `readers went on only ${hub.resumed} times`;
  if (hub.checkpoints === 0 || hub.found === 0) return "no checkpoint was noted or found";
  return undefined;
}

/** Ends the run as failed. The folder is kept for analysis. */
function fail(why) {
  console.error(`kill loop: ${why}; seed ${seed}, logs in ${folder}`);
  for (const party of parties) party.kill("SIGKILL");
  if (broker?.process) broker.process.kill("SIGKILL");
  process.exit(1);
}

function sleep(ms) {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
