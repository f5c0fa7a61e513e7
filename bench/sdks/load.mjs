// Sends and receives with @azure/service-bus, and prints a line for each phase: its name, its messages, its seconds and its CPU seconds.
//
// Arguments: the connection string, the queue, the size of a body, and the number of messages of each phase in the order of `PHASES`.
// The packages are those of the working directory.
import { createRequire } from "node:module";
import { resolve } from "node:path";

const { ServiceBusClient } = createRequire(resolve("package.json"))("@azure/service-bus");

const BATCH_COUNT = 100;

async function send_single(client, queue, body, count) {
  const sender = client.createSender(queue);
  await sender.createMessageBatch(); // Opens the link.
  return async () => {
    for (let sent = 0; sent < count; sent += 1) await sender.sendMessages({ body });
  };
}

async function send_batches(client, queue, body, count) {
  const sender = client.createSender(queue);
  await sender.createMessageBatch(); // Opens the link.
  return async () => {
    for (let sent = 0; sent < count; sent += BATCH_COUNT) {
      await sender.sendMessages(Array.from({ length: BATCH_COUNT }, () => ({ body })));
    }
  };
}

async function receive(client, queue, _, count) {
  const receiver = client.createReceiver(queue);
  return async () => {
    let completed = 0;
    while (completed < count) {
      const most = Math.min(BATCH_COUNT, count - completed);
      const messages = await receiver.receiveMessages(most, { maxWaitTimeInMs: 10_000 });
      await Promise.all(messages.map((message) => receiver.completeMessage(message)));
      completed += messages.length;
    }
  };
}

const PHASES = [send_single, send_batches, receive];

const [connectionString, queue, size, ...counts] = process.argv.slice(2);
const body = Buffer.alloc(Number(size), "x");
const client = new ServiceBusClient(connectionString);
for (const [index, open] of PHASES.entries()) {
  const count = Number(counts[index]);
  const run = await open(client, queue, body, count);
  process.stdout.write("start\n");
  const [started, cpu] = [process.hrtime.bigint(), process.cpuUsage()];
  await run();
  const { user, system } = process.cpuUsage(cpu);
  const seconds = Number(process.hrtime.bigint() - started) / 1e9;
  process.stdout.write(`${open.name} ${count} ${seconds} ${(user + system) / 1e6}\n`);
}
await client.close();
