// Bodies that can be recomputed from the id alone, so that a receiver can verify them.
import { createHash } from "node:crypto";

const LARGE_ONE_IN = 100;
const LARGE_BYTES = 150_000;
const SMALL_BYTES_MAX = 1024;

export function bodyOf(id) {
  const seed = createHash("sha256").update(id).digest();
  const isLarge = seed.readUInt16BE(0) % LARGE_ONE_IN === 0;
  // Large bodies span several frames and several pages of the journal, where a torn write would be visible.
  return Buffer.alloc(isLarge ? LARGE_BYTES : 1 + (seed.readUInt16BE(2) % SMALL_BYTES_MAX), seed);
}

export function isIntact(id, body) {
  const bytes = body?.content ?? body;
  return Buffer.isBuffer(bytes) && bodyOf(id).equals(bytes);
}
