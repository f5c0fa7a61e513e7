// Logs of the parties of a run: one JSON line per step, one file per party.
//
// A line is written to the system before the next step is taken, so a log is never behind its writer. Times are in
// milliseconds, from the one clock that all parties and the broker share.
import { openSync, readFileSync, readdirSync, writeSync } from "node:fs";
import { join } from "node:path";

export class StepLog {
  constructor(folder, party) {
    this.file = openSync(join(folder, `${party}.log`), "a");
  }

  write(step, details = {}) {
    writeSync(this.file, `${JSON.stringify({ at: Date.now(), step, ...details })}\n`);
  }
}

/** Returns all steps of all parties, each with its party, in order of time. */
export function readSteps(folder) {
  const steps = [];
  for (const name of readdirSync(folder).filter((name) => name.endsWith(".log"))) {
    const party = name.slice(0, -".log".length);
    for (const line of readFileSync(join(folder, name), "utf8").split("\n")) {
      if (line !== "") steps.push({ party, ...JSON.parse(line) });
    }
  }
  return steps.sort((a, b) => a.at - b.at);
}
