// The kill loop: senders and receivers work without pause while the broker is killed again and again at random
// moments, also while it starts. Then the queue is drained and the logs are judged.
//
// Usage: node run.mjs [--kills N] [--seed N]. The seed decides the moments of the kills, and is printed.
import { fork } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { Broker, freeFixedPort } from "../js/broker.mjs";
import { checkFolder, line } from "./check.mjs";
import { QUEUE } from "./dial.mjs";
import { StepLog } from "./log.mjs";
import { Random } from "./random.mjs";

const LOCK_MS = 5000;
const SENDERS = 2;
const RECEIVERS = 3;
const TIME_MAX_MS = 230_000;
const QUIET_WORK_MS = 2000;
// A run in which hardly anything was confirmed proves nothing.
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
const broker = new Broker({ folder, listen: `127.0.0.1:${port}`, queues: [`${QUEUE},lock=${LOCK_MS / 1000}s,max-delivery=2000`] });
const parties = [];

await broker.start();
const senders = startParties("sender", SENDERS);
const receivers = startParties("receiver", RECEIVERS);
for (let number = 1; number <= kills; number++) {
  await killOnce(number);
  broker.spawn();
}
await broker.ready;
await sleep(QUIET_WORK_MS);
await order(senders, "stop");
await order(receivers, "drain");
await order(startParties("auditor", 1));
await broker.stop();
clearTimeout(deadline);
conclude();

/** Waits for a random moment and kills: a fifth of them while the broker starts, a fifth just after, the rest at work. */
async function killOnce(number) {
  const dice = random.next();
  if (dice > 0.2) await broker.ready.catch((error) => fail(error.message));
  await sleep(dice < 0.4 ? random.between(0, 30) : random.between(50, 1500));
  if (broker.process.exitCode !== null) fail(`the broker ended by itself with ${broker.process.exitCode}`);
  log.write("kill", { number });
  await broker.kill();
}

function startParties(role, count) {
  return Array.from({ length: count }, (_, index) => {
    const script = new URL(`${role}.mjs`, import.meta.url);
    const party = fork(script, [String(port), logs, `${role}${index}`, String(seed + index)]);
    party.ended = new Promise((resolve) => party.once("exit", resolve));
    party.once("exit", (code) => code !== 0 && fail(`${role}${index} ended with ${code}`));
    parties.push(party);
    return party;
  });
}

async function order(group, word) {
  if (word) for (const party of group) party.send(word);
  await Promise.all(group.map((party) => party.ended));
}

function conclude() {
  const { summary, violations } = checkFolder(logs, { lockMs: LOCK_MS });
  for (const violation of violations.slice(0, VIOLATIONS_SHOWN)) console.log(JSON.stringify(violation));
  console.log(`kill loop: ${line(summary)}`);
  if (violations.length > 0) return fail(`${violations.length} violations`);
  if (summary.kills < kills) return fail(`only ${summary.kills} kills`);
  if (summary.confirmed < kills * CONFIRMED_PER_KILL_MIN) return fail(`only ${summary.confirmed} sends were confirmed`);
  if (summary.completed === 0 || summary.redelivered === 0) return fail("nothing was completed or redelivered");
  rmSync(folder, { recursive: true });
}

/** The folder stays for whoever looks into it. */
function fail(why) {
  console.error(`kill loop: ${why}; seed ${seed}, logs in ${folder}`);
  for (const party of parties) party.kill("SIGKILL");
  if (broker?.process) broker.process.kill("SIGKILL");
  process.exit(1);
}

function sleep(ms) {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
