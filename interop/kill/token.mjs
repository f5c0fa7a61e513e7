/** Returns a lock token as text: the 16 bytes of the delivery tag. The byte order is irrelevant for comparison. */
export function tokenText(tag) {
  return Buffer.from(tag).toString("hex");
}
