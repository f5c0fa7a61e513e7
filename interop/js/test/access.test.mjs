// Authorization: keys, rights, expired tokens, unknown entities.
import assert from "node:assert/strict";
import { createHmac } from "node:crypto";
import { test } from "node:test";
import { ServiceBusClient } from "@azure/service-bus";
import { KEY, KEY_NAME } from "../broker.mjs";
import { LISTEN_KEY, SEND_KEY, receiveOne, send, useBroker } from "../steps.mjs";

const context = useBroker();
// The SDK retries a rejection; one try is enough here.
const HASTY = { retryOptions: { maxRetries: 0, retryDelayInMs: 10, timeoutInMs: 20_000 } };

async function withClient(connectionString, action) {
  const client = new ServiceBusClient(connectionString, HASTY);
  try {
    return await action(client);
  } finally {
    await client.close();
  }
}

const tryToSend = (connectionString, queue) => withClient(connectionString, (client) => send(client, queue, "may I?"));
const tryToReceive = (connectionString, queue) =>
  withClient(connectionString, (client) => client.createReceiver(queue).receiveMessages(1, { maxWaitTimeInMs: 20_000 }));
const REFUSED = { code: "UnauthorizedAccess" };
const REASON = { ...REFUSED, message: /the signature does not fit/ };

for (const [name, attempt] of Object.entries({ send: tryToSend, receive: tryToReceive })) {
  test(`a wrong key cannot ${name}`, async () => {
    const { broker, pool } = context;
    await assert.rejects(attempt(broker.connectionStringOf(KEY_NAME, "not the key"), pool.take()), REASON);
  });

  test(`an unknown key name cannot ${name}`, async () => {
    const { broker, pool } = context;
    await assert.rejects(attempt(broker.connectionStringOf("nobody", KEY), pool.take()), REFUSED);
  });

  test(`an unknown queue is not found: ${name}`, async () => {
    const { broker } = context;
    const missing = { code: "MessagingEntityNotFound", message: /'sb:\/\/.*\/no-such-queue' could not be found\. Create it with/ };
    await assert.rejects(attempt(broker.connectionString, "no-such-queue"), missing);
  });
}

test("a key with the listen right cannot send", async () => {
  const { broker, pool } = context;
  await assert.rejects(tryToSend(broker.connectionStringOf(...LISTEN_KEY), pool.take()), REFUSED);
});

test("a key with the send right cannot receive", async () => {
  const { broker, pool } = context;
  await assert.rejects(tryToReceive(broker.connectionStringOf(...SEND_KEY), pool.take()), REFUSED);
});

test("a key with the send right cannot peek through management", async () => {
  const { broker, pool } = context;
  const peek = (client) => client.createReceiver(pool.take()).peekMessages(1);
  await assert.rejects(withClient(broker.connectionStringOf(...SEND_KEY), peek), REFUSED);
});

test("each right is sufficient for its operations", async () => {
  const { broker, pool } = context;
  const queue = pool.take();
  await tryToSend(broker.connectionStringOf(...SEND_KEY), queue);
  await withClient(broker.connectionStringOf(...LISTEN_KEY), async (client) => {
    const receiver = client.createReceiver(queue);
    await receiver.completeMessage(await receiveOne(receiver));
  });
});

function withSignature(broker, queue, expiry) {
  const resource = encodeURIComponent(`sb://${broker.address}/${queue}`);
  const proof = encodeURIComponent(createHmac("sha256", KEY).update(`${resource}\n${expiry}`).digest("base64"));
  const token = `SharedAccessSignature sr=${resource}&sig=${proof}&se=${expiry}&skn=${KEY_NAME}`;
  return `Endpoint=sb://${broker.address};SharedAccessSignature=${token};UseDevelopmentEmulator=true;`;
}

// With a signature this SDK connects without SASL, so these two tests also cover a connection without SASL.
test("a signature is accepted", async () => {
  const { broker, pool } = context;
  const queue = pool.take();
  const connectionString = withSignature(broker, queue, Math.floor(Date.now() / 1000) + 600);
  await tryToSend(connectionString, queue);
  assert.equal((await tryToReceive(connectionString, queue)).length, 1);
});

test("an expired signature is rejected", async () => {
  const { broker, pool } = context;
  const queue = pool.take();
  await assert.rejects(tryToSend(withSignature(broker, queue, Math.floor(Date.now() / 1000) - 60), queue), REFUSED);
});
