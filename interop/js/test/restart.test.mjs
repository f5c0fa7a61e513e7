// A broker that is killed and restarted: the same client objects keep working, and nothing confirmed is lost.
import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";
import { ServiceBusClient } from "@azure/service-bus";
import { Broker, freeFixedPort } from "../broker.mjs";
import { showQueue } from "../api.mjs";
import { CLIENT_OPTIONS, assertEmpty, bodies, receive, receiveOne, send, sleep, until } from "../steps.mjs";

const QUEUE = "jobs";
let broker;
let client;

beforeEach(async () => {
  broker = await Broker.start({ queues: [QUEUE], listen: `127.0.0.1:${await freeFixedPort()}` });
  client = new ServiceBusClient(broker.connectionString, CLIENT_OPTIONS);
});

afterEach(async () => {
  await client.close();
  await broker.stop();
});

async function killAndStart() {
  await broker.kill();
  await broker.start();
}

/** Waits until the queue is empty. The pump settles in the background; a kill before that leads to a redelivery. */
async function settled() {
  while (Number((await showQueue(broker, QUEUE)).activeCount) > 0) await sleep(20);
}

test("sender and receiver work after a kill", async () => {
  const sender = client.createSender(QUEUE);
  const receiver = client.createReceiver(QUEUE);
  await sender.sendMessages({ body: "before" });
  await receiver.completeMessage(await receiveOne(receiver));
  await sender.sendMessages({ body: "kept" });
  await killAndStart();
  await sender.sendMessages({ body: "after" });
  const messages = await receive(receiver, 2, 20_000);
  assert.deepEqual(bodies(messages), ["kept", "after"]);
  for (const message of messages) await receiver.completeMessage(message);
  await assertEmpty(client, QUEUE);
});

test("the message pump continues after a kill", async () => {
  const receiver = client.createReceiver(QUEUE);
  const got = [];
  const pump = receiver.subscribe({
    processMessage: async (message) => void got.push(message.body),
    processError: async () => {},
  });
  await send(client, QUEUE, "before");
  await until(() => got.includes("before"), "the first message");
  await settled();
  await killAndStart();
  await send(client, QUEUE, "after");
  await until(() => got.includes("after"), "a message after the restart", 30_000);
  await pump.close();
  await receiver.close();
  await assertEmpty(client, QUEUE);
});

test("confirmed messages survive, and the broker reports their number", async () => {
  const sent = [...Array(100).keys()];
  await send(client, QUEUE, ...sent);
  await killAndStart();
  assert.match(broker.labels["Recovered"], /^100 messages in /);
  assert.deepEqual(bodies(await receive(client.createReceiver(QUEUE), 100)), sent);
});
