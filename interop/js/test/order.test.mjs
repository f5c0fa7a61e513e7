// Queues with classes: the source of a message's priority, the order of delivery, and the limit on unsettled messages.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { ServiceBusClient } from "@azure/service-bus";
import { call, updateQueue } from "../api.mjs";
import { ofClass, order, post, take, takeFrom, withHeader, withProperty } from "../order.mjs";
import { bodies, inMs, receive, receiveDeadLetter, receiveOne, sleep, until } from "../steps.mjs";
import { createTopic, useManagedBroker } from "../topics.mjs";

const context = useManagedBroker();
// The default limit on the unsettled messages of a receiver.
const OUTSTANDING = 16;
const lows = (count) => ofClass("low", ...[...Array(count).keys()].map((number) => `low ${number}`));
const strict = (more) => context.create({ order: order("strict"), ...more });

describe("the class of a message", () => {
  test("is set by the header of a raw AMQP message", async () => {
    const { client } = context;
    const queue = await strict();
    await post(client, queue, withHeader("p0", 0), withHeader("p4", 4), withHeader("p9", 9));
    assert.deepEqual(await take(client, queue, 3), ["p9", "p4", "p0"]);
  });

  test("is set by the header also without a batch, and the receiver gets the header", async () => {
    const { client } = context;
    const queue = await strict();
    const sender = client.createSender(queue);
    await sender.sendMessages(withHeader("p1", 1));
    await sender.sendMessages(withHeader("p8", 8));
    const receiver = client.createReceiver(queue);
    const [first, second] = await receive(receiver, 2);
    assert.deepEqual([first, second].map((message) => [message.body, message._rawAmqpMessage.header.priority]), [["p8", 8], ["p1", 1]]);
  });

  for (const [low, high] of [["low", "high"], [1, 9], ["1", "9"]]) {
    test(`is set by the property Priority, like ${JSON.stringify(high)}`, async () => {
      const { client } = context;
      const queue = await strict();
      await post(client, queue, withProperty("low", low), { body: "normal" }, withProperty("high", high));
      assert.deepEqual(await take(client, queue, 3), ["high", "normal", "low"]);
    });
  }

  test("is set by a rule of the queue with precedence", async () => {
    const { client, create } = context;
    const rules = [{ when: "tier = 'paying'", class: "high" }];
    const queue = await create({ order: order("strict", {}, { rules }) });
    const paying = { body: "paying", applicationProperties: { tier: "paying", Priority: "low" } };
    await post(client, queue, { body: "free", applicationProperties: { tier: "free" } }, withProperty("normal", 6), paying);
    assert.deepEqual(await take(client, queue, 3), ["paying", "free", "normal"]);
  });

  test("is the default class if the message has no valid priority", async () => {
    const { client } = context;
    const queue = await strict();
    await post(client, queue, withProperty("low", 0), withProperty("odd", "urgent"), { body: "silent" }, withProperty("high", 7));
    assert.deepEqual(await take(client, queue, 4), ["high", "odd", "silent", "low"]);
  });
});

