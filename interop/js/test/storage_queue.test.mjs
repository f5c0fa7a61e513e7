// Queue Storage over the broker's own queues, with the official JavaScript SDK.
import assert from "node:assert/strict";
import { after, afterEach, before, describe, test } from "node:test";
import { ServiceBusClient } from "@azure/service-bus";
import {
  AccountSASPermissions,
  AccountSASResourceTypes,
  AccountSASServices,
  generateAccountSASQueryParameters,
  newPipeline,
  QueueClient,
  QueueSASPermissions,
  QueueServiceClient,
  StorageSharedKeyCredential,
} from "@azure/storage-queue";
import { Broker } from "../broker.mjs";
import { CLIENT_OPTIONS, receiveOne, send } from "../steps.mjs";

const ACCOUNT = "devstoreaccount1";
const OPTIONS = { retryOptions: { maxTries: 1 } };
const context = {};
let count = 0;

before(async () => {
  context.broker = await Broker.start({ queuePort: "127.0.0.1:0" });
  context.service = QueueServiceClient.fromConnectionString(context.broker.storageConnectionString, OPTIONS);
});
afterEach(() => context.broker?.clock.reset());
after(() => context.broker?.stop());

async function given(metadata) {
  const queue = context.service.getQueueClient(`storage-${count++}`);
  await queue.create({ metadata });
  return queue;
}

async function take(queue, options = { numberOfMessages: 32 }) {
  return (await queue.receiveMessages(options)).receivedMessageItems;
}

async function refused(call, status, code) {
  await assert.rejects(call, (error) => {
    assert.equal(error.statusCode, status, error.message);
    assert.equal(error.code ?? error.details?.errorCode, code);
    return true;
  });
}

function keyOf() {
  return /AccountKey=([^;]*)/.exec(context.broker.storageConnectionString)[1];
}

function inAnHour() {
  return new Date(Date.now() + 3600_000);
}

