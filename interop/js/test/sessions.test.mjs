// Sessions: one receiver at a time, order within a session, state, locks, and many sessions shared by many receivers.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { ServiceBusClient } from "@azure/service-bus";
import { CLIENT_OPTIONS, bodies, receive, receiveDeadLetter, receiveOne, sendInSession, sleep, until, useBroker } from "../steps.mjs";

const context = useBroker();
const WITHOUT_RENEWAL = { maxAutoLockRenewalDurationInMs: 0 };
// The time that the client waits for the next session.
const WAIT_MS = 4000;
// The timeout of each call while there is work. A wait for a session that times out is repeated; any other call must
// end in this time.
const WORK_WAIT_MS = 6000;

async function given(settings, ...sessions) {
  const { client, create } = context;
  const queue = await create({ requiresSession: true, ...settings });
  for (const [session, ...messages] of sessions) await sendInSession(client, queue, session, ...messages);
  return { client, queue };
}

async function impatiently(timeoutInMs, action) {
  const retryOptions = { ...CLIENT_OPTIONS.retryOptions, maxRetries: 0, timeoutInMs };
  const client = new ServiceBusClient(context.broker.connectionString, { retryOptions });
  try {
    return await action(client);
  } finally {
    await client.close();
  }
}

/** Takes a few messages of one session after another, until all are done. */
async function workOnSessions(client, queue, done, count) {
  while (Object.values(done).flat().length < count) {
    const receiver = await client.acceptNextSession(queue).catch((error) => assert.equal(error.code, "ServiceTimeout"));
    if (!receiver) continue;
    for (const message of await receiver.receiveMessages(7, { maxWaitTimeInMs: 500 })) {
      done[receiver.sessionId].push(message.body);
      await receiver.completeMessage(message);
    }
    await receiver.close();
  }
}

describe("accepting", () => {
  test("a named session delivers its own messages in order", async () => {
    const { client, queue } = await given({}, ["red", "r1", "r2"], ["blue", "b1"], ["red", "r3"]);
    const receiver = await client.acceptSession(queue, "red");
    assert.equal(receiver.sessionId, "red");
    const messages = await receive(receiver, 3);
    assert.deepEqual(bodies(messages), ["r1", "r2", "r3"]);
    for (const message of messages) await receiver.completeMessage(message);
    assert.deepEqual(await receiver.receiveMessages(1, { maxWaitTimeInMs: 300 }), []);
  });

  test("session ids are not case-sensitive", async () => {
    const { client, queue } = await given({}, ["Order 7", "first"], ["ORDER 7", "second"]);
    const any = await client.acceptNextSession(queue);
    assert.equal(any.sessionId, "Order 7", "the id is not the one that was sent first");
    await any.close();
    const receiver = await client.acceptSession(queue, "order 7");
    const messages = await receive(receiver, 2);
    assert.deepEqual(messages.map((message) => message.sessionId), ["Order 7", "ORDER 7"]);
    await receiver.close();
  });

  test("a session without messages can be held until messages arrive", async () => {
    const { client, queue } = await given();
    const receiver = await client.acceptSession(queue, "early");
    await sendInSession(client, queue, "late", "not mine");
    await sendInSession(client, queue, "early", "mine");
    assert.equal((await receiveOne(receiver)).body, "mine");
  });

  test("two receivers get two sessions", async () => {
    const { client, queue } = await given({}, ["a", "in a"], ["b", "in b"]);
    const receivers = await Promise.all([client.acceptNextSession(queue), client.acceptNextSession(queue)]);
    const got = {};
    for (const receiver of receivers) got[receiver.sessionId] = (await receiveOne(receiver)).body;
    assert.deepEqual(got, { a: "in a", b: "in b" });
  });

  test("the wait for a session times out", async () => {
    const { queue } = await given();
    await impatiently(WAIT_MS, async (client) => {
      const started = Date.now();
      await assert.rejects(client.acceptNextSession(queue), { code: "ServiceTimeout" });
      assert.ok(Date.now() - started > WAIT_MS - 200);
    });
  });

  test("a waiting receiver gets a session that arrives", async () => {
    const { client, queue } = await given();
    const waiting = client.acceptNextSession(queue);
    await sleep(300);
    await sendInSession(client, queue, "awaited", "here");
    const receiver = await waiting;
    assert.equal(receiver.sessionId, "awaited");
    assert.equal((await receiveOne(receiver)).body, "here");
  });

  test("a held session is rejected for others and free after it is closed", async () => {
    const { client, queue } = await given({}, ["one", "work"]);
    const holder = await client.acceptSession(queue, "one");
    await assert.rejects(client.acceptSession(queue, "one"), { code: "SessionCannotBeLocked" });
    await holder.close();
    const receiver = await client.acceptSession(queue, "one");
    assert.equal((await receiveOne(receiver)).body, "work");
  });

  // SDK quirk: every rejection of a named session is reported as a locked one, with the broker's message.
  const NAMED_REFUSED = { code: "SessionCannotBeLocked" };

  test("a session receiver on a plain queue is rejected, and vice versa", async () => {
    const { client, queue } = await given();
    const plain = context.pool.take();
    await assert.rejects(client.acceptSession(plain, "s"), NAMED_REFUSED);
    await assert.rejects(client.acceptNextSession(plain), { code: "GeneralError" });
    await assert.rejects(client.createReceiver(queue).receiveMessages(1, { maxWaitTimeInMs: 20_000 }), /requires sessions/);
    await assert.rejects(client.createSender(queue).sendMessages({ body: "no session" }), /requires sessions/);
  });

  test("a session id that is too long is rejected", async () => {
    const { client, queue } = await given();
    const tooLong = "x".repeat(129);
    await assert.rejects(client.acceptSession(queue, tooLong), NAMED_REFUSED);
    await assert.rejects(client.createSender(queue).sendMessages({ body: "x", sessionId: tooLong }), /129|128/);
  });
});

