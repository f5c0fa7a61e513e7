//! Expands the abbreviations of recordings: the start of a connection, `($cbs)` and `(closing)`.

use std::collections::HashMap;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/dotnet");
/// The channel of the `$cbs` session; no recording uses it otherwise.
const CBS_CHANNEL: &str = " ch4000 ";
const PUT_TOKEN: &str = "C>S ($cbs) put-token for ";
const WRONG_KEY: &str = " with a wrong key";

#[derive(Clone)]
pub(super) struct Line {
    pub(super) number: usize,
    pub(super) text: String,
}

/// Returns the names of all recordings.
pub(super) fn names() -> Vec<String> {
    let files = std::fs::read_dir(FOLDER).unwrap().map(|entry| entry.unwrap().file_name());
    let names =
        files.filter_map(|file| file.to_str().and_then(|file| file.strip_suffix(".txt")).map(str::to_owned));
    names.collect()
}

/// Returns the lines of a recording, expanded, without comments.
pub(super) fn lines(name: &str) -> Vec<Line> {
    let mut writer = Writer::default();
    for (number, text) in (1..).zip(text(name).lines()) {
        let written = writer.write_out(text);
        writer.lines.extend(written.into_iter().map(|text| Line { number, text }));
    }
    writer.lines
}

/// Returns whether a frame belongs to the connection and not to a session.
pub(super) fn is_of_connection(performative: &str) -> bool {
    ["open ", "close ", "sasl-"].iter().any(|name| performative.starts_with(name))
}

fn text(name: &str) -> String {
    let path = format!("{FOLDER}/{name}.txt");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    text.replace("HOST", "localhost")
}

#[derive(Default)]
struct Writer {
    lines: Vec<Line>,
    connection: String,
    /// The start of each connection.
    starts: HashMap<String, Start>,
}

impl Writer {
    fn write_out(&mut self, text: &str) -> Vec<String> {
        if let Some(connection) = text.strip_prefix("== connection ") {
            self.connection = connection.to_owned();
        }
        match text {
            "" => vec![],
            _ if text.starts_with('#') => vec![],
            _ if text.starts_with("   (SASL ") => self.start(text),
            _ if text.starts_with(PUT_TOKEN) => self.put_token(&text[PUT_TOKEN.len()..]),
            _ if text.starts_with("S>C ($cbs) ") => self.answer(&text["S>C ($cbs) ".len()..]),
            _ => match text.split_once(" (closing) ") {
                Some((direction, frames)) => {
                    frames.split(", ").map(|frame| format!("{direction} {}", closing(frame))).collect()
                }
                None => vec![text.to_owned()],
            },
        }
    }

    /// Expands `(SASL and open as in x)`, or `(SASL as in x)` before a separate open.
    fn start(&mut self, text: &str) -> Vec<String> {
        let (what, name) =
            text.trim().trim_end_matches(')').split_once(" as in ").expect("the name of a recording");
        let start = Start::of(name);
        let with_open = what.ends_with("open");
        let lines =
            start.open.iter().filter(|line| with_open || !line.contains(" open {")).cloned().collect();
        self.starts.insert(self.connection.clone(), start);
        lines
    }

    fn of_connection(&mut self) -> &mut Start {
        self.starts.get_mut(&self.connection).expect("a line with the start of this connection")
    }

    fn put_token(&mut self, audience: &str) -> Vec<String> {
        let (audience, is_wrong) = match audience.strip_suffix(WRONG_KEY) {
            Some(audience) => (audience, true),
            None => (audience, false),
        };
        let start = self.of_connection();
        let mut lines = if start.put_count == 0 { start.begin.clone() } else { vec![] };
        let delivery_id = format!("delivery-id: {}", start.put_count);
        start.put_count += 1;
        let number = format!("request{}", start.put_count);
        lines.extend(start.put.iter().map(|line| {
            let line = line
                .replace("delivery-id: 0", &delivery_id)
                .replace("request1", &number)
                .replace(&start.audience, audience)
                .replace(&encoded_path(&start.audience), &encoded_path(audience));
            if is_wrong { line.replace("sig=SIG", "sig=AAAA") } else { line }
        }));
        lines
    }

    /// Expands an answer such as `202` or `401`.
    fn answer(&mut self, status: &str) -> Vec<String> {
        let start = self.of_connection();
        start.answer_count += 1;
        let number = format!("request{}", start.answer_count);
        let status = format!("{status}:int");
        let line = |line: &String| line.replace("request1", &number).replace("202:int", &status);
        start.answer.iter().map(line).collect()
    }
}

/// The start of a connection, from a recording that contains it completely.
struct Start {
    open: Vec<String>,
    /// The session and the links of `$cbs`.
    begin: Vec<String>,
    audience: String,
    put: Vec<String>,
    answer: Vec<String>,
    put_count: u32,
    answer_count: u32,
}

impl Start {
    fn of(name: &str) -> Self {
        let text = text(name);
        let mut lines =
            text.lines().filter(|line| !line.is_empty() && !line.starts_with(['#', '!'])).peekable();
        let mut before = |part: &str| {
            let mut found = Vec::new();
            while let Some(line) = lines.next_if(|line| !line.contains(part)) {
                found.push(line.to_owned());
            }
            found
        };
        let open = before(" begin {");
        let begin = before("C>S ch0 transfer");
        let put = before("S>C ch0 transfer");
        let answer = before(" ch1 begin");
        let (_, audience) = put.iter().find_map(|line| line.split_once("\"name\": \"")).expect("an audience");
        let audience = audience.split_once('"').unwrap().0.to_owned();
        let own = |lines: Vec<String>| -> Vec<_> { lines.iter().map(|line| of_cbs(line)).collect() };
        let (begin, put, answer) = (own(begin), own(put), own(answer));
        Self { open, begin, audience, put, answer, put_count: 0, answer_count: 0 }
    }
}

/// Separates the names of `$cbs` from those of the recording that uses it.
fn of_cbs(line: &str) -> String {
    line.replace(" ch0 ", CBS_CHANNEL)
        .replace("remote-channel: 0", "remote-channel: 4000")
        .replace("\"duplex", "\"cbs-duplex")
        .replace("guid-", "cbs-guid-")
        .replace("L1", "L9001")
        .replace("L2", "L9002")
}

/// Returns the path in a token for one entity.
fn encoded_path(audience: &str) -> String {
    let path = audience.splitn(4, '/').nth(3).unwrap_or_default();
    format!("%2F{}%2F&sig", path.replace('/', "%2F").replace('$', "%24"))
}

fn closing(frame: &str) -> String {
    let words: Vec<_> = frame.split(' ').collect();
    match words[..] {
        [channel, "detach", handle] => format!("{channel} detach {{handle: {handle}, closed: true}}"),
        [channel, name @ ("end" | "close")] => format!("{channel} {name} {{}}"),
        _ => panic!("not a closing frame: {frame}"),
    }
}
