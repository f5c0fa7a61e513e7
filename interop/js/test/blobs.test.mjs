// The stock checkpoint store of JavaScript and the blob SDK below it: claims, checkpoints, stale ETags, a restart,
// rejections.
import assert from "node:assert/strict";
import { Readable } from "node:stream";
import { after, before, test } from "node:test";
import { BlobCheckpointStore } from "@azure/eventhubs-checkpointstore-blob";
import { BlobServiceClient, StorageRetryPolicyType } from "@azure/storage-blob";
import { Broker, freeFixedPort } from "../broker.mjs";

const HASTY = { retryOptions: { maxTries: 1, retryPolicyType: StorageRetryPolicyType.FIXED } };
const PLACE = ["LocalHost", "Readings", "$Default"];
const HUB = { fullyQualifiedNamespace: PLACE[0], eventHubName: PLACE[1], consumerGroup: PLACE[2] };

let broker;
before(async () => {
  broker = await Broker.start({ blobPort: `127.0.0.1:${await freeFixedPort()}` });
});
after(() => broker.stop());

const service = (text = broker.storageConnectionString) => BlobServiceClient.fromConnectionString(text, HASTY);

let count = 0;
async function newContainer() {
  count += 1;
  const container = service().getContainerClient(`container-${count}`);
  await container.create();
  return container;
}

const claim = (partitionId, ownerId, rest = {}) => ({ ...HUB, partitionId, ownerId, ...rest });
const owners = async (store) => (await store.listOwnership(...PLACE)).map((found) => [found.partitionId, found.ownerId]);

test("a claim with a stale ETag fails", async () => {
  const store = new BlobCheckpointStore(await newContainer());
  const [first] = await store.claimOwnership([claim("0", "anna")]);
  const etag = first.etag;
  const [renewed] = await store.claimOwnership([claim("0", "anna", { etag })]);
  assert.notEqual(renewed.etag, etag);
  assert.deepEqual(await store.claimOwnership([claim("0", "bert", { etag })]), []);
  const [listed] = await store.listOwnership(...PLACE);
  const [stolen] = await store.claimOwnership([claim("0", "bert", { etag: listed.etag })]);
  assert.deepEqual(await owners(store), [["0", "bert"]]);
  await store.claimOwnership([claim("0", "", { etag: stolen.etag })]);
  assert.deepEqual(await owners(store), [["0", ""]]);
});

test("of two claims with the same ETag one succeeds", async () => {
  const store = new BlobCheckpointStore(await newContainer());
  const [{ etag }] = await store.claimOwnership([claim("0", "anna")]);
  const both = ["bert", "cleo"].map((owner) => store.claimOwnership([claim("0", owner, { etag })]));
  const won = (await Promise.all(both)).flat().map((found) => found.ownerId);
  assert.equal(won.length, 1);
  assert.deepEqual(await owners(store), [["0", won[0]]]);
});

test("checkpoints and claims survive a restart", async () => {
  const container = await newContainer();
  const store = new BlobCheckpointStore(container);
  const [{ etag }] = await store.claimOwnership([claim("3", "anna")]);
  for (const sequenceNumber of [7, 8]) {
    await store.updateCheckpoint({ ...HUB, partitionId: "3", offset: String(sequenceNumber), sequenceNumber });
  }
  await broker.kill();
  await broker.start();
  const [checkpoint] = await store.listCheckpoints(...PLACE);
  assert.deepEqual([checkpoint.partitionId, checkpoint.offset, checkpoint.sequenceNumber], ["3", "8", 8]);
  assert.equal((await store.claimOwnership([claim("3", "anna", { etag })])).length, 1, "the ETag must still be valid");
});

test("blobs can have metadata, conditions and unusual names", async () => {
  const container = await newContainer();
  const blob = container.getBlockBlobClient("ns/ä b&<>'+%20?#/0");
  const metadata = { a1: "1", a_1: "2", ab: "x=y; <&> ~", latin: "é" };
  const { etag } = await blob.upload("hello", 5, { metadata, conditions: { ifNoneMatch: "*" } });
  const exists = { statusCode: 409, code: "BlobAlreadyExists" };
  await assert.rejects(blob.upload("hello", 5, { conditions: { ifNoneMatch: "*" } }), exists);
  const properties = await blob.getProperties();
  assert.deepEqual(properties.metadata, metadata);
  assert.equal(properties.etag, etag);
  assert.equal(String(await blob.downloadToBuffer()), "hello");
  await blob.setMetadata({ b: "2" }, { conditions: { ifMatch: etag } });
  const stale = { statusCode: 412, code: "ConditionNotMet" };
  await assert.rejects(blob.setMetadata({}, { conditions: { ifMatch: etag } }), stale);
  const names = [];
  for await (const found of container.listBlobsFlat({ includeMetadata: true })) names.push([found.name, found.metadata]);
  assert.deepEqual(names, [[blob.name, { b: "2" }]]);
  await blob.delete();
  assert.equal(await blob.exists(), false);
});

test("blobs of 4 MiB are uploaded in one piece and as a stream, and can be leased", async () => {
  const container = await newContainer();
  const blob = container.getBlockBlobClient("large");
  const content = Buffer.alloc(4 * 1024 * 1024, "peeklock");
  await blob.uploadData(content);
  assert.ok(content.equals(await blob.downloadToBuffer()));
  await blob.uploadStream(Readable.from([content.subarray(0, 1_000_000), content.subarray(1_000_000)]));
  assert.ok(content.equals(await blob.downloadToBuffer()));
  for (const client of [blob, container]) {
    const lease = client.getBlobLeaseClient();
    const { leaseId } = await lease.acquireLease(15);
    const { leaseStatus, leaseState, leaseDuration } = await client.getProperties();
    assert.deepEqual([leaseStatus, leaseState, leaseDuration], ["locked", "leased", "fixed"]);
    const taken = { statusCode: 409, code: "LeaseAlreadyPresent" };
    await assert.rejects(client.getBlobLeaseClient().acquireLease(-1), taken);
    await assert.rejects(client.delete(), { statusCode: 412, code: "LeaseIdMissing" });
    await lease.renewLease();
    await lease.changeLease("1f812371-a41d-49e6-b123-f4b542e851c5");
    const gone = { statusCode: 412 };
    await assert.rejects(client.setMetadata({}, { conditions: { leaseId } }), gone);
    await client.setMetadata({ a: "b" }, { conditions: { leaseId: lease.leaseId } });
    const { leaseTime } = await lease.breakLease(60);
    assert.ok(leaseTime > 0 && leaseTime <= 15);
    await lease.releaseLease();
    assert.equal((await client.getProperties()).leaseState, "available");
  }
});

test("unsupported, missing and forbidden requests have their status and code", async () => {
  const container = await newContainer();
  const blob = container.getBlockBlobClient("blob");
  await blob.upload("", 0);
  await assert.rejects(blob.createSnapshot(), { statusCode: 501, code: "NotImplemented" });
  await assert.rejects(container.getAppendBlobClient("log").create(), { statusCode: 501, code: "NotImplemented" });
  await assert.rejects(container.create(), { statusCode: 409, code: "ContainerAlreadyExists" });
  const missing = service().getContainerClient("no-such-container");
  await assert.rejects(missing.getProperties(), { statusCode: 404 });
  const wrong = service(broker.storageConnectionString.replace("AccountKey=", "AccountKey=AAAA"));
  const refused = { statusCode: 403, code: "AuthenticationFailed" };
  await assert.rejects(wrong.getContainerClient(container.containerName).getProperties(), { statusCode: 403 });
  await assert.rejects(wrong.getContainerClient("new").create(), refused);
});
