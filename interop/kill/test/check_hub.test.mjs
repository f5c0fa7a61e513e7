// Tests of the checker of the hub with logs that violate each guarantee: it must report every violation, and none for a
// correct log.
import assert from "node:assert/strict";
import { test } from "node:test";
import { checkHub } from "../hub/check.mjs";

/** A log that is written step by step. Steps are in partition 0 by default. */
class Story {
  steps = [];
  now = 1_000_000;
  sendCount = 0;
  readingCount = 0;

  step(party, step, details) {
    this.steps.push({ party, at: this.now, step, ...details });
    this.now += 10;
    return this;
  }

  publishing(...ids) {
    this.sendCount += 1;
    return this.step("publisher0", "publish", { send: `s${this.sendCount}`, partition: 0, ids });
  }

  published(...ids) {
    return this.publishing(...ids).step("publisher0", "published", { send: `s${this.sendCount}` });
  }

  /** Adds one pass, which starts after `after` and gets these ids at the numbers that follow. */
  reads(party, after, ...ids) {
    this.begins(party, after);
    ids.forEach((id, place) => this.gets(party, (after ?? -1) + 1 + place, id));
    return this;
  }

  begins(party, after) {
    this.readingCount += 1;
    return this.step(party, "reading", { reading: `r${this.readingCount}`, partition: 0, after });
  }

  gets(party, sequence, id, details = {}) {
    const usual = { reading: `r${this.readingCount}`, partition: 0, sequence, offset: String(sequence), enqueued: 500 + sequence, id, intact: true };
    return this.step(party, "event", { ...usual, ...details });
  }

  replays(...ids) {
    return this.reads("replayer0", null, ...ids).ends(ids.length);
  }

  ends(next) {
    return this.step("replayer0", "replayed", { partition: 0, next });
  }

  noting(sequence) {
    return this.step("reader0", "checkpoint", { partition: 0, sequence });
  }

  notes(sequence) {
    return this.noting(sequence).step("reader0", "checkpointed", { partition: 0, sequence });
  }

  finds(sequence) {
    const asked = this.now;
    this.now += 10;
    return this.step("reader0", "checkpoint found", { partition: 0, sequence, asked });
  }

  kinds() {
    return checkHub(this.steps).violations.map((violation) => violation.kind);
  }
}

const story = () => new Story();

test("a correct run has no violations", () => {
  const honest = story().published("p-0").published("p-1", "p-2").publishing("p-3");
  honest.reads("reader0", null, "p-0", "p-1").notes(1).noting(2).finds(1).reads("reader0", 1, "p-2").finds(2);
  honest.published("p-4").reads("reader0", 2, "p-4").replays("p-0", "p-1", "p-2", "p-4");
  assert.deepEqual(honest.kinds(), []);
  const summary = { published: 5, confirmed: 4, stored: 4, resumed: 2, checkpoints: 1, found: 2, violations: 0 };
  assert.deepEqual(checkHub(honest.steps).summary, summary);
});

test("an event of a send without an answer may be stored or not", () => {
  assert.deepEqual(story().publishing("p-0").replays("p-0").kinds(), []);
  assert.deepEqual(story().publishing("p-0").replays().kinds(), []);
});

test("a confirmed event that is missing at the end is lost", () => {
  assert.deepEqual(story().published("p-0").published("p-1").replays("p-0").kinds(), ["event lost"]);
});

test("a partition that was not replayed proves nothing", () => {
  assert.deepEqual(story().published("p-0").kinds(), ["not replayed", "event lost"]);
});

test("an event at two places was stored twice", () => {
  assert.deepEqual(story().published("p-0").replays("p-0", "p-0").kinds(), ["event stored twice"]);
});

test("a sequence number with another event after a kill was reused", () => {
  const again = story().publishing("p-0").reads("reader0", null, "p-0").published("p-1").replays("p-1");
  assert.deepEqual(again.kinds(), ["sequence number used again"]);
});

test("an event whose offset or time changes counts as another one", () => {
  const moved = story().published("p-0").begins("reader0", null).gets("reader0", 0, "p-0", { offset: "7" }).replays("p-0");
  assert.deepEqual(moved.kinds(), ["sequence number used again"]);
  const aged = story().published("p-0").begins("reader0", null).gets("reader0", 0, "p-0", { enqueued: 7 }).replays("p-0");
  assert.deepEqual(aged.kinds(), ["sequence number used again"]);
});