describe("the order", () => {
  test("strict delivers the most urgent class first, even if it arrives later", async () => {
    const { client } = context;
    const queue = await strict();
    await post(client, queue, ...ofClass("low", "l1", "l2"), ...ofClass("normal", "n1"));
    const receiver = client.createReceiver(queue);
    assert.deepEqual(await takeFrom(receiver, 1), ["n1"]);
    await post(client, queue, ...ofClass("high", "h1"));
    assert.deepEqual(await takeFrom(receiver, 3), ["h1", "l1", "l2"]);
  });

  test("aged protects a message that has waited long enough from overtaking", async () => {
    const { client, create } = context;
    const queue = await create({ order: order("aged", { high: { offset: "0s" }, normal: { offset: "0s" }, low: { offset: "60s" } }) });
    await post(client, queue, ...ofClass("low", "old"));
    await context.broker.clock.advance(60_500);
    await post(client, queue, ...ofClass("low", "young"), ...ofClass("high", "high"));
    assert.deepEqual(await take(client, queue, 3), ["old", "high", "young"]);
  });

  test("weighted shares by the weights of the classes", async () => {
    const { client, create } = context;
    const queue = await create({ order: order("weighted", { high: { weight: 3 }, normal: { weight: 1 }, low: { weight: 1 } }) });
    await post(client, queue, ...ofClass("low", ...Array(24).fill("low")), ...ofClass("high", ...Array(24).fill("high")));
    const taken = await take(client, queue, 24);
    const high = taken.filter((name) => name === "high").length;
    assert.ok(Math.abs(high - 18) <= 1, `three of four must be high: ${taken}`);
  });

  test("can change while messages wait", async () => {
    const { broker, client, create } = context;
    const queue = await create({ order: order("fifo") });
    await post(client, queue, ...ofClass("low", "l1", "l2"), ...ofClass("high", "h1"));
    const receiver = client.createReceiver(queue);
    assert.deepEqual(await takeFrom(receiver, 1), ["l1"]);
    await updateQueue(broker, queue, { order: order("strict") });
    assert.deepEqual(await takeFrom(receiver, 2), ["h1", "l2"]);
  });

  test("an abandoned message keeps its place, a deferred one is skipped, a rejected one is dead-lettered", async () => {
    const { client } = context;
    const queue = await strict();
    await post(client, queue, ...ofClass("low", "l1"), ...ofClass("high", "h1", "h2", "h3"));
    const receiver = client.createReceiver(queue);
    await receiver.abandonMessage(await receiveOne(receiver));
    const again = await receiveOne(receiver);
    assert.deepEqual([again.body, again.deliveryCount], ["h1", 1]);
    await receiver.deferMessage(again);
    await receiver.deadLetterMessage(await receiveOne(receiver), { deadLetterReason: "Refused" });
    assert.deepEqual(await takeFrom(receiver, 2), ["h3", "l1"]);
    const [deferred] = await receiver.receiveDeferredMessages([again.sequenceNumber]);
    assert.equal(deferred.body, "h1");
    await receiver.completeMessage(deferred);
    const dead = await receiveDeadLetter(client, queue);
    assert.deepEqual([dead.body, dead.deadLetterReason], ["h2", "Refused"]);
  });

  test("a scheduled message gets its place when it is due", async () => {
    const { client } = context;
    const queue = await strict();
    const sender = client.createSender(queue);
    await sender.sendMessages(ofClass("low", "l1", "l2"));
    const receiver = client.createReceiver(queue);
    const due = inMs(60_000);
    await sender.scheduleMessages(withHeader("scheduled", 9), due);
    assert.deepEqual(await takeFrom(receiver, 1), ["l1"]);
    await context.broker.clock.passBy(due);
    assert.deepEqual(await takeFrom(receiver, 2), ["scheduled", "l2"]);
  });

  test("the next session is the one with the most urgent head", async () => {
    const { client } = context;
    const queue = await strict({ requiresSession: true });
    await post(client, queue, withProperty("low", "low", { sessionId: "patient" }), withProperty("high", "high", { sessionId: "urgent" }));
    const visited = [];
    for (let count = 0; count < 2; count++) {
      const receiver = await client.acceptNextSession(queue);
      visited.push([receiver.sessionId, await takeFrom(receiver, 1)]);
      await receiver.close();
    }
    assert.deepEqual(visited, [["urgent", ["high"]], ["patient", ["low"]]]);
  });

  test("a subscription has its own, and changes by the administration client keep it", async () => {
    const { admin, broker, client } = context;
    const topic = await createTopic(admin, { plain: {} });
    const path = ["topics", topic, "subscriptions", "ranked"];
    await call(broker, "PUT", path, { order: order("strict") });
    const before = await call(broker, "GET", path);
    const shown = await admin.getSubscription(topic, "ranked");
    await admin.updateSubscription({ ...shown, maxDeliveryCount: 7 });
    const after = await call(broker, "GET", path);
    assert.equal(after.maxDeliveryCount, 7);
    assert.deepEqual(after.order, before.order);
    await post(client, topic, ...ofClass("low", "l1"), ...ofClass("high", "h1"));
    assert.deepEqual(await takeFrom(client.createReceiver(topic, "ranked"), 2), ["h1", "l1"]);
    assert.deepEqual(await takeFrom(client.createReceiver(topic, "plain"), 2), ["l1", "h1"]);
  });
});

