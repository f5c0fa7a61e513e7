//! Converts a recording into steps: expands shorthands, and resolves links, channels and "as sent".

use std::collections::HashMap;
use std::time::Duration;

use super::notation::{self, Expr, Fields, THE_REST};
use super::shorthand::{self, Line};

/// The channel number for open and close, which belong to no session.
pub(super) const CONNECTION: u16 = u16::MAX;

pub(super) enum Step {
    /// An event outside the recorded connections, such as a new queue.
    Outside(String),
    /// The following steps are on this connection.
    Connection(u32),
    Header {
        is_sent: bool,
        is_sasl: bool,
    },
    Send(Frame),
    Expect(Frame),
    Pause(Duration),
    /// A pause before an answer, which must not arrive earlier or much later.
    Silence {
        channel: u16,
        time: Duration,
    },
    ServerCloses,
    ClientCloses,
}

/// A frame of a recording; `channel` is the client's channel of the session, in both directions.
pub(super) struct Frame {
    pub(super) channel: u16,
    pub(super) performative: Expr,
    pub(super) sections: Vec<Expr>,
}

/// Returns the steps with their line numbers.
pub(super) fn steps(name: &str) -> Vec<(usize, Step)> {
    let mut reader = Parser { lines: shorthand::lines(name), ..Parser::default() };
    let mut steps = Vec::new();
    while reader.at < reader.lines.len() {
        let line = reader.lines[reader.at].clone();
        reader.at += 1;
        let step = reader.step(&line.text);
        if let (Step::Expect(frame), Some((_, last))) = (&step, steps.last_mut())
            && let Step::Pause(time) = *last
        {
            *last = Step::Silence { channel: frame.channel, time };
        }
        steps.push((line.number, step));
    }
    steps
}

#[derive(Default)]
struct Parser {
    lines: Vec<Line>,
    at: usize,
    connection: u32,
    /// Links by name, and the attach that the client sent for each.
    links: HashMap<String, (Expr, Expr)>,
    /// Fields of the last begin per connection, direction and channel.
    begins: HashMap<(u32, bool, u16), Fields>,
    /// The client's channel per connection and channel of the server.
    channels: HashMap<(u32, u16), u16>,
}

impl Parser {
    fn step(&mut self, text: &str) -> Step {
        if let Some(text) = text.strip_prefix("! ") {
            return Step::Outside(text.to_owned());
        }
        if let Some(number) = text.strip_prefix("== connection ") {
            self.connection = number.parse().unwrap();
            return Step::Connection(self.connection);
        }
        if let Some(seconds) = text.trim().strip_prefix("… ") {
            let seconds: f64 = seconds.strip_suffix(" s later").unwrap().parse().unwrap();
            return Step::Pause(Duration::from_secs_f64(seconds));
        }
        match text {
            "server closes the socket" => return Step::ServerCloses,
            "client closes the socket" => return Step::ClientCloses,
            _ => {}
        }
        let (direction, rest) =
            text.split_once(' ').unwrap_or_else(|| panic!("not a line of a recording: {text}"));
        let is_sent = match direction {
            "C>S" => true,
            "S>C" => false,
            _ => panic!("not a line of a recording: {text}"),
        };
        if let Some(header) = rest.strip_prefix("protocol header AMQP ") {
            return Step::Header { is_sent, is_sasl: header.starts_with("SASL") };
        }
        let frame = self.frame(is_sent, rest);
        if is_sent { Step::Send(frame) } else { Step::Expect(frame) }
    }