test("an omitted number is a gap, also in the last pass", () => {
  const gap = story().published("p-0").published("p-1").begins("replayer0", null).gets("replayer0", 0, "p-0").gets("replayer0", 2, "p-1").ends(3);
  assert.deepEqual(gap.kinds(), ["gap"]);
});

test("a reader that continues gets the next event, not a later one", () => {
  const late = story().published("p-0").published("p-1").published("p-2").reads("reader0", null, "p-0", "p-1", "p-2");
  late.begins("reader0", 0).gets("reader0", 2, "p-2").replays("p-0", "p-1", "p-2");
  assert.deepEqual(late.kinds(), ["gap"]);
});

test("a reader that continues does not get its last event again", () => {
  const again = story().published("p-0").published("p-1").reads("reader0", null, "p-0");
  again.begins("reader0", 0).gets("reader0", 0, "p-0").gets("reader0", 1, "p-1").replays("p-0", "p-1");
  assert.deepEqual(again.kinds(), ["repeat"]);
});

test("an event that was read and is missing at the end was taken back", () => {
  const back = story().published("p-0").publishing("p-1").reads("reader0", null, "p-0", "p-1").replays("p-0");
  assert.deepEqual(back.kinds(), ["taken back"]);
});

test("a reader that never received an event has missed it", () => {
  const missed = story().published("p-0").published("p-1").reads("reader0", null, "p-0").replays("p-0", "p-1");
  assert.deepEqual(missed.kinds(), ["missed"]);
});

test("half of a batch is torn, confirmed or not", () => {
  assert.deepEqual(story().publishing("p-0", "p-1").replays("p-0").kinds(), ["batch torn"]);
  assert.deepEqual(story().publishing("p-0", "p-1").replays("p-1").kinds(), ["batch torn"]);
});

test("a batch with another event in its middle is torn", () => {
  const torn = story().published("p-0", "p-1");
  torn.step("publisher1", "publish", { send: "other", partition: 0, ids: ["q-0"] }).replays("p-0", "q-0", "p-1");
  assert.ok(torn.kinds().includes("batch torn"));
});

test("events of one publisher in another order than its sends are out of order", () => {
  assert.deepEqual(story().publishing("p-0").publishing("p-1").replays("p-1", "p-0").kinds(), ["out of order"]);
});

test("an event that was confirmed before another was sent must precede it", () => {
  const behind = story().step("publisher1", "publish", { send: "other", partition: 0, ids: ["q-0"] }).step("publisher1", "published", { send: "other" });
  behind.published("p-0").replays("p-0", "q-0");
  assert.deepEqual(behind.kinds(), ["out of order"]);
});

test("times that decrease are a violation", () => {
  const falls = story().published("p-0").published("p-1").begins("replayer0", null);
  falls.gets("replayer0", 0, "p-0", { enqueued: 900 }).gets("replayer0", 1, "p-1", { enqueued: 800 }).ends(2);
  assert.deepEqual(falls.kinds(), ["times fall"]);
});

test("events that were never sent, rejected, changed, or sent to another partition are violations", () => {
  assert.deepEqual(story().replays("p-0").kinds(), ["event invented"]);
  const refused = story().publishing("p-0").step("publisher0", "unpublished", { send: "s1" }).replays("p-0");
  assert.deepEqual(refused.kinds(), ["event refused and stored"]);
  const changed = story().published("p-0").begins("replayer0", null).gets("replayer0", 0, "p-0", { intact: false }).ends(1);
  assert.deepEqual(changed.kinds(), ["event changed"]);
  const elsewhere = story().step("publisher0", "publish", { send: "s9", partition: 1, ids: ["p-0"] }).replays("p-0");
  assert.deepEqual(elsewhere.kinds(), ["wrong partition"]);
});

test("a checkpoint before one that was confirmed went back", () => {
  assert.deepEqual(story().notes(10).notes(20).finds(10).kinds(), ["checkpoint went back"]);
  assert.deepEqual(story().notes(10).finds(null).kinds(), ["checkpoint went back"]);
});

test("a checkpoint before one that was found went back, even if that one was not confirmed", () => {
  assert.deepEqual(story().notes(10).noting(20).finds(20).finds(10).kinds(), ["checkpoint went back"]);
});

test("a checkpoint that was never set is invented", () => {
  assert.deepEqual(story().notes(10).finds(11).kinds(), ["checkpoint invented"]);
});
