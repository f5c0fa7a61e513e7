// Topics for the scenarios, and the administration client that creates them.
import { readFileSync } from "node:fs";
import { ServiceBusAdministrationClient } from "@azure/service-bus";
import { bodies, receive, useBroker } from "./steps.mjs";

export const DEFAULT_RULE = "$Default";

/** Provides a broker with a certificate, a client, and an administration client that trusts the certificate. */
export function useManagedBroker(options = {}) {
  const places = { listenTls: "127.0.0.1:0", http: "127.0.0.1:0" };
  const context = useBroker({ queues: [], ...places, ...options }, () => {
    context.admin = adminOf(context.broker);
  });
  return context;
}

/**
 * Returns an administration client. Every port of the broker serves TLS and HTTP besides AMQP, so the SDK gets the same
 * connection string.
 */
export function adminOf(broker, connectionString = broker.connectionString, options = {}) {
  const tlsOptions = { ca: readFileSync(broker.certificate, "utf8") };
  // The broker may close an idle connection while the next request is in flight; the client then retries.
  return new ServiceBusAdministrationClient(connectionString, { tlsOptions, retryOptions: { maxRetries: 1 }, ...options });
}

let freshCount = 0;

export function fresh(stem) {
  return `${stem}-made-${freshCount++}`;
}

/** Creates a topic with subscriptions, given by name with their settings. Returns the topic's name. */
export async function createTopic(admin, subscriptions, settings = {}) {
  const topic = fresh("topic");
  await admin.createTopic(topic, settings);
  for (const [name, own] of Object.entries(subscriptions)) await admin.createSubscription(topic, name, own);
  return topic;
}

/** Creates a topic with one subscription per filter, which is its only rule. Returns the topic's name. */
export async function createFiltered(admin, filters) {
  const topic = await createTopic(admin, Object.fromEntries(Object.keys(filters).map((name) => [name, {}])));
  for (const [name, filter] of Object.entries(filters)) await replaceRules(admin, topic, name, filter);
  return topic;
}

export async function replaceRules(admin, topic, subscription, filter, action) {
  await admin.createRule(topic, subscription, "only", filter, ...(action ? [action] : []));
  await admin.deleteRule(topic, subscription, DEFAULT_RULE);
}

/** Sends messages, given as bodies or complete messages. */
export async function publish(client, topic, ...messages) {
  const sender = client.createSender(topic);
  await sender.sendMessages(messages.map((message) => (typeof message === "object" ? message : { body: message })));
  await sender.close();
}

/** Receives and completes `count` messages, and asserts that there are no more. */
export async function take(client, topic, subscription, count, options = {}) {
  const receiver = client.createReceiver(topic, subscription, options);
  const messages = count > 0 ? await receive(receiver, count) : [];
  for (const message of messages) await receiver.completeMessage(message);
  const rest = await receiver.peekMessages(10);
  if (rest.length > 0) throw new Error(`unexpected messages in ${subscription}: ${bodies(rest)}`);
  await receiver.close();
  return messages;
}

export async function taken(client, topic, subscription, count, options) {
  return bodies(await take(client, topic, subscription, count, options));
}

export async function activeCount(admin, topic, subscription) {
  const shown = await admin.getSubscriptionRuntimeProperties(topic, subscription);
  return shown.activeMessageCount;
}

export async function all(listed) {
  const found = [];
  for await (const one of listed) found.push(one);
  return found;
}