describe("state", () => {
  test("survives the receiver and can be cleared", async () => {
    const { client, queue } = await given();
    let receiver = await client.acceptSession(queue, "s");
    assert.ok((await receiver.getSessionState()) == null);
    await receiver.setSessionState({ step: 3 });
    await receiver.close();
    receiver = await client.acceptSession(queue, "s");
    assert.deepEqual(await receiver.getSessionState(), { step: 3 });
    await receiver.setSessionState(null);
    assert.ok((await receiver.getSessionState()) == null);
  });
});

describe("order", () => {
  test("is kept in every session while receivers compete", async () => {
    const sessions = ["a", "b", "c", "d", "e"];
    const numbers = [...Array(20).keys()];
    const { queue } = await given({}, ...sessions.map((session) => [session, ...numbers]));
    const done = Object.fromEntries(sessions.map((session) => [session, []]));
    const count = sessions.length * numbers.length;
    await impatiently(WORK_WAIT_MS, (client) => Promise.all([1, 2, 3].map(() => workOnSessions(client, queue, done, count))));
    for (const session of sessions) assert.deepEqual(done[session], numbers, session);
  });

  test("an abandoned message is redelivered before later ones", async () => {
    const { client, queue } = await given({}, ["s", "first", "second"]);
    const receiver = await client.acceptSession(queue, "s");
    await receiver.abandonMessage(await receiveOne(receiver), { attempt: "one" });
    const messages = await receive(receiver, 2);
    assert.deepEqual(bodies(messages), ["first", "second"]);
    assert.equal(messages[0].deliveryCount, 1);
    assert.equal(messages[0].applicationProperties.attempt, "one");
  });
});

