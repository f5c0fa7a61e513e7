// Runs at the end: reads every partition from its first event to its last, and logs its end. Arguments: port, folder of
// logs, party.
import { Dialler } from "../dial.mjs";
import { StepLog } from "../log.mjs";
import { note, partitions, sourceAfter } from "./events.mjs";

const CREDIT = 2000;
const [port, folder, party] = process.argv.slice(2);
const log = new StepLog(folder, party);
process.on("disconnect", () => process.exit(1));

const dialler = new Dialler(Number(port), log, async (connection) => {
  for (const partition of partitions()) await replay(connection, partition);
  dialler.stop();
  process.exit(0);
});

function replay(connection, partition) {
  return new Promise((resolve) => {
    const reading = `${party}/${partition}`;
    let [count, next] = [0, 0];
    log.write("reading", { reading, partition, after: null });
    const receiver = connection.open_receiver({ source: sourceAfter(partition), credit_window: 0 });
    const more = () => {
      count = 0;
      receiver.drain = true;
      receiver.add_credit(CREDIT);
    };
    receiver.on("message", ({ message }) => {
      count++;
      next = note(log, reading, partition, message).sequence + 1;
    });
    receiver.on("receiver_drained", () => {
      if (count === CREDIT) return more();
      log.write("replayed", { partition, next });
      receiver.close();
      resolve();
    });
    receiver.once("receiver_open", more);
  });
}