    fn frame(&mut self, is_sent: bool, text: &str) -> Frame {
        let (channel, text) = text.split_once(' ').unwrap();
        let channel: u16 = channel.strip_prefix("ch").and_then(|number| number.parse().ok()).unwrap();
        let (mut performative, link) = notation::performative(text);
        self.resolve(&mut performative);
        let Expr::Composite(name, fields) = &mut performative else { panic!("not a performative: {text}") };
        if name == "begin" {
            self.begin(is_sent, channel, fields);
        }
        if let Some(link) = link {
            let given = performative.get("name").unwrap().clone();
            self.links.insert(link, (given, performative.clone()));
        }
        let is_of_session = !shorthand::is_of_connection(text);
        let channel = match self.channels.get(&(self.connection, channel)) {
            _ if !is_of_session => CONNECTION,
            Some(of_client) if !is_sent => *of_client,
            _ => channel,
        };
        let mut sections = self.sections(6);
        sections.iter_mut().for_each(|section| self.resolve(section));
        Frame { channel, performative, sections }
    }

    /// Fills in "the rest as for ch1", and stores which channels belong together.
    fn begin(&mut self, is_sent: bool, channel: u16, fields: &mut Fields) {
        if let Some(at) = fields.iter().position(|(name, _)| name == THE_REST) {
            let Expr::Word(other, _) = fields.remove(at).1 else { panic!("no channel") };
            let other = other.strip_prefix("ch").unwrap().parse().unwrap();
            let rest = self.begins[&(self.connection, is_sent, other)].clone();
            fields.extend(rest.into_iter().filter(|(name, _)| name != "remote-channel"));
        }
        self.begins.insert((self.connection, is_sent, channel), fields.clone());
        if let Some((_, remote)) = fields.iter().find(|(name, _)| name == "remote-channel") {
            let remote = u16::try_from(remote.number()).unwrap();
            self.channels.insert((self.connection, channel), remote);
        }
    }

    /// Replaces `L1` by the link's name, and `as sent` by the value that was sent.
    fn resolve(&self, expr: &mut Expr) {
        let links = &self.links;
        let mut attach = None;
        expr.for_each(&mut |part| {
            if let Expr::Word(word, None) = part
                && let Some((name, sent)) = links.get(word)
            {
                attach = attach.take().or(Some(sent));
                *part = name.clone();
            }
        });
        if let (Expr::Composite(_, fields), Some(attach)) = (expr, attach) {
            for (field, value) in fields.iter_mut().filter(|(_, value)| value.is_word("as sent")) {
                *value = attach.get(field).expect("a field that was sent").clone();
            }
        }
    }

    /// Parses the sections below a transfer, or below a message inside another.
    fn sections(&mut self, indent: usize) -> Vec<Expr> {
        let mut sections = Vec::new();
        while let Some(text) = self.indented(indent) {
            if text == "data binary, an encoded message, decoded:" {
                let inner = Expr::Message(self.sections(indent + 4));
                sections.push(Expr::Section("data".to_owned(), Box::new(inner)));
                continue;
            }
            let mut section = notation::section(&text);
            let messages = self.messages(indent + 2);
            section.for_each(&mut |part| {
                if matches!(part, Expr::List(all) if all.is_empty()) && !messages.is_empty() {
                    *part = Expr::List(messages.clone());
                }
            });
            sections.push(section);
        }
        sections
    }

    /// Parses the elements below a `list of 2`, with their messages.
    fn messages(&mut self, indent: usize) -> Vec<Expr> {
        let mut messages = Vec::new();
        while let Some(text) = self.indented(indent) {
            let (_, entry) = text.split_once(' ').unwrap();
            let mut entry = notation::value(entry);
            let sections = self.sections(indent + 4);
            entry.for_each(&mut |part| {
                if matches!(part, Expr::Message(_)) {
                    *part = Expr::Message(sections.clone());
                }
            });
            messages.push(entry);
        }
        messages
    }

    /// Consumes the next line if it has this indentation.
    fn indented(&mut self, indent: usize) -> Option<String> {
        let line = self.lines.get(self.at)?;
        let text = line.text.trim_start();
        if line.text.len() - text.len() != indent {
            return None;
        }
        self.at += 1;
        Some(text.to_owned())
    }
}
