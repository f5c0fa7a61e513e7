// Rules: created over AMQP by the SDK's rule manager and over HTTP by its administration client, and the messages that
// they select.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { DEAD_LETTER, receiveOne } from "../steps.mjs";
import {
  DEFAULT_RULE,
  activeCount,
  all,
  createFiltered,
  createTopic,
  publish,
  replaceRules,
  take,
  taken,
  useManagedBroker,
} from "../topics.mjs";

const context = useManagedBroker();

/** Returns a rule manager for a new subscription. */
async function managed(settings = {}) {
  const topic = await createTopic(context.admin, { one: settings });
  return { topic, rules: context.client.createRuleManager(topic, "one") };
}

describe("the rule manager", () => {
  test("lists the default rule first, and removes it", async () => {
    const { topic, rules } = await managed();
    assert.deepEqual(await all(rules.listRules()), [{ name: DEFAULT_RULE, filter: { sqlExpression: "1=1" }, action: {} }]);
    await rules.deleteRule(DEFAULT_RULE);
    // SDK quirk: if there is no rule, the list contains one undefined.
    assert.deepEqual((await all(rules.listRules())).filter((rule) => rule), []);
    await publish(context.client, topic, "unseen");
    assert.equal(await activeCount(context.admin, topic, "one"), 0);
  });

  test("creates SQL rules with actions", async () => {
    const { topic, rules } = await managed();
    await rules.createRule("red", { sqlExpression: "color = 'red'" }, { sqlExpression: "SET color = 'blue'" });
    await rules.deleteRule(DEFAULT_RULE);
    const [rule] = await all(rules.listRules());
    assert.deepEqual(rule, {
      name: "red",
      filter: { sqlExpression: "color = 'red'" },
      action: { sqlExpression: "SET color = 'blue'" },
    });
    const of = (color) => ({ body: color, applicationProperties: { color } });
    await publish(context.client, topic, of("red"), of("green"));
    const [got] = await take(context.client, topic, "one", 1);
    assert.equal(got.body, "red");
    assert.deepEqual(got.applicationProperties, { color: "blue", RuleName: "red" });
  });

  test("creates correlation rules with every field", async () => {
    const { topic, rules } = await managed();
    const filter = {
      correlationId: "c",
      messageId: "m",
      to: "t",
      replyTo: "r",
      subject: "s",
      sessionId: "si",
      replyToSessionId: "rs",
      contentType: "x/y",
      applicationProperties: { text: "x", number: 7, yes: true },
    };
    await rules.createRule("every", filter);
    await rules.deleteRule(DEFAULT_RULE);
    const [rule] = await all(rules.listRules());
    assert.deepEqual(rule.filter, filter);
    await publish(context.client, topic, { body: "matches", ...filter }, { body: "almost", ...filter, subject: "S" });
    assert.deepEqual(await taken(context.client, topic, "one", 1), ["matches"]);
  });

  test("creates a correlation rule with one field", async () => {
    const { topic, rules } = await managed();
    await rules.createRule("one", { subject: "s" });
    await rules.deleteRule(DEFAULT_RULE);
    await publish(context.client, topic, { body: "yes", subject: "s" }, { body: "no" });
    assert.deepEqual(await taken(context.client, topic, "one", 1), ["yes"]);
  });

  test("lists more rules than fit into a page", async () => {
    const { rules } = await managed();
    const names = [...Array(130).keys()].map((n) => `r${String(n).padStart(3, "0")}`);
    for (const name of names) await rules.createRule(name, { sqlExpression: `x = '${name}'` });
    const listed = (await all(rules.listRules())).map((rule) => rule.name);
    assert.deepEqual(listed.sort(), [DEFAULT_RULE, ...names].sort());
  });

  test("lists the rules of the administration client, and vice versa", async () => {
    const { topic, rules } = await managed();
    await context.admin.createRule(topic, "one", "by-http", { sqlExpression: "a = 1" });
    await rules.createRule("by-amqp", { subject: "s" });
    const names = (await all(rules.listRules())).map((rule) => rule.name);
    assert.deepEqual(names.sort(), [DEFAULT_RULE, "by-amqp", "by-http"]);
    assert.equal((await context.admin.getRule(topic, "one", "by-amqp")).filter.subject, "s");
  });

  test("gets typed errors", async () => {
    const { rules } = await managed();
    await assert.rejects(rules.createRule("bad", { sqlExpression: "color = " }), /column 9/);
    await assert.rejects(rules.createRule(DEFAULT_RULE, { sqlExpression: "1=1" }), { code: "MessagingEntityAlreadyExists" });
    await assert.rejects(rules.deleteRule("no-such-rule"), /no-such-rule/);
    assert.equal((await all(rules.listRules())).length, 1);
  });
});

describe("filters", () => {
  const sql = {
    "color = 'red'": ["red"],
    "color <> 'red'": ["blue"],
    "color IN ('red', 'green')": ["red"],
    "size > 3 AND color LIKE 'b%'": ["blue"],
    "color IS NULL": ["plain"],
    "EXISTS(size)": ["red", "blue"],
    "sys.Label = 'urgent' OR size = 1": ["red", "plain"],
    "size * 2 = 14": ["blue"],
    "size >= 0.5": ["red", "blue"],
  };
  for (const [sqlExpression, expected] of Object.entries(sql)) {
    test(`select by ${sqlExpression}`, async () => {
      const topic = await createFiltered(context.admin, { only: { sqlExpression } });
      const messages = [
        { body: "red", applicationProperties: { color: "red", size: 1 } },
        { body: "blue", applicationProperties: { color: "blue", size: 7 } },
        { body: "plain", subject: "urgent" },
      ];
      await publish(context.client, topic, ...messages);
      assert.deepEqual(await taken(context.client, topic, "only", expected.length), expected);
    });
  }

  test("can have parameters", async () => {
    const filter = { sqlExpression: "color = @color AND size > @size", sqlParameters: { "@color": "red", "@size": 3 } };
    const topic = await createFiltered(context.admin, { only: filter });
    const of = (size) => ({ body: size, applicationProperties: { color: "red", size } });
    await publish(context.client, topic, of(3), of(4));
    assert.deepEqual(await taken(context.client, topic, "only", 1), [4]);
  });

  test("dead-letter the message if they fail", async () => {
    const topic = await createFiltered(context.admin, { fails: { sqlExpression: "size > 'three'" } });
    await publish(context.client, topic, { body: "m", applicationProperties: { size: 3 } });
    const dead = await receiveOne(context.client.createReceiver(topic, "fails", DEAD_LETTER));
    assert.match(dead.deadLetterErrorDescription, /only/);
  });
});

describe("actions", () => {
  test("change only the copy of their subscription", async () => {
    const { admin, client } = context;
    const topic = await createTopic(admin, { acts: {}, plain: {} });
    const action = { sqlExpression: "SET sys.Label = 'second'; SET size = size + 1; REMOVE color" };
    await replaceRules(admin, topic, "acts", { sqlExpression: "1=1" }, action);
    await publish(client, topic, { body: "m", subject: "first", applicationProperties: { color: "red", size: 3 } });
    const [acted] = await take(client, topic, "acts", 1);
    assert.deepEqual([acted.subject, acted.applicationProperties], ["second", { size: 4, RuleName: "only" }]);
    const [plain] = await take(client, topic, "plain", 1);
    assert.deepEqual([plain.subject, plain.applicationProperties], ["first", { color: "red", size: 3 }]);
  });
});
