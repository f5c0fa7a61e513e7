// Topics: every subscription gets its own copy of a message, with all features of a queue.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { DEAD_LETTER, bodies, inMs, receive, receiveOne, sleep, until } from "../steps.mjs";
import { activeCount, createFiltered, createTopic, fresh, publish, take, taken, useManagedBroker } from "../topics.mjs";

const context = useManagedBroker();

describe("fan-out", () => {
  test("every subscription gets every message", async () => {
    const { admin, client } = context;
    const topic = await createTopic(admin, { one: {}, two: {}, three: {} });
    const sent = [...Array(20).keys()].map((n) => `message ${n}`);
    await publish(client, topic, ...sent);
    for (const subscription of ["one", "two", "three"]) assert.deepEqual(await taken(client, topic, subscription, 20), sent);
  });

  test("a message arrives with all its properties", async () => {
    const { admin, client } = context;
    const topic = await createTopic(admin, { all: {} });
    const applicationProperties = { text: "x", number: 7, yes: true };
    const sent = { body: { a: [1, 2] }, messageId: "m", correlationId: "c", subject: "s", contentType: "x/y", to: "t" };
    await publish(client, topic, { ...sent, applicationProperties });
    const [got] = await take(client, topic, "all", 1);
    for (const [name, value] of Object.entries(sent)) assert.deepEqual(got[name], value);
    assert.deepEqual(got.applicationProperties, applicationProperties);
  });

  test("a batch is fanned out as a whole", async () => {
    const { admin, client } = context;
    const topic = await createTopic(admin, { one: {}, two: {} });
    const sender = client.createSender(topic);
    const batch = await sender.createMessageBatch();
    for (let n = 0; n < 50; n++) assert.ok(batch.tryAddMessage({ body: n }));
    await sender.sendMessages(batch);
    const sent = [...Array(50).keys()];
    assert.deepEqual(await taken(client, topic, "one", 50), sent);
    assert.deepEqual(await taken(client, topic, "two", 50), sent);
  });

  test("subscriptions are independent of each other", async () => {
    const { admin, client } = context;
    const topic = await createTopic(admin, { one: {}, two: {} });
    await publish(client, topic, "shared");
    const receiver = client.createReceiver(topic, "one");
    await receiver.deadLetterMessage(await receiveOne(receiver), { deadLetterReason: "mine" });
    const [dead] = await take(client, topic, "one", 1, DEAD_LETTER);
    assert.deepEqual([dead.body, dead.deadLetterReason], ["shared", "mine"]);
    assert.deepEqual(await taken(client, topic, "two", 1), ["shared"]);
  });

  test("a subscription supports every settlement", async () => {
    const { admin, client } = context;
    const topic = await createTopic(admin, { all: { maxDeliveryCount: 2 } });
    await publish(client, topic, "deferred", "poison", "completed");
    const receiver = client.createReceiver(topic, "all");
    const [deferred, poison, completed] = await receive(receiver, 3);
    await receiver.renewMessageLock(completed);
    await receiver.completeMessage(completed);
    await receiver.deferMessage(deferred);
    await receiver.abandonMessage(poison);
    await receiver.abandonMessage(await receiveOne(receiver));
    const [back] = await receiver.receiveDeferredMessages(deferred.sequenceNumber);
    assert.equal(back.body, "deferred");
    await receiver.completeMessage(back);
    const [dead] = await take(client, topic, "all", 1, DEAD_LETTER);
    assert.deepEqual([dead.body, dead.deadLetterReason], ["poison", "MaxDeliveryCountExceeded"]);
  });
});

describe("subscriptions are queues", () => {
  test("they can have sessions", async () => {
    const { admin, client } = context;
    const topic = await createTopic(admin, { sessions: { requiresSession: true } });
    const messages = ["a0", "b0", "a1", "b1"].map((body) => ({ body, sessionId: body[0] }));
    await publish(client, topic, ...messages);
    const first = await client.acceptSession(topic, "sessions", "b");
    await first.setSessionState("half done");
    assert.equal(await first.getSessionState(), "half done");
    assert.deepEqual(bodies(await receive(first, 2)), ["b0", "b1"]);
    const next = await client.acceptNextSession(topic, "sessions");
    assert.equal(next.sessionId, "a");
    assert.deepEqual(bodies(await receive(next, 2)), ["a0", "a1"]);
    await first.close();
    await next.close();
  });

  test("they feed a message pump", async () => {
    const { admin, client } = context;
    const topic = await createTopic(admin, { pumped: {} });
    const got = [];
    const receiver = client.createReceiver(topic, "pumped");
    receiver.subscribe({ processMessage: async ({ body }) => got.push(body), processError: async () => {} });
    await publish(client, topic, 1, 2, 3);
    await until(() => got.length === 3, "all messages");
    await receiver.close();
    assert.deepEqual(got, [1, 2, 3]);
  });

  test("they get scheduled messages when due, unless cancelled", async () => {
    const { admin, client } = context;
    const topic = await createTopic(admin, { one: {}, two: {} });
    const sender = client.createSender(topic);
    const [never] = await sender.scheduleMessages({ body: "never" }, inMs(600_000));
    await sender.scheduleMessages({ body: "due" }, inMs(60_000));
    assert.equal((await admin.getTopicRuntimeProperties(topic)).scheduledMessageCount, 2);
    await sender.cancelScheduledMessages(never);
    await context.broker.clock.advance(60_000);
    for (const subscription of ["one", "two"]) {
      assert.equal((await receiveOne(client.createReceiver(topic, subscription))).body, "due");
    }
  });

  test("they dead-letter expired messages if set to", async () => {
    const { admin, client } = context;
    const topic = await createTopic(admin, { keeps: { deadLetteringOnMessageExpiration: true }, drops: {} });
    await publish(client, topic, { body: "brief", timeToLive: 60_000 });
    await context.broker.clock.advance(60_000);
    const [dead] = await take(client, topic, "keeps", 1, DEAD_LETTER);
    assert.deepEqual([dead.body, dead.deadLetterReason], ["brief", "TTLExpiredException"]);
    while ((await activeCount(admin, topic, "drops")) > 0) await sleep(20);
  });

  test("they forward to queues and topics", async () => {
    const { admin, client } = context;
    const second = await createFiltered(admin, { high: { sqlExpression: "level > 5" } });
    const queue = fresh("queue");
    await admin.createQueue(queue);
    const first = await createTopic(admin, { onward: { forwardTo: second }, aside: { forwardTo: queue } });
    await publish(client, first, ...[1, 9].map((level) => ({ body: level, applicationProperties: { level } })));
    assert.deepEqual(await taken(client, second, "high", 1), [9]);
    assert.deepEqual(bodies(await receive(client.createReceiver(queue), 2)), [1, 9]);
  });

  test("a topic rejects receivers and a subscription rejects senders", async () => {
    const { admin, client } = context;
    const topic = await createTopic(admin, { one: {} });
    await assert.rejects(client.createReceiver(topic).receiveMessages(1, { maxWaitTimeInMs: 20_000 }));
    await assert.rejects(publish(client, `${topic}/Subscriptions/one`, "direct"));
    assert.equal(await activeCount(admin, topic, "one"), 0);
  });

  test("an unknown topic or subscription is not found", async () => {
    const { admin, client } = context;
    const topic = await createTopic(admin, { one: {} });
    const missing = { code: "MessagingEntityNotFound" };
    await assert.rejects(publish(client, "no-such-topic", "lost"), missing);
    await assert.rejects(client.createReceiver(topic, "two").receiveMessages(1, { maxWaitTimeInMs: 20_000 }), missing);
  });
});
