// Tests of the checker with logs that violate each guarantee: it must report every violation, and none for a correct
// log.
import assert from "node:assert/strict";
import { test } from "node:test";
import { check } from "../check.mjs";

const LOCK_MS = 5000;

/** A log that is written step by step, with a clock that the test moves. */
class Story {
  steps = [];
  now = 1_000_000;

  later(ms) {
    this.now += ms;
    return this;
  }

  step(party, step, details) {
    this.steps.push({ party, at: this.now, step, ...details });
    this.now += 1;
    return this;
  }

  sent(id) {
    return this.step("sender0", "intent", { id }).step("sender0", "confirmed", { id });
  }

  received(party, id, token, details = {}) {
    const usual = { id, token, sequence: Number(id.replace(/\D/g, "")), until: this.now + LOCK_MS, intact: true };
    return this.step(party, "received", { ...usual, ...details });
  }

  completed(party, id, token) {
    return this.step(party, "complete", { id, token }).step(party, "completed", { id, token });
  }

  kill() {
    return this.step("killer", "kill", {});
  }

  kinds() {
    return check(this.steps, { lockMs: LOCK_MS }).violations.map((violation) => violation.kind);
  }
}

const story = () => new Story();

test("a correct run has no violations", () => {
  const honest = story().sent("m1").sent("m2").sent("m3").sent("m4");
  honest.received("a", "m1", "t1").completed("a", "m1", "t1");
  honest.received("a", "m2", "t2").step("a", "abandon", { id: "m2", token: "t2" }).step("a", "abandoned", { id: "m2", token: "t2" });
  honest.received("b", "m2", "t3").completed("b", "m2", "t3");
  honest.received("a", "m3", "t4").later(LOCK_MS + 100);
  honest.received("b", "m3", "t5").completed("b", "m3", "t5");
  honest.step("auditor0", "found", { id: "m4", place: "work" });
  honest.step("sender0", "intent", { id: "m5" }).kill();
  assert.deepEqual(honest.kinds(), []);
  const { summary } = check(honest.steps, { lockMs: LOCK_MS });
  assert.deepEqual(summary, { kills: 1, sent: 5, confirmed: 4, delivered: 5, completed: 3, redelivered: 2, left: 1, violations: 0 });
});

test("a confirmed message that is never received is lost", () => {
  assert.deepEqual(story().sent("m1").kinds(), ["lost"]);
});

test("a confirmed message that was only abandoned is lost", () => {
  const given = story().sent("m1").received("a", "m1", "t1").step("a", "abandon", { id: "m1", token: "t1" });
  assert.deepEqual(given.kinds(), ["lost"]);
});

test("a confirmed message whose only completion was rejected is lost", () => {
  const refused = story().sent("m1").received("a", "m1", "t1").step("a", "complete", { id: "m1", token: "t1" });
  refused.step("a", "refused", { id: "m1", token: "t1", condition: "com.microsoft:message-lock-lost" });
  assert.deepEqual(refused.kinds(), ["lost"]);
});

test("a completion without an answer because of a kill may be durable", () => {
  const open = story().sent("m1").received("a", "m1", "t1").step("a", "complete", { id: "m1", token: "t1" }).kill();
  assert.deepEqual(open.kinds(), []);
});

test("a completed message that is delivered again came back", () => {
  const back = story().sent("m1").received("a", "m1", "t1").completed("a", "m1", "t1").kill().later(100);
  back.received("b", "m1", "t2").completed("b", "m1", "t2");
  assert.deepEqual(back.kinds(), ["came back"]);
});

test("a completed message that the auditor finds came back", () => {
  const back = story().sent("m1").received("a", "m1", "t1").completed("a", "m1", "t1");
  assert.deepEqual(back.step("auditor0", "found", { id: "m1" }).kinds(), ["came back"]);
});

test("a late receipt of an earlier lock is not a redelivery", () => {
  const late = story().sent("m1");
  const until = late.now + LOCK_MS;
  late.later(LOCK_MS + 50).received("b", "m1", "t2").completed("b", "m1", "t2");
  late.later(100).received("a", "m1", "t1", { until });
  assert.deepEqual(late.kinds(), []);
});

test("a message locked by two receivers is held twice", () => {
  const twice = story().sent("m1").received("a", "m1", "t1").later(1000).received("b", "m1", "t2").completed("b", "m1", "t2");
  assert.deepEqual(twice.kinds(), ["held twice"]);
});

test("a message redelivered to the same receiver too soon is held twice", () => {
  const twice = story().sent("m1").received("a", "m1", "t1").later(1000).received("a", "m1", "t2").completed("a", "m1", "t2");
  assert.deepEqual(twice.kinds(), ["held twice"]);
});

test("a kill does not release a lock", () => {
  const freed = story().sent("m1").received("a", "m1", "t1").kill().later(200);
  freed.received("b", "m1", "t2").completed("b", "m1", "t2");
  assert.deepEqual(freed.kinds(), ["held twice"]);
});

test("locks in the same millisecond are ordered by their delivery count", () => {
  const quick = story().sent("m1");
  const until = quick.now + LOCK_MS;
  quick.received("a", "m1", "t2", { until, count: 1 }).completed("a", "m1", "t2");
  quick.received("b", "m1", "t1", { until, count: 0 }).step("b", "abandon", { id: "m1", token: "t1" });
  assert.deepEqual(quick.kinds(), []);
});

test("one id with two sequence numbers was stored twice", () => {
  const stored = story().sent("m1").received("a", "m1", "t1").completed("a", "m1", "t1");
  stored.steps.splice(-1, 1);
  stored.later(LOCK_MS + 100).received("b", "m1", "t2", { sequence: 99 }).completed("b", "m1", "t2");
  assert.deepEqual(stored.kinds(), ["stored twice"]);
});

test("two ids with one sequence number are a violation", () => {
  const shared = story().sent("m1").sent("m2");
  shared.received("a", "m1", "t1").completed("a", "m1", "t1");
  shared.received("a", "m2", "t2", { sequence: 1 }).completed("a", "m2", "t2");
  assert.deepEqual(shared.kinds(), ["sequence number used twice"]);
});

test("a message that was never sent is invented", () => {
  assert.deepEqual(story().received("a", "m1", "t1").completed("a", "m1", "t1").kinds(), ["invented"]);
});

test("a body that differs from the sent one is changed", () => {
  const changed = story().sent("m1").received("a", "m1", "t1", { intact: false }).completed("a", "m1", "t1");
  assert.deepEqual(changed.kinds(), ["changed"]);
});

test("a lock that exceeds the lock duration or has no end is wrong", () => {
  const wrong = story().sent("m1");
  wrong.received("a", "m1", "t1", { until: wrong.now + LOCK_MS + 1000 }).completed("a", "m1", "t1");
  assert.deepEqual(wrong.kinds(), ["wrong lock time"]);
  const none = story().sent("m1").received("a", "m1", "t1", { until: null }).completed("a", "m1", "t1");
  assert.deepEqual(none.kinds(), ["wrong lock time"]);
});

test("a protocol error is a violation", () => {
  assert.deepEqual(story().step("sender0", "trouble", { event: "protocol_error" }).kinds(), ["protocol"]);
});
