// Queues with classes: their order as the JSON API takes it, messages of a priority, and the order in which they come.
import { bodies, receive } from "./steps.mjs";

const PRIORITIES = { high: "7-9", normal: "4-6", low: "0-3" };
// Well inside of the 16 that a receiver may hold unsettled by default.
const BATCH_COUNT = 8;

/** Three classes, each with settings of its own if there are any. */
export function order(policy = "strict", settings = {}, more = {}) {
  const entries = Object.entries(PRIORITIES).map(([name, priorities]) => [name, { priorities, ...settings[name] }]);
  return { policy, classes: Object.fromEntries(entries), ...more };
}

/** A message whose AMQP header says its priority: the SDK takes a whole AMQP message wherever it takes its own. */
export function withHeader(body, priority, more = {}) {
  return { body, bodyType: "data", header: { priority }, ...more };
}

/** A message whose application property says its priority. */
export function withProperty(body, priority, more = {}) {
  return { body, applicationProperties: { Priority: priority }, ...more };
}

export function ofClass(name, ...named) {
  return named.map((body) => withProperty(body, name));
}

/** All at once: everything is there before anybody can take the first. */
export async function post(client, queue, ...messages) {
  const sender = client.createSender(queue);
  await sender.sendMessages(messages);
  await sender.close();
}

/** Receives and completes `count` messages, a few at a time, in the order in which they come. */
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
