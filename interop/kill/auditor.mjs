// Runs after the drain: receives all messages that remain in the queue and its dead-letter queue without settling them,
// and logs them. Arguments: port, folder of logs, party.
import { Dialler, QUEUE } from "./dial.mjs";
import { StepLog } from "./log.mjs";

const CREDIT = 2000;
const [port, folder, party] = process.argv.slice(2);
const log = new StepLog(folder, party);
const places = [QUEUE, `${QUEUE}/$DeadLetterQueue`];
process.on("disconnect", () => process.exit(1));

const dialler = new Dialler(Number(port), log, async (connection) => {
  for (const place of places) {
    let got;
    do got = await look(connection, place);
    while (got === CREDIT);
  }
  dialler.stop();
  process.exit(0);
});

function look(connection, place) {
  return new Promise((resolve) => {
    let count = 0;
    const receiver = connection.open_receiver({ source: place, credit_window: 0, autoaccept: false, rcv_settle_mode: 1 });
    receiver.on("message", ({ message }) => {
      count++;
      log.write("found", { id: message.message_id, place });
    });
    receiver.on("receiver_drained", () => {
      receiver.close();
      resolve(count);
    });
    receiver.once("receiver_open", () => {
      receiver.drain = true;
      receiver.add_credit(CREDIT);
    });
  });
}
