// The SDK's administration client: every operation for queues, topics, subscriptions, rules and the namespace.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { before, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { KEY, KEY_NAME } from "../broker.mjs";
import { LISTEN_KEY, inMs, receive, send } from "../steps.mjs";
import { DEFAULT_RULE, adminOf, all, createTopic, fresh, publish, useManagedBroker } from "../topics.mjs";

const context = useManagedBroker();
const FOREVER = /^P106751\d\dDT/;

function picked(shown, settings) {
  return Object.fromEntries(Object.keys(settings).map((name) => [name, shown[name]]));
}

const ENTITY = {
  autoDeleteOnIdle: "PT30M",
  defaultMessageTimeToLive: "PT1H30M",
  duplicateDetectionHistoryTimeWindow: "PT5M",
  enableBatchedOperations: false,
  maxSizeInMegabytes: 2048,
  requiresDuplicateDetection: true,
  userMetadata: "ours & <yours>",
  maxMessageSizeInKilobytes: 2048,
};
const RECEIVED = { lockDuration: "PT45S", maxDeliveryCount: 7, requiresSession: true, deadLetteringOnMessageExpiration: true };

describe("queues", () => {
  test("have the defaults of the service", async () => {
    const { admin } = context;
    const name = fresh("queue");
    await admin.createQueue(name);
    const shown = await admin.getQueue(name);
    const expected = {
      name,
      lockDuration: "PT1M",
      maxDeliveryCount: 10,
      requiresSession: false,
      requiresDuplicateDetection: false,
      deadLetteringOnMessageExpiration: false,
      enableBatchedOperations: true,
      enablePartitioning: false,
      enableExpress: false,
      status: "Active",
      availabilityStatus: "Available",
      forwardTo: undefined,
      authorizationRules: undefined,
    };
    assert.deepEqual(picked(shown, expected), expected);
    assert.match(shown.defaultMessageTimeToLive, FOREVER);
    assert.match(shown.autoDeleteOnIdle, FOREVER);
  });

  test("keep every property, and can be changed", async () => {
    const { admin } = context;
    const name = fresh("queue");
    const settings = { ...ENTITY, ...RECEIVED };
    assert.deepEqual(picked(await admin.createQueue(name, settings), settings), settings);
    const queue = await admin.getQueue(name);
    assert.deepEqual(picked(queue, settings), settings);
    const changes = {
      lockDuration: "PT30S",
      maxDeliveryCount: 3,
      defaultMessageTimeToLive: "PT1H",
      userMetadata: "changed",
      status: "SendDisabled",
    };
    await admin.updateQueue({ ...queue, ...changes });
    assert.deepEqual(picked(await admin.getQueue(name), { ...settings, ...changes }), { ...settings, ...changes });
  });

  test("forward", async () => {
    const { admin } = context;
    const [target, source] = [fresh("queue"), fresh("queue")];
    await admin.createQueue(target);
    await admin.createQueue(source, { forwardTo: target, forwardDeadLetteredMessagesTo: target });
    const shown = await admin.getQueue(source);
    assert.match(shown.forwardTo, new RegExp(`^sb://.*/${target}$`));
    assert.match(shown.forwardDeadLetteredMessagesTo, new RegExp(`^sb://.*/${target}$`));
    await admin.updateQueue({ ...shown, maxDeliveryCount: 5 });
    assert.equal((await admin.getQueue(source)).forwardTo, shown.forwardTo);
  });

  test("count their messages", async () => {
    const { admin, client } = context;
    const name = fresh("queue");
    await admin.createQueue(name);
    await send(client, name, "a", "b", "c");
    const receiver = client.createReceiver(name);
    const [first] = await receive(receiver, 3);
    await receiver.deadLetterMessage(first);
    await client.createSender(name).scheduleMessages({ body: "later" }, inMs(600_000));
    const shown = await admin.getQueueRuntimeProperties(name);
    const expected = {
      name,
      activeMessageCount: 2,
      deadLetterMessageCount: 1,
      scheduledMessageCount: 1,
      transferMessageCount: 0,
      transferDeadLetterMessageCount: 0,
      totalMessageCount: 4,
    };
    assert.deepEqual(picked(shown, expected), expected);
    assert.ok(shown.sizeInBytes > 0);
    assert.ok(shown.createdAt instanceof Date && shown.modifiedAt instanceof Date && shown.accessedAt instanceof Date);
  });

  test("report whether they exist", async () => {
    const { admin } = context;
    const name = fresh("team/queue");
    assert.equal(await admin.queueExists(name), false);
    await admin.createQueue(name);
    assert.equal(await admin.queueExists(name), true);
    assert.equal((await admin.getQueue(name)).name, name);
    await admin.deleteQueue(name);
    assert.equal(await admin.queueExists(name), false);
  });
});

