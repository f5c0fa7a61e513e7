// The setup of every test file: a broker with queues, a client, and steps that scenarios share.
import assert from "node:assert/strict";
import { after, afterEach, before } from "node:test";
import { ServiceBusClient } from "@azure/service-bus";
import { createQueue } from "./api.mjs";
import { Broker, QueuePool } from "./broker.mjs";

export const SEND_KEY = ["send-only", "secret-of-the-sender"];
export const LISTEN_KEY = ["listen-only", "secret-of-the-listener"];
// The longest wait for a message. Messages arrive much sooner; only a busy machine needs this long.
const RECEIVE_TIMEOUT_MS = 30_000;
// The clients retry a rejected or failed call soon, so that tests are short.
export const CLIENT_OPTIONS = { retryOptions: { maxRetries: 3, retryDelayInMs: 100, timeoutInMs: 10_000 } };

/** Provides a broker and a client for the tests of one file. */
export function useBroker(options = {}, prepare = () => {}) {
  const context = { pool: new QueuePool(), create: (settings) => createQueue(context.broker, settings) };
  before(async () => {
    const keys = [`${SEND_KEY.join("=")}:Send`, `${LISTEN_KEY.join("=")}:Listen`];
    context.broker = await Broker.start({ queues: QueuePool.declarations(), keys, ...options });
    context.client = new ServiceBusClient(context.broker.connectionString, CLIENT_OPTIONS);
    await prepare();
  });
  // The tests of a file share the broker, so each starts at the real time.
  afterEach(() => context.broker?.clock?.reset());
  after(async () => {
    await context.client?.close();
    await context.broker?.stop();
  });
  return context;
}

export async function send(client, queue, ...bodies) {
  const sender = client.createSender(queue);
  await sender.sendMessages(bodies.map((body) => ({ body })));
  await sender.close();
}

export async function sendInSession(client, queue, sessionId, ...bodies) {
  const sender = client.createSender(queue);
  await sender.sendMessages(bodies.map((body) => ({ body, sessionId })));
  await sender.close();
}

/** Receives until there are `count` messages. Fails if there are fewer after the timeout. */
export async function receive(receiver, count, timeoutMs = RECEIVE_TIMEOUT_MS) {
  const messages = [];
  const deadline = Date.now() + timeoutMs;
  while (messages.length < count) {
    const maxWaitTimeInMs = deadline - Date.now();
    assert.ok(maxWaitTimeInMs > 0, `only ${messages.length} of ${count} messages arrived in ${timeoutMs} ms`);
    messages.push(...(await receiver.receiveMessages(count - messages.length, { maxWaitTimeInMs })));
  }
  return messages;
}

export async function receiveOne(receiver, timeoutMs) {
  const [message] = await receive(receiver, 1, timeoutMs);
  return message;
}

/** Asserts that the queue has no message to receive, and no locked, deferred or waiting one. */
export async function assertEmpty(client, queue, options = {}) {
  const receiver = client.createReceiver(queue, { receiveMode: "receiveAndDelete", ...options });
  const peeked = await receiver.peekMessages(10);
  assert.deepEqual(bodies(peeked), []);
  assert.deepEqual(bodies(await receiver.receiveMessages(1, { maxWaitTimeInMs: 500 })), []);
  await receiver.close();
}

export const DEAD_LETTER = { subQueueType: "deadLetter" };
export const TRANSFER_DEAD_LETTER = { subQueueType: "transferDeadLetter" };

export async function receiveDeadLetter(client, queue, subQueue = DEAD_LETTER) {
  const receiver = client.createReceiver(queue, subQueue);
  const message = await receiveOne(receiver);
  await receiver.completeMessage(message);
  await receiver.close();
  return message;
}

export function inMs(ms) {
  return new Date(Date.now() + ms);
}

export function bodies(messages) {
  return messages.map((message) => message.body);
}

export async function until(condition, what, timeoutMs = RECEIVE_TIMEOUT_MS) {
  const deadline = Date.now() + timeoutMs;
  while (!(await condition())) {
    if (Date.now() > deadline) throw new Error(`timed out after ${timeoutMs} ms waiting for: ${what}`);
    await sleep(10);
  }
}

export function sleep(ms) {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
