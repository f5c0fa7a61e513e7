// Reads all partitions. After each kill it continues after the last event that it received, or after its checkpoint,
// which the stock checkpoint store keeps in the broker's blobs. Arguments: port, folder of logs, party, seed,
// connection string of the store.
import { createRequire } from "node:module";
import { Dialler, obey } from "../dial.mjs";
import { StepLog } from "../log.mjs";
import { Random } from "../random.mjs";
import { HUB, note, partitions, sourceAfter } from "./events.mjs";

const require = createRequire(new URL("../../js/package.json", import.meta.url));
const { BlobCheckpointStore } = require("@azure/eventhubs-checkpointstore-blob");
const { ContainerClient, StorageRetryPolicyType } = require("@azure/storage-blob");

const CREDIT = 50;
const CHECKPOINT_EVERY = 20;
const FROM_CHECKPOINT_ONE_IN = 3;
const FINISHED_EVERY_MS = 50;
// The store does not retry after a kill, because the next checkpoint is the next attempt.
const HASTY = { retryOptions: { maxTries: 1, retryPolicyType: StorageRetryPolicyType.FIXED } };

const [port, folder, party, seed, storage] = process.argv.slice(2);
const log = new StepLog(folder, party);
const random = new Random(Number(seed));
// Each reader has its own checkpoints.
const place = { fullyQualifiedNamespace: "localhost", eventHubName: HUB, consumerGroup: party };
const container = new ContainerClient(storage, "checkpoints", HASTY);
const store = new BlobCheckpointStore(container);
/** By partition: the position, and whether a checkpoint is in progress. */
const cursors = partitions().map((partition) => ({ partition, last: undefined, seen: 0, noting: false }));
let readingNumber = 0;

const dialler = new Dialler(Number(port), log, async (connection) => {
  const wantsCheckpoints = random.next() * FROM_CHECKPOINT_ONE_IN < 1;
  const found = wantsCheckpoints ? await findCheckpoints() : undefined;
  if (!connection.alive) return;
  for (const cursor of cursors) read(connection, cursor, found ? found.get(cursor.partition) : cursor.last);
});

function read(connection, cursor, after) {
  const reading = `${party}/${readingNumber++}`;
  const { partition } = cursor;
  log.write("reading", { reading, partition, after: after?.sequence ?? null });
  const receiver = connection.open_receiver({ source: sourceAfter(partition, after?.offset), credit_window: CREDIT });
  receiver.on("message", ({ message }) => {
    cursor.last = note(log, reading, partition, message);
    cursor.seen += 1;
    if (cursor.seen % CHECKPOINT_EVERY === 0) noteCheckpoint(cursor, cursor.last);
  });
}

/** Sets one checkpoint at a time for each partition: the order of two concurrent ones would be unknown. */
async function noteCheckpoint(cursor, { sequence, offset }) {
  if (cursor.noting) return;
  cursor.noting = true;
  const { partition } = cursor;
  // A reader that went back to its checkpoint reads some events again, and has set checkpoints for them before.
  const isNew = sequence > (cursor.noted ?? -1);
  try {
    if (!isNew) return;
    if (cursor.noted === undefined) await container.createIfNotExists();
    log.write("checkpoint", { partition, sequence });
    cursor.noted = sequence;
    await store.updateCheckpoint({ ...place, partitionId: String(partition), sequenceNumber: sequence, offset });
    log.write("checkpointed", { partition, sequence });
  } catch (error) {
    if (error.statusCode) log.write("trouble", { event: "checkpoint", what: `${error.statusCode} ${error.code}` });
  } finally {
    cursor.noting = false;
  }
}

/** Returns the checkpoints by partition; nothing if the store cannot be reached. */
async function findCheckpoints() {
  const asked = Date.now();
  try {
    const { fullyQualifiedNamespace, eventHubName, consumerGroup } = place;
    const list = await store.listCheckpoints(fullyQualifiedNamespace, eventHubName, consumerGroup);
    const found = new Map(list.map((c) => [Number(c.partitionId), { sequence: c.sequenceNumber, offset: String(c.offset) }]));
    for (const { partition } of cursors) log.write("checkpoint found", { partition, sequence: found.get(partition)?.sequence ?? null, asked });
    return found;
  } catch (error) {
    const isNothingNotedYet = error.code === "ContainerNotFound";
    if (error.statusCode && !isNothingNotedYet) log.write("trouble", { event: "checkpoints", what: `${error.statusCode} ${error.code}` });
    return undefined;
  }
}

obey({
  /** Called when all events are published. The partitions end at `ends`. */
  finish: (ends) => {
    setInterval(() => {
      if (cursors.some(({ partition, last }) => (last?.sequence ?? -1) + 1 < ends[partition])) return;
      dialler.stop();
      process.exit(0);
    }, FINISHED_EVERY_MS);
  },
});