describe("storage queues", () => {
  test("are created, listed with metadata page by page, and deleted", async () => {
    const names = [0, 1, 2, 3, 4].map((number) => `many-${number}`);
    for (const name of names) await context.service.createQueue(name, { metadata: { name } });
    const pages = context.service.listQueues({ prefix: "many-", includeMetadata: true }).byPage({ maxPageSize: 2 });
    const found = [];
    for await (const page of pages) found.push((page.queueItems ?? []).map((item) => [item.name, item.metadata.name]));
    assert.deepEqual(found.map((page) => page.length), [2, 2, 1]);
    assert.deepEqual(found.flat(), names.map((name) => [name, name]));
    const first = context.service.getQueueClient(names[0]);
    assert.equal((await first.createIfNotExists({ metadata: { name: names[0] } })).succeeded, false, "it is there");
    await refused(() => first.create({ metadata: { name: "other" } }), 409, "QueueAlreadyExists");
    await first.delete();
    assert.equal(await first.exists(), false);
    assert.equal((await first.deleteIfExists()).succeeded, false);
  });

  test("have metadata and count their messages", async () => {
    const queue = await given({ owner: "anna" });
    await queue.sendMessage("one");
    let shown = await queue.getProperties();
    assert.deepEqual([shown.metadata, shown.approximateMessagesCount], [{ owner: "anna" }, 1]);
    await queue.setMetadata({ size: "3" });
    await queue.clearMessages();
    shown = await queue.getProperties();
    assert.deepEqual([shown.metadata, shown.approximateMessagesCount], [{ size: "3" }, 0]);
  });

  test("put, peek, get, update and delete messages", async () => {
    const queue = await given();
    const sent = await queue.sendMessage("<größer> & 'kleiner'");
    const { peekedMessageItems } = await queue.peekMessages({ numberOfMessages: 5 });
    assert.deepEqual(peekedMessageItems.map((message) => [message.messageText, message.dequeueCount]), [["<größer> & 'kleiner'", 0]]);
    const [message] = await take(queue);
    assert.deepEqual([message.messageId, message.dequeueCount], [sent.messageId, 1]);
    assert.equal(message.expiresOn - message.insertedOn, 7 * 86_400_000);
    assert.deepEqual(await take(queue), []);
    const changed = await queue.updateMessage(message.messageId, message.popReceipt, "new", 0);
    await refused(() => queue.deleteMessage(message.messageId, message.popReceipt), 400, "PopReceiptMismatch");
    const [again] = await take(queue);
    assert.deepEqual([again.messageId, again.messageText, again.dequeueCount], [message.messageId, "new", 2]);
    await refused(() => queue.deleteMessage(message.messageId, changed.popReceipt), 400, "PopReceiptMismatch");
    await queue.deleteMessage(again.messageId, again.popReceipt);
    await refused(() => queue.deleteMessage(again.messageId, again.popReceipt), 404, "MessageNotFound");
  });

  test("hide messages for the requested time", async () => {
    const queue = await given();
    await queue.sendMessage("later", { visibilityTimeout: 60 });
    await queue.sendMessage("now", { messageTimeToLive: -1 });
    assert.deepEqual((await take(queue, { visibilityTimeout: 60 })).map((message) => message.messageText), ["now"]);
    await context.broker.clock.advance(60_000);
    const messages = await take(queue);
    assert.deepEqual(messages.map((message) => [message.messageText, message.dequeueCount]), [["later", 1], ["now", 2]]);
    await refused(() => take(queue, { numberOfMessages: 33 }), 400, "OutOfRangeQueryParameterValue");
  });

  test("accept signatures of the account and of a queue", async () => {
    const queue = await given();
    const credential = new StorageSharedKeyCredential(ACCOUNT, keyOf());
    const signed = new QueueClient(queue.url, credential, OPTIONS);
    const adder = await signed.generateSasUrl({ permissions: QueueSASPermissions.parse("a"), expiresOn: inAnHour() });
    const guest = new QueueClient(adder, undefined, OPTIONS);
    await guest.sendMessage("by a guest");
    await refused(() => take(guest), 403, "AuthorizationPermissionMismatch");
    const signature = generateAccountSASQueryParameters(
      {
        expiresOn: inAnHour(),
        permissions: AccountSASPermissions.parse("rl"),
        resourceTypes: AccountSASResourceTypes.parse("sco").toString(),
        services: AccountSASServices.parse("q").toString(),
      },
      credential,
    ).toString();
    const reader = new QueueServiceClient(`${context.service.url}?${signature}`, newPipeline(undefined, OPTIONS));
    assert.equal((await reader.getQueueClient(queue.name).peekMessages()).peekedMessageItems.length, 1);
    await refused(() => reader.createQueue("never"), 403, "AuthorizationPermissionMismatch");
    const wrong = new QueueClient(queue.url, new StorageSharedKeyCredential(ACCOUNT, btoa("wrong")), OPTIONS);
    await refused(() => wrong.sendMessage("never"), 403, "AuthenticationFailed");
  });

  test("have fixed service properties", async () => {
    const shown = await context.service.getProperties();
    assert.equal(shown.hourMetrics.enabled, false);
    assert.equal((await context.service.getStatistics()).geoReplication.status, "live");
    const change = { ...shown, hourMetrics: { ...shown.hourMetrics, enabled: true, includeAPIs: true } };
    await refused(() => context.service.setProperties(change), 501, "NotImplemented");
    const queue = await given();
    assert.deepEqual((await queue.getAccessPolicy()).signedIdentifiers, []);
  });

  test("are the queues of Service Bus clients", async () => {
    const queue = await given();
    await queue.sendMessage("from rest");
    const client = new ServiceBusClient(context.broker.connectionString, CLIENT_OPTIONS);
    try {
      const receiver = client.createReceiver(queue.name);
      const message = await receiveOne(receiver);
      assert.equal(message.body.toString(), "from rest");
      await receiver.completeMessage(message);
      await receiver.close();
      await send(client, queue.name, "from amqp");
      const [text] = (await take(queue)).map((message) => message.messageText);
      assert.equal(text, '"from amqp"', "this SDK writes text as JSON");
    } finally {
      await client.close();
    }
  });
});
