//! The table of all error codes. The page of the documentation is generated from it.

use super::Kind;

/// A code of an [`Error`](crate::Error), with its explanation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Code {
    /// The code, such as `E-CONN-01`.
    pub code: &'static str,
    /// The kind of errors with this code.
    pub kind: Kind,
    /// The event.
    pub what: &'static str,
    /// The usual reason.
    pub why: &'static str,
    /// The remedy.
    pub remedy: &'static str,
}

const fn code(
    code: &'static str,
    kind: Kind,
    what: &'static str,
    why: &'static str,
    remedy: &'static str,
) -> Code {
    Code { code, kind, what, why, remedy }
}

/// All codes, in alphabetical order.
pub const CODES: &[Code] = &[
    code(
        "E-ADMIN-01",
        Kind::Invalid,
        "A setting of an entity is invalid.",
        "It is outside of its limits, or contradicts another one.",
        "Correct the setting that the text names.",
    ),
    code(
        "E-AUTH-01",
        Kind::Unauthorized,
        "The broker rejected the credentials.",
        "The name or secret of the key is wrong, or the key was removed.",
        "Check the key in the connection string; `peeklock key list` shows the keys.",
    ),
    code(
        "E-AUTH-03",
        Kind::Unauthorized,
        "The key lacks a right for the operation.",
        "Sending needs Send, receiving needs Listen, administration needs Manage.",
        "Use a key with the right, or add the right to the key.",
    ),
    code(
        "E-BUSY-01",
        Kind::Busy,
        "The broker does not accept the call now.",
        "The rate of the queue is exceeded, or the broker is overloaded.",
        "The SDK retries by itself. Raise the rate, or send more slowly.",
    ),
    code(
        "E-BUSY-02",
        Kind::Busy,
        "The entity or the disk has reached a limit.",
        "The queue is at its maximum size, or the broker's disk is full.",
        "Receive messages, or raise the limit.",
    ),
    code(
        "E-CONN-01",
        Kind::Connection,
        "The broker cannot be reached.",
        "Nothing listens at the address, or the network does not lead there. The text has the number of attempts and their time.",
        "Start the broker, or check the address.",
    ),
    code(
        "E-CONN-02",
        Kind::Connection,
        "The connection was lost, and the retries are used up.",
        "The broker was stopped, or the network failed.",
        "Call again: the client connects again.",
    ),
    code(
        "E-CONN-03",
        Kind::Closed,
        "The client was closed.",
        "`Client::close` was called.",
        "Connect again.",
    ),
    code(
        "E-CONN-04",
        Kind::Target,
        "The connection string cannot be parsed.",
        "A part is missing or misspelt.",
        "Correct the connection string.",
    ),
    code(
        "E-CONN-05",
        Kind::Connection,
        "The broker did not answer a request in time.",
        "The broker is overloaded, or the connection stalls.",
        "Call again. The operation may have taken effect.",
    ),
    code(
        "E-CONN-06",
        Kind::Busy,
        "The connection has no room for another link.",
        "Too many senders and receivers are open.",
        "Close unused ones, or connect a second client.",
    ),
    code(
        "E-CONN-07",
        Kind::Connection,
        "The broker ended the link, and the retries are used up.",
        "The broker was stopped, or the link was idle.",
        "Call again: the client attaches again.",
    ),
    code(
        "E-CONN-08",
        Kind::Closed,
        "Another receiver took over the link.",
        "A reader with a higher owner level was opened.",
        "Use one exclusive receiver at a time.",
    ),
    code(
        "E-DATA-01",
        Kind::Malformed,
        "The broker sent bytes that cannot be decoded.",
        "The message is not valid AMQP, or the broker is incompatible.",
        "Report it with the text of the error.",
    ),
    code(
        "E-DATA-02",
        Kind::Invalid,
        "The value has no JSON form.",
        "Serialisation failed.",
        "Correct the type of the body.",
    ),
    code(
        "E-DATA-03",
        Kind::NotFound,
        "The message does not exist.",
        "It was settled, cancelled or deleted, or it has expired.",
        "Check the sequence number.",
    ),
    code(
        "E-DATA-04",
        Kind::Malformed,
        "The body of the message does not deserialise.",
        "It is not JSON, or has another form than the type.",
        "Dead-letter the message, or correct the type.",
    ),
    code(
        "E-DATA-05",
        Kind::Invalid,
        "A field of the message is invalid.",
        "The text contains characters that the field does not allow.",
        "Correct the field.",
    ),
    code(
        "E-EMB-01",
        Kind::Embedded,
        "The directory of the embedded broker is in use.",
        "Another process has it open.",
        "Stop that process, choose another directory, or connect to that process with amqp://.",
    ),
    code(
        "E-EMB-02",
        Kind::Embedded,
        "The embedded broker could not be opened, or has failed.",
        "The directory cannot be created or read, or the disk failed.",
        "Correct the reason that the text names, and open the broker again.",
    ),
    code(
        "E-EMB-03",
        Kind::Target,
        "The program has no embedded broker.",
        "It was built without the feature `embedded`.",
        "Add the feature, or connect to a broker with amqp://.",
    ),
    code(
        "E-EMB-04",
        Kind::Embedded,
        "The embedded broker cannot listen at the address.",
        "The address is in use or invalid, or other machines could reach it with the well-known key.",
        "Choose another address, or open the broker with a key of its own.",
    ),
    code(
        "E-EMB-05",
        Kind::Closed,
        "The embedded broker was stopped.",
        "The program has stopped it.",
        "Open it again.",
    ),
    code(
        "E-ENT-01",
        Kind::Exists,
        "The entity exists already.",
        "It was created before, or another entity has its name.",
        "Change it, or choose another name.",
    ),
    code(
        "E-ENT-02",
        Kind::Changed,
        "The entity was changed in the meantime.",
        "Another request changed it after it was read.",
        "Read it again, and repeat the change.",
    ),
    code(
        "E-ENT-04",
        Kind::NotFound,
        "The entity does not exist.",
        "The name is misspelt, or the entity was deleted.",
        "Create it, or check the name.",
    ),
    code(
        "E-ENT-05",
        Kind::WrongEntity,
        "The entity is disabled.",
        "Its status is not active.",
        "Set the status to active.",
    ),
    code(
        "E-ENT-06",
        Kind::WrongEntity,
        "The entity does not support the operation.",
        "It is of another kind, such as a topic where a queue is needed.",
        "Use an entity of the right kind.",
    ),
    code(
        "E-HAND-01",
        Kind::Handler,
        "A handler returned an error.",
        "The text has the error of the handler.",
        "Correct the cause. The retry policy decides about the message.",
    ),
    code(
        "E-HAND-02",
        Kind::Panic,
        "A handler panicked.",
        "The text has the message of the panic.",
        "Correct the handler. The retry policy decides about the message.",
    ),
    code(
        "E-HAND-03",
        Kind::Timeout,
        "A handler exceeded its time.",
        "A TimeoutLayer limits the running time.",
        "Raise the limit, or split the work.",
    ),
    code(
        "E-HAND-04",
        Kind::Malformed,
        "The body of a message does not deserialise.",
        "The sender uses another format than the handler. The message was dead-lettered.",
        "Correct the sender or the type of the handler's argument.",
    ),
    code(
        "E-LOCK-01",
        Kind::LockLost,
        "The lock of a message was lost.",
        "The work took longer than the lock, or the message was settled before.",
        "Renew the lock while the work runs, or raise the lock duration. The message is delivered again.",
    ),
    code(
        "E-LOCK-02",
        Kind::LockLost,
        "The result of a settlement is unknown.",
        "The connection was lost before the answer, and the lock has ended since.",
        "Treat the message as one that may be delivered again.",
    ),
    code(
        "E-LOCK-03",
        Kind::Invalid,
        "The message has no lock.",
        "It was received in mode ReceiveAndDelete, or belongs to another receiver.",
        "Settle only locked messages.",
    ),
    code(
        "E-LOCK-04",
        Kind::Rejected,
        "The broker rejected the settlement.",
        "The text has the reason.",
        "The message stays locked until its lock expires.",
    ),
    code(
        "E-PRIO-02",
        Kind::Invalid,
        "Prefetch was refused for a queue with classes.",
        "Buffered messages of a low class would run before new messages of a high class.",
        "Remove prefetch.",
    ),
    code(
        "E-PROC-01",
        Kind::Closed,
        "The processor has stopped.",
        "It was stopped, or a handler returned a fatal error.",
        "Start a new one.",
    ),
    code(
        "E-PROC-02",
        Kind::Invalid,
        "The handler needs a state that the processor lacks.",
        "It has an argument `State<S>`, and no state of the type S was added.",
        "Add it with `.state(value)`.",
    ),
    code(
        "E-PROC-03",
        Kind::Invalid,
        "A message was settled twice.",
        "The handler has settled it before.",
        "Settle it once.",
    ),
    code(
        "E-PROC-04",
        Kind::NotSettled,
        "A handler returned without settling its message.",
        "Auto-complete is off. The message was abandoned.",
        "Settle the message through the context, or turn on auto_complete.",
    ),
    code(
        "E-PROC-05",
        Kind::Invalid,
        "A batch size of 0 was requested.",
        "A batch has at least one message.",
        "Use 1 or more.",
    ),
    code(
        "E-PROC-06",
        Kind::Invalid,
        "A processor has no handler.",
        "Neither handler nor batch was called.",
        "Add one with `.handler(function)`.",
    ),
    code(
        "E-PROC-07",
        Kind::Invalid,
        "A number in the settings of a processor is out of range.",
        "The text has the limits.",
        "Use a number within the limits.",
    ),
    code(
        "E-PROC-08",
        Kind::Handler,
        "The kill switch has paused the processor.",
        "Too many handlers failed.",
        "Find the reason in the errors before; the processor tries again by itself.",
    ),
    code(
        "E-PROC-09",
        Kind::Handler,
        "A layer of the handler has failed.",
        "Its service is never ready again; the text has its error. The processor stops.",
        "Correct the cause, and start the processor again.",
    ),
    code(
        "E-REJ-01",
        Kind::Invalid,
        "The broker rejected an option of the link.",
        "The text has the reason.",
        "Correct the option.",
    ),
    code(
        "E-REJ-02",
        Kind::Rejected,
        "The entity rejected the message.",
        "A field or the content breaks a rule of the entity.",
        "Change the message or the settings.",
    ),
    code(
        "E-REJ-03",
        Kind::Rejected,
        "The broker refused a request.",
        "The text has the status and the reason.",
        "Follow the reason.",
    ),
    code(
        "E-RETRY-01",
        Kind::Invalid,
        "The retry policy does not fit the queue.",
        "The queue dead-letters messages before the policy has used all attempts.",
        "Use fewer delayed retries, or raise the maximum delivery count of the queue.",
    ),
    code(
        "E-SESS-02",
        Kind::WrongEntity,
        "The queue requires sessions.",
        "The receiver was opened without a session.",
        "Use a session processor, or name a session.",
    ),
    code(
        "E-SESS-03",
        Kind::LockLost,
        "The lock of a session was lost.",
        "It expired, or the connection was lost.",
        "Accept the session again. Unsettled messages are delivered again.",
    ),
    code(
        "E-SESS-04",
        Kind::NoSession,
        "The session is not available.",
        "Another receiver holds it.",
        "Try again later.",
    ),
    code(
        "E-SESS-05",
        Kind::NoSession,
        "No session became available in time.",
        "No unlocked session has messages.",
        "Try again, or wait longer.",
    ),
    code(
        "E-SESS-06",
        Kind::Malformed,
        "The state of a session is not of the expected type.",
        "Another program or version has stored it.",
        "Remove the state, or read it as another type.",
    ),
    code(
        "E-SIZE-01",
        Kind::TooLarge,
        "A message or batch exceeds the limit.",
        "The entity or the broker limits the size.",
        "Send less at once, or raise the limit.",
    ),
    code(
        "E-TLS-01",
        Kind::Connection,
        "The TLS handshake failed.",
        "The certificate is not trusted, or the port has no TLS.",
        "Trust the certificate of the broker.",
    ),
    code(
        "E-TLS-02",
        Kind::Invalid,
        "The file with certificates cannot be read.",
        "It does not exist, or has no certificate in PEM form.",
        "Correct the path.",
    ),
    code(
        "E-TX-01",
        Kind::RolledBack,
        "The transaction was rolled back.",
        "A step was rejected, or the transaction has timed out.",
        "Begin it again.",
    ),
    code(
        "E-TX-02",
        Kind::RolledBack,
        "The transaction was rolled back with its connection.",
        "The connection on which it began was lost.",
        "Begin it again.",
    ),
    code(
        "E-TX-03",
        Kind::Connection,
        "The result of a commit is unknown.",
        "The connection was lost before the answer.",
        "Check the effects, or make them repeatable with message ids.",
    ),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    /// Collects the codes in the sources below a folder.
    fn used(folder: &Path, into: &mut BTreeSet<String>) {
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                used(&path, into);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                let literals = text.split('"').filter(|part| {
                    part.starts_with("E-")
                        && part.len() < 16
                        && part.ends_with(|end: char| end.is_ascii_digit())
                });
                into.extend(literals.map(str::to_owned));
            }
        }
    }

    #[test]
    fn every_code_in_the_sources_is_in_the_table_once() {
        let mut expected = BTreeSet::new();
        used(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut expected);
        let listed: Vec<_> = CODES.iter().map(|entry| entry.code.to_owned()).collect();
        assert!(listed.is_sorted());
        assert_eq!(listed.iter().cloned().collect::<BTreeSet<_>>().len(), listed.len());
        let missing: Vec<_> = expected.iter().filter(|code| !listed.contains(code)).collect();
        assert!(missing.is_empty(), "not in the table: {missing:?}");
    }
}
