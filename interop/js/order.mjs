// Queues with classes: the order in the form of the JSON API, messages with a priority, and receiving in order.
import { bodies, receive } from "./steps.mjs";

const PRIORITIES = { high: "7-9", normal: "4-6", low: "0-3" };
// The number of messages per call, well below the 16 unsettled messages that a receiver may hold by default.
const BATCH_COUNT = 8;

/** Returns an order with three classes, each with its own settings if there are any. */
export function order(policy = "strict", settings = {}, more = {}) {
  const entries = Object.entries(PRIORITIES).map(([name, priorities]) => [name, { priorities, ...settings[name] }]);
  return { policy, classes: Object.fromEntries(entries), ...more };
}

/**
 * Returns a message with the priority in its AMQP header: the SDK accepts a complete AMQP message in place of its own.
 */
export function withHeader(body, priority, more = {}) {
  return { body, bodyType: "data", header: { priority }, ...more };
}

/** Returns a message with the priority in an application property. */
export function withProperty(body, priority, more = {}) {
  return { body, applicationProperties: { Priority: priority }, ...more };
}

export function ofClass(name, ...named) {
  return named.map((body) => withProperty(body, name));
}

/** Sends all messages in one batch, so that all are stored before the first can be received. */
export async function post(client, queue, ...messages) {
  const sender = client.createSender(queue);
  await sender.sendMessages(messages);
  await sender.close();
}

/** Receives and completes `count` messages, a few at a time, in the order of delivery. */
export async function takeFrom(receiver, count) {
  const taken = [];
  while (taken.length < count) {
    const messages = await receive(receiver, Math.min(BATCH_COUNT, count - taken.length));
    for (const message of messages) await receiver.completeMessage(message);
    taken.push(...bodies(messages));
  }
  return taken;
}

export async function take(client, queue, count) {
  const receiver = client.createReceiver(queue);
  const taken = await takeFrom(receiver, count);
  await receiver.close();
  return taken;
}