describe("deferred and dead-lettered messages", () => {
  for (const settlement of ["completeMessage", "abandonMessage", "deferMessage", "deadLetterMessage"]) {
    test(`a deferred message is settled in its session: ${settlement}`, async () => {
      const { client, queue } = await given({}, ["s", "later", "now"]);
      const receiver = await client.acceptSession(queue, "s");
      const [later, now] = await receive(receiver, 2);
      await receiver.deferMessage(later);
      await receiver.completeMessage(now);
      const [deferred] = await receiver.receiveDeferredMessages(later.sequenceNumber);
      assert.equal(deferred.body, "later");
      await receiver[settlement](deferred);
      if (settlement === "abandonMessage" || settlement === "deferMessage") {
        const [again] = await receiver.receiveDeferredMessages(later.sequenceNumber);
        await receiver.completeMessage(again);
      }
      assert.deepEqual(bodies(await receiver.peekMessages(10)), []);
      if (settlement === "deadLetterMessage") assert.equal((await receiveDeadLetter(client, queue)).body, "later");
    });
  }

  test("a removed message in a held session has lost its lock", async () => {
    const { client, queue } = await given({}, ["s", "later"]);
    const receiver = await client.acceptSession(queue, "s");
    const message = await receiveOne(receiver);
    await receiver.deferMessage(message);
    const [deferred] = await receiver.receiveDeferredMessages(message.sequenceNumber);
    await receiver.completeMessage(deferred);
    await assert.rejects(receiver.completeMessage(deferred), { code: "MessageLockLost" });
    await receiver.close();
  });

  test("dead letters of a session queue are received without a session", async () => {
    const { client, queue } = await given({}, ["s", "poison", "good"]);
    const receiver = await client.acceptSession(queue, "s");
    await receiver.deadLetterMessage(await receiveOne(receiver), { deadLetterReason: "why" });
    assert.equal((await receiveOne(receiver)).body, "good");
    const dead = await receiveDeadLetter(client, queue);
    assert.deepEqual([dead.body, dead.sessionId, dead.deadLetterReason], ["poison", "s", "why"]);
  });

  test("peek returns messages of one session only", async () => {
    const { client, queue } = await given({}, ["a", "a1", "a2"], ["b", "b1"]);
    const receiver = await client.acceptSession(queue, "a");
    assert.deepEqual(bodies(await receiver.peekMessages(10)), ["a1", "a2"]);
  });
});

describe("the lock on a session", () => {
  test("is kept by renewals", async () => {
    const { client, queue } = await given({ lockDuration: "60s" }, ["s", "work"]);
    const { clock } = context.broker;
    const receiver = await client.acceptSession(queue, "s", WITHOUT_RENEWAL);
    const message = await receiveOne(receiver);
    const first = receiver.sessionLockedUntilUtc;
    await clock.advance(30_000);
    assert.ok((await receiver.renewSessionLock()) > first);
    assert.ok(receiver.sessionLockedUntilUtc > first);
    await clock.passBy(first);
    await receiver.completeMessage(message);
    assert.deepEqual(await receiver.peekMessages(1), []);
  });

  test("is kept by the SDK while a handler works", async () => {
    const { client, queue } = await given({ lockDuration: "5000ms" }, ["s", "long work"]);
    const receiver = await client.acceptSession(queue, "s");
    const message = await receiveOne(receiver);
    const first = receiver.sessionLockedUntilUtc;
    await until(() => receiver.sessionLockedUntilUtc > first, "a renewal");
    await receiver.completeMessage(message);
    assert.deepEqual(await receiver.peekMessages(1), []);
  });

  test("is reported as lost on renewal, on state, on settlement", async () => {
    const { client, queue } = await given({ lockDuration: "60s" }, ["s", "slow work"]);
    const receiver = await client.acceptSession(queue, "s", WITHOUT_RENEWAL);
    const late = await receiveOne(receiver);
    await context.broker.clock.passBy(receiver.sessionLockedUntilUtc);
    const lost = { code: "SessionLockLost" };
    await assert.rejects(receiver.renewSessionLock(), lost);
    await assert.rejects(receiver.getSessionState(), lost);
    // The link stays attached for another second, and rejects the settlement.
    await assert.rejects(receiver.completeMessage(late), lost);
    const next = await client.acceptNextSession(queue);
    const again = await receiveOne(next);
    assert.deepEqual([again.body, again.deliveryCount], ["slow work", 1]);
  });
});