describe("a greedy receiver", () => {
  test("requests a hundred messages and repeatedly gets as many as it may hold", async () => {
    const { client } = context;
    const queue = await strict();
    await post(client, queue, ...lows(40));
    const receiver = client.createReceiver(queue);
    const taken = [];
    while (taken.length < 40) {
      const messages = await receiver.receiveMessages(100, { maxWaitTimeInMs: 30_000 });
      assert.ok(messages.length >= 1 && messages.length <= OUTSTANDING, `got ${messages.length}`);
      taken.push(...bodies(messages));
      for (const message of messages) await receiver.completeMessage(message);
    }
    assert.deepEqual(taken, bodies(lows(40)));
  });

  test("at its limit gets no more, and then the most urgent", async () => {
    const { client } = context;
    const queue = await strict();
    await post(client, queue, ...lows(40));
    const receiver = client.createReceiver(queue);
    const held = await receive(receiver, OUTSTANDING);
    assert.deepEqual(await receiver.receiveMessages(100, { maxWaitTimeInMs: 1000 }), []);
    await post(client, queue, ...ofClass("high", "urgent"));
    await receiver.completeMessage(held[0]);
    assert.equal((await receiveOne(receiver)).body, "urgent");
  });

  test("with a hundred concurrent calls starts the most urgent message as soon as one call ends", async () => {
    const { client } = context;
    const queue = await strict();
    await post(client, queue, ...lows(40));
    const started = [];
    const ends = [];
    const errors = [];
    const receiver = client.createReceiver(queue);
    const processMessage = (message) => {
      started.push(message.body);
      return new Promise((resolve) => ends.push(resolve));
    };
    const pump = receiver.subscribe({ processMessage, processError: async (event) => void errors.push(event) }, { maxConcurrentCalls: 100 });
    await until(() => started.length === OUTSTANDING, "as many calls as the bound allows");
    await sleep(1000);
    assert.equal(started.length, OUTSTANDING, "more messages were delivered than the limit");
    await post(client, queue, ...ofClass("high", "urgent"));
    ends.shift()();
    await until(() => started.length > OUTSTANDING, "the next call");
    assert.equal(started[OUTSTANDING], "urgent");
    const ending = setInterval(() => ends.splice(0).forEach((end) => end()), 10);
    await until(() => started.length === 41, "everything else");
    await until(() => ends.length === 0, "all calls");
    await pump.close();
    clearInterval(ending);
    await receiver.close();
    assert.deepEqual(errors, []);
  });
});

describe("a limit per second", () => {
  test("of one class does not block the others", async () => {
    const { client, create } = context;
    const queue = await create({ order: order("strict", { high: { rate: "0.01/s burst 1" } }) });
    await post(client, queue, ...ofClass("high", "h1", "h2"), ...ofClass("low", "l1", "l2"));
    const receiver = client.createReceiver(queue);
    assert.deepEqual(await takeFrom(receiver, 3), ["h1", "l1", "l2"]);
    assert.deepEqual(bodies(await receiver.peekMessages(10)), ["h2"]);
  });

  test("of sends is a typed error, and the SDK retries", async () => {
    const { broker, create } = context;
    const queue = await create({ order: order("strict", {}, { sendRate: "1/s burst 1" }) });
    const hasty = new ServiceBusClient(broker.connectionString, { retryOptions: { maxRetries: 0 } });
    const patient = new ServiceBusClient(broker.connectionString, { retryOptions: { maxRetries: 20, retryDelayInMs: 300 } });
    const sender = hasty.createSender(queue);
    // Even a slow machine needs less than a second for each of these sends.
    const results = await Promise.allSettled([...Array(20).keys()].map((number) => sender.sendMessages({ body: `hasty ${number}` })));
    const refused = results.filter((result) => result.status === "rejected");
    assert.ok(refused.length > 0, "at least one send must exceed the quota");
    assert.ok(refused.every((result) => result.reason.code === "ServiceBusy"), `${refused[0].reason}`);
    const retrying = patient.createSender(queue);
    for (let number = 0; number < 3; number++) await retrying.sendMessages({ body: `patient ${number}` });
    const taken = await take(patient, queue, 20 - refused.length + 3);
    assert.deepEqual(taken.slice(-3), ["patient 0", "patient 1", "patient 2"]);
    await hasty.close();
    await patient.close();
  });
});