describe("topics", () => {
  test("keep every property, and can be changed", async () => {
    const { admin } = context;
    const name = fresh("topic");
    const settings = { ...ENTITY, supportOrdering: true };
    assert.deepEqual(picked(await admin.createTopic(name, settings), settings), settings);
    const changes = { defaultMessageTimeToLive: "PT1H", userMetadata: "changed", status: "SendDisabled" };
    await admin.updateTopic({ ...(await admin.getTopic(name)), ...changes });
    assert.deepEqual(picked(await admin.getTopic(name), { ...settings, ...changes }), { ...settings, ...changes });
  });

  test("count their subscriptions and report whether they exist", async () => {
    const { admin } = context;
    const topic = await createTopic(admin, { one: {}, two: {} });
    const shown = await admin.getTopicRuntimeProperties(topic);
    assert.deepEqual([shown.name, shown.subscriptionCount, shown.scheduledMessageCount], [topic, 2, 0]);
    assert.equal(await admin.topicExists(topic), true);
    await admin.deleteTopic(topic);
    assert.equal(await admin.topicExists(topic), false);
  });
});

describe("subscriptions", () => {
  const SETTINGS = {
    ...RECEIVED,
    autoDeleteOnIdle: "PT30M",
    defaultMessageTimeToLive: "PT1H30M",
    deadLetteringOnFilterEvaluationExceptions: false,
    enableBatchedOperations: false,
    userMetadata: "ours",
  };

  test("keep every property, and can be changed", async () => {
    const { admin } = context;
    const topic = await createTopic(admin, {});
    assert.deepEqual(picked(await admin.createSubscription(topic, "one", SETTINGS), SETTINGS), SETTINGS);
    const shown = await admin.getSubscription(topic, "one");
    assert.deepEqual([shown.topicName, shown.subscriptionName], [topic, "one"]);
    const changes = { lockDuration: "PT30S", maxDeliveryCount: 3, userMetadata: "changed", status: "ReceiveDisabled" };
    await admin.updateSubscription({ ...shown, ...changes });
    const changed = { ...SETTINGS, ...changes };
    assert.deepEqual(picked(await admin.getSubscription(topic, "one"), changed), changed);
  });

  test("can be created with a rule", async () => {
    const { admin } = context;
    const topic = await createTopic(admin, {});
    const defaultRuleOptions = {
      name: "first",
      filter: { sqlExpression: "color = @c", sqlParameters: { "@c": "red" } },
      action: { sqlExpression: "SET seen = TRUE" },
    };
    await admin.createSubscription(topic, "one", { defaultRuleOptions });
    const [rule, ...more] = await all(admin.listRules(topic, "one"));
    assert.deepEqual(more, []);
    assert.deepEqual([rule.name, rule.filter.sqlParameters], ["first", { "@c": "red" }]);
    assert.equal(rule.action.sqlExpression, "SET seen = TRUE");
  });

  test("count their messages and report whether they exist", async () => {
    const { admin, client } = context;
    const topic = await createTopic(admin, { one: {} });
    await publish(client, topic, "a", "b");
    const shown = await admin.getSubscriptionRuntimeProperties(topic, "one");
    assert.deepEqual([shown.activeMessageCount, shown.totalMessageCount, shown.deadLetterMessageCount], [2, 2, 0]);
    assert.equal(await admin.subscriptionExists(topic, "one"), true);
    await admin.deleteSubscription(topic, "one");
    assert.equal(await admin.subscriptionExists(topic, "one"), false);
  });
});

