// Event hubs for the scenarios, created with the JSON API and read in the background.
import assert from "node:assert/strict";
import { EventHubConsumerClient, EventHubProducerClient, earliestEventPosition } from "@azure/event-hubs";
import { call } from "./api.mjs";
import { CLIENT_OPTIONS, until } from "./steps.mjs";

export const DEFAULT_GROUP = "$Default";

let madeCount = 0;

/** Creates a hub and returns its name. */
export async function createHub(broker, partitionCount = 1, settings = {}) {
  const name = `hub-${madeCount++}`;
  await call(broker, "PUT", ["hubs", name], { partitionCount, ...settings });
  return name;
}

export function producerOf(broker, hub, options = {}) {
  return new EventHubProducerClient(broker.connectionString, hub, { ...CLIENT_OPTIONS, ...options });
}

export async function publish(producer, bodies, options) {
  await producer.sendBatch(
    bodies.map((body) => ({ body })),
    options,
  );
}

/** Reads in the background. `events` has the received events, `errors` the errors, `ends` the reasons of ends by partition. */
export class Reader {
  events = [];
  errors = [];
  ends = [];
  tracked = [];

  constructor(broker, hub, { group = DEFAULT_GROUP, partition, clientOptions = {}, ...options } = {}) {
    this.client = new EventHubConsumerClient(group, broker.connectionString, hub, { ...CLIENT_OPTIONS, ...clientOptions });
    const handlers = {
      processEvents: async (events, context) => {
        this.events.push(...events.map((event) => Object.assign(event, { partitionId: context.partitionId })));
        this.tracked.push(context.lastEnqueuedEventProperties);
      },
      processError: async (error) => void this.errors.push(error),
      processClose: async (reason, context) => void this.ends.push([context.partitionId, reason]),
    };
    const usual = { startPosition: earliestEventPosition, maxBatchSize: 100, maxWaitTimeInSeconds: 1 };
    const where = partition === undefined ? [handlers] : [partition, handlers];
    this.subscription = this.client.subscribe(...where, { ...usual, ...options });
  }

  async receive(count) {
    await until(() => this.errors.length > 0 || this.events.length >= count, `${count} events; ${this.events.length} arrived`);
    assert.deepEqual(this.errors, []);
    return this.events;
  }

  async failure() {
    await until(() => this.errors.length > 0, "an error");
    return this.errors[0];
  }

  async close() {
    await this.subscription.close();
    await this.client.close();
  }
}

export async function reading(broker, hub, options, action) {
  const reader = new Reader(broker, hub, options);
  try {
    return await action(reader);
  } finally {
    await reader.close();
  }
}

export function read(broker, hub, count, options = {}) {
  return reading(broker, hub, options, (reader) => reader.receive(count));
}

/** Returns the error of a reader that is rejected. */
export function refusal(broker, hub, options = {}) {
  const clientOptions = { retryOptions: { maxRetries: 0, timeoutInMs: 20_000 } };
  return reading(broker, hub, { clientOptions, ...options }, async (reader) => {
    const error = await reader.failure();
    assert.deepEqual(reader.events, []);
    return error;
  });
}

export const numbers = (events) => events.map((event) => event.sequenceNumber);
