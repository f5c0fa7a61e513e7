// The SDK's message pump as applications use it: concurrent calls, manual settlement, errors, sessions.
import assert from "node:assert/strict";
import { test } from "node:test";
import { deleteQueue } from "../api.mjs";
import { assertEmpty, receiveDeadLetter, receiveOne, send, sendInSession, sleep, until, useBroker } from "../steps.mjs";

const context = useBroker();

test("ten calls run concurrently, and each settles its message", async () => {
  const { client, create } = context;
  const queue = await create({ maxDeliveryCount: 3 });
  const sent = [...Array(60).keys()];
  await send(client, queue, ...sent, "poison");
  const receiver = client.createReceiver(queue);
  const done = [];
  const errors = [];
  let running = 0;
  let most = 0;
  const pump = receiver.subscribe(
    {
      processMessage: async (message) => {
        most = Math.max(most, ++running);
        try {
          await sleep(20);
          if (message.body === "poison") throw new Error("cannot work on this");
          await receiver.completeMessage(message);
          done.push(message.body);
        } catch (error) {
          await receiver.abandonMessage(message, { error: error.message });
          throw error;
        } finally {
          running--;
        }
      },
      processError: async ({ error, errorSource }) => void errors.push([errorSource, error.message]),
    },
    { maxConcurrentCalls: 10, autoCompleteMessages: false },
  );
  await until(() => done.length === sent.length && errors.length === 3, "the work and three failures");
  await pump.close();
  await receiver.close();
  assert.deepEqual(done.sort((a, b) => a - b), sent);
  assert.deepEqual(errors, Array(3).fill(["processMessageCallback", "cannot work on this"]));
  assert.ok(most > 1 && most <= 10, `${most} concurrent calls`);
  const dead = await receiveDeadLetter(client, queue);
  assert.deepEqual([dead.body, dead.deadLetterReason], ["poison", "MaxDeliveryCountExceeded"]);
  assert.equal(dead.applicationProperties.error, "cannot work on this");
  await assertEmpty(client, queue);
});

test("without auto-complete an unsettled message is redelivered", async () => {
  const { client, create } = context;
  const queue = await create();
  await send(client, queue, "forgotten");
  const receiver = client.createReceiver(queue, { maxAutoLockRenewalDurationInMs: 0 });
  const counts = [];
  const pump = receiver.subscribe(
    {
      processMessage: async (message) => {
        counts.push(message.deliveryCount);
        if (counts.length === 3) await receiver.completeMessage(message);
        else await context.broker.clock.passBy(message.lockedUntilUtc);
      },
      processError: async () => {},
    },
    { autoCompleteMessages: false },
  );
  await until(() => counts.length === 3, "three deliveries");
  await pump.close();
  assert.deepEqual(counts, [0, 1, 2]);
  await assertEmpty(client, queue);
});

test("the error handler is called when the queue is deleted", async () => {
  const { broker, client, create } = context;
  const queue = await create();
  const receiver = client.createReceiver(queue);
  const codes = [];
  const done = [];
  const pump = receiver.subscribe({
    processMessage: async (message) => void done.push(message.body),
    processError: async ({ error }) => void codes.push(error.code),
  });
  await send(client, queue, "first");
  await until(() => done.length === 1, "the first message");
  await deleteQueue(broker, queue);
  await until(() => codes.includes("MessagingEntityNotFound"), "the error", 20_000);
  await pump.close();
});

test("a closed pump receives no more, and the remaining messages stay for others", async () => {
  const { client, create } = context;
  const queue = await create();
  const receiver = client.createReceiver(queue);
  const done = [];
  const pump = receiver.subscribe({ processMessage: async (message) => void done.push(message.body), processError: async () => {} });
  await send(client, queue, "before");
  await until(() => done.length === 1, "the first message");
  await pump.close();
  await send(client, queue, "after");
  const other = client.createReceiver(queue, { receiveMode: "receiveAndDelete" });
  const message = await receiveOne(other);
  assert.deepEqual([done, message.body, message.deliveryCount], [["before"], "after", 0]);
});

test("a pump per session receives one session after another, each in order", async () => {
  const { client, create } = context;
  const queue = await create({ requiresSession: true });
  const sessions = ["a", "b", "c", "d"];
  const numbers = [...Array(10).keys()];
  for (const session of sessions) await sendInSession(client, queue, session, ...numbers);
  const done = Object.fromEntries(sessions.map((session) => [session, []]));
  const left = () => sessions.length * numbers.length - Object.values(done).flat().length;
  await Promise.all([pumpSessions(client, queue, done, left), pumpSessions(client, queue, done, left)]);
  for (const session of sessions) assert.deepEqual(done[session], numbers, session);
});

/** Follows the SDK's samples: accept a session, pump until it is idle, close, accept the next. */
async function pumpSessions(client, queue, done, left) {
  while (left() > 0) {
    const receiver = await client.acceptNextSession(queue).catch(() => undefined);
    if (!receiver) continue;
    let last = Date.now();
    let running = 0;
    const pump = receiver.subscribe(
      {
        processMessage: async (message) => {
          running++;
          done[receiver.sessionId].push(message.body);
          // A session is closed only after the broker has confirmed its settlements.
          await receiver.completeMessage(message).finally(() => running--);
          last = Date.now();
        },
        processError: async () => {},
      },
      { autoCompleteMessages: false },
    );
    await until(() => running === 0 && Date.now() - last > 300, "an idle session");
    await pump.close();
    await receiver.close();
  }
}

test("the pump of a session gets an error when the lock is lost", async () => {
  const { client, create } = context;
  const queue = await create({ requiresSession: true });
  await sendInSession(client, queue, "s", "slow");
  const receiver = await client.acceptSession(queue, "s", { maxAutoLockRenewalDurationInMs: 0 });
  const codes = [];
  receiver.subscribe({
    // The broker detaches the receiver of a lost session shortly after the lock expires.
    processMessage: async () => {
      await context.broker.clock.passBy(receiver.sessionLockedUntilUtc.getTime() + 2000);
      await until(() => codes.length > 0, "the error");
    },
    processError: async ({ error }) => void codes.push(error.code),
  });
  await until(() => codes.includes("SessionLockLost"), "the error");
  await receiver.close();
  const next = await client.acceptSession(queue, "s");
  assert.equal((await receiveOne(next)).deliveryCount, 1);
});