describe("rules", () => {
  test("of every kind keep their values", async () => {
    const { admin } = context;
    const topic = await createTopic(admin, { one: {} });
    const when = new Date("2026-01-02T03:04:05.000Z");
    const sqlParameters = { "@text": "x & <y>", "@number": 2.5, "@yes": true, "@when": when };
    await admin.createRule(topic, "one", "sql", { sqlExpression: "a = @text", sqlParameters });
    const correlation = { subject: "s", contentType: "x/y", applicationProperties: { text: "x", number: 7, yes: true } };
    await admin.createRule(topic, "one", "correlation", correlation, { sqlExpression: "REMOVE a" });
    assert.deepEqual((await admin.getRule(topic, "one", "sql")).filter, { sqlExpression: "a = @text", sqlParameters });
    const rule = await admin.getRule(topic, "one", "correlation");
    assert.deepEqual(picked(rule.filter, correlation), correlation);
    assert.equal(rule.action.sqlExpression, "REMOVE a");
    await admin.updateRule(topic, "one", { ...rule, filter: { sqlExpression: "b = 1" } });
    assert.equal((await admin.getRule(topic, "one", "correlation")).filter.sqlExpression, "b = 1");
    const names = (await all(admin.listRules(topic, "one"))).map((rule) => rule.name);
    assert.deepEqual(names.sort(), [DEFAULT_RULE, "correlation", "sql"]);
    assert.equal(await admin.ruleExists(topic, "one", "sql"), true);
    await admin.deleteRule(topic, "one", "sql");
    assert.equal(await admin.ruleExists(topic, "one", "sql"), false);
  });
});

describe("lists", () => {
  const COUNT = 130;
  const numbered = (letter) => [...Array(COUNT).keys()].map((n) => `${letter}${String(n).padStart(3, "0")}`);
  let topic;

  before(async () => {
    const { admin } = context;
    topic = await createTopic(admin, {});
    for (const name of numbered("")) {
      await admin.createQueue(`listed-q${name}`);
      await admin.createTopic(`listed-t${name}`);
      await admin.createSubscription(topic, `s${name}`);
    }
  });

  test("can be longer than a page", async () => {
    const { admin } = context;
    const ours = (listed) => listed.map(({ name }) => name.split("listed-")[1]).filter((name) => name);
    assert.deepEqual(ours(await all(admin.listQueues())), numbered("q"));
    assert.deepEqual(ours(await all(admin.listQueuesRuntimeProperties())), numbered("q"));
    assert.deepEqual(ours(await all(admin.listTopics())), numbered("t"));
    assert.deepEqual(ours(await all(admin.listTopicsRuntimeProperties())), numbered("t"));
    const subscriptions = await all(admin.listSubscriptions(topic));
    assert.deepEqual(subscriptions.map(({ subscriptionName }) => subscriptionName), numbered("s"));
    assert.equal((await all(admin.listSubscriptionsRuntimeProperties(topic))).length, COUNT);
  });

  test("have pages of any size", async () => {
    const sizes = [];
    for await (const page of context.admin.listSubscriptions(topic).byPage({ maxPageSize: 50 })) sizes.push(page.length);
    assert.deepEqual(sizes, [50, 50, 30]);
  });
});

describe("the namespace", () => {
  test("has properties", async () => {
    const shown = await context.admin.getNamespaceProperties();
    assert.ok(shown.name);
    assert.match(shown.messagingSku, /Standard|Premium/);
    assert.ok(shown.createdAt instanceof Date);
  });
});

