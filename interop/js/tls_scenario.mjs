// Runs one scenario with the SDK over TLS. Arguments: connection string, queue.
import assert from "node:assert/strict";
import { ServiceBusClient } from "@azure/service-bus";
import { assertEmpty, bodies, receive, receiveOne, send } from "./steps.mjs";

const [connectionString, queue] = process.argv.slice(2);
const retryOptions = { maxRetries: 1, retryDelayInMs: 100, timeoutInMs: 10_000 };
const client = new ServiceBusClient(connectionString, { retryOptions });
try {
  const receiver = client.createReceiver(queue);
  const large = Buffer.alloc(900 * 1024, "peeklock");
  await send(client, queue, large);
  const message = await receiveOne(receiver);
  assert.ok(large.equals(message.body));
  await receiver.renewMessageLock(message);
  await receiver.completeMessage(message);

  await send(client, queue, "deferred", "abandoned", "poison");
  const [deferred, abandoned, poison] = await receive(receiver, 3);
  await receiver.deferMessage(deferred);
  await receiver.deadLetterMessage(poison);
  await receiver.abandonMessage(abandoned);
  await receiver.completeMessage(await receiveOne(receiver));
  const [again] = await receiver.receiveDeferredMessages(deferred.sequenceNumber);
  await receiver.completeMessage(again);
  await assertEmpty(client, queue);
  const dead = client.createReceiver(queue, { subQueueType: "deadLetter" });
  assert.deepEqual(bodies(await dead.peekMessages(2)), ["poison"]);
  console.log("every step passed");
} finally {
  await client.close();
}