describe("errors", () => {
  const rejects = (promise, statusCode, code, message = /./) =>
    assert.rejects(promise, (error) => {
      assert.deepEqual([error.statusCode, error.code], [statusCode, code], error.message);
      assert.match(error.message, message);
      return true;
    });

  test("an entity that exists cannot be created", async () => {
    const { admin } = context;
    const topic = await createTopic(admin, { one: {} });
    const exists = "MessageEntityAlreadyExistsError";
    await rejects(admin.createQueue(topic), 409, exists);
    await rejects(admin.createTopic(topic), 409, exists);
    await rejects(admin.createSubscription(topic, "one"), 409, exists);
    await rejects(admin.createRule(topic, "one", DEFAULT_RULE, { sqlExpression: "1=1" }), 409, exists);
  });

  test("a missing entity is not found", async () => {
    const { admin } = context;
    const topic = await createTopic(admin, { one: {} });
    const missing = "MessageEntityNotFoundError";
    await rejects(admin.getQueue("none"), 404, missing);
    await rejects(admin.getTopic("none"), 404, missing);
    await rejects(admin.getSubscription(topic, "none"), 404, missing);
    await rejects(admin.getRule(topic, "one", "none"), 404, missing);
    await rejects(admin.deleteQueue("none"), 404, missing);
    await rejects(admin.createSubscription("none", "one"), 404, missing);
    const queue = await admin.createQueue(fresh("queue"));
    await admin.deleteQueue(queue.name);
    await rejects(admin.updateQueue(queue), 404, missing);
  });

  test("fixed settings cannot be changed", async () => {
    const { admin } = context;
    const queue = await admin.createQueue(fresh("queue"));
    await rejects(admin.updateQueue({ ...queue, requiresSession: true }), 400, "ServiceError", /requires ?session/i);
  });

  test("a rule that does not parse is rejected with its column", async () => {
    const { admin } = context;
    const topic = await createTopic(admin, { one: {} });
    await rejects(admin.createRule(topic, "one", "bad", { sqlExpression: "color = " }), 400, "ServiceError", /column 9/);
  });

  test("settings without effect are stored and returned", async () => {
    const { admin } = context;
    const queue = await admin.createQueue(fresh("queue"), { enablePartitioning: true, enableExpress: true });
    assert.equal(queue.enablePartitioning, true);
    assert.equal((await admin.updateQueue(queue)).enableExpress, true);
  });

  test("management requires the manage right", async () => {
    const { broker } = context;
    for (const key of [[KEY_NAME, "not the key"], ["nobody", KEY], LISTEN_KEY]) {
      const admin = adminOf(broker, broker.connectionStringOf(...key));
      await rejects(admin.getQueue("any"), 401, "UnauthorizedRequestError");
      await rejects(admin.createQueue("any"), 401, "UnauthorizedRequestError");
    }
  });
});

describe("keys", () => {
  test("are returned with their entity", async () => {
    const { admin } = context;
    const name = fresh("queue");
    const rule = {
      claimType: "SharedAccessKey",
      accessRights: ["Send"],
      keyName: "only-send",
      primaryKey: "first-secret-of-the-rule",
      secondaryKey: "second-secret-of-the-rule",
    };
    await admin.createQueue(name, { authorizationRules: [rule] });
    assert.deepEqual((await admin.getQueue(name)).authorizationRules, [rule]);
  });
});

describe("versions and certificates", () => {
  for (const serviceVersion of ["2017-04", "2021-05"]) {
    test(`version ${serviceVersion} is accepted`, async () => {
      const { broker } = context;
      const admin = adminOf(broker, broker.connectionString, { serviceVersion });
      const name = fresh("queue");
      await admin.createQueue(name);
      assert.equal((await admin.getQueue(name)).name, name);
    });
  }

  test("a certificate from the environment is sufficient", () => {
    const { NODE_EXTRA_CA_CERTS, ...inherited } = process.env;
    const scenario = fileURLToPath(new URL("../admin_scenario.mjs", import.meta.url));
    const run = (environment) =>
      spawnSync(process.execPath, [scenario, context.broker.connectionString], {
        env: { ...inherited, NODE_TEST_CONTEXT: undefined, ...environment },
        encoding: "utf8",
        timeout: 60_000,
      });
    const trusted = run({ NODE_EXTRA_CA_CERTS: context.broker.certificate });
    assert.equal(trusted.status, 0, trusted.stdout + trusted.stderr);
    assert.match(trusted.stdout, /every step passed/);
    const untrusted = run({});
    assert.notEqual(untrusted.status, 0);
    assert.match(untrusted.stderr, /self-signed|unable to verify|certificate/i);
  });
});
