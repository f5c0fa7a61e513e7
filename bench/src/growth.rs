//! Measures how throughput and CPU time per message change as something grows, and draws the result.
//!
//! `--only growth` measures everything, `--only growth-queues` one thing. Each writes its picture beside the page and replaces its section
//! of the page, so the sections may come from different runs; each names its own.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use peeklock_client::{
    CorrelationSpec, Encode, EntityName, Message, QueueSettings, QueueSpec, RuleSpec, SubscriptionSpec,
};

use crate::Arguments;
use crate::broker::{Broker, QUEUE};
use crate::load::{self, Load};
use crate::machine::{self, Activity};
use crate::report::{median, number};
use crate::spread::{self, Shape};
use crate::svg::{self, Line, LinePanel, Point};
use crate::topics;

const PAGE: &str = "bench/GROWTH.md";
const PICTURES: &str = "growth";
/// The name of the part on the command line, and the prefix of the names of its pieces.
const PART: &str = "growth";

const BODY_BYTES: usize = 256;
/// The messages in flight of all connections together, if each can have at least one.
const UNCONFIRMED_IN_ALL: usize = 512;
/// The number of copies, over all subscriptions, that one measurement of a topic makes at most.
const COPIES_MAX: usize = 5_000_000;
const SENDS_MAX: usize = 400_000;
/// The limits for messages that are sent and not yet received while body sizes are compared.
const WAITING_MAX: usize = 2_048;
const WAITING_BYTES_MAX: usize = 8 << 20;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Growing {
    Backlog,
    Queues,
    Connections,
    BodySize,
    Subscriptions,
}

const ALL: [Growing; 5] =
    [Growing::Backlog, Growing::Queues, Growing::Connections, Growing::BodySize, Growing::Subscriptions];

/// Throughput and CPU time of the broker, for a message or for a copy of it.
#[derive(Clone, Copy)]
struct Measured {
    rate: f64,
    cpu_us: f64,
}

/// The values of all repetitions at one size.
struct Step {
    size: usize,
    values: Vec<Measured>,
}

/// Returns whether the command line names this part or one of its pieces.
pub(crate) fn is_wanted(only: &str) -> bool {
    ALL.into_iter().any(|growing| growing.is_wanted(only))
}

/// Measures what the command line names and writes the pictures and the page.
pub(crate) fn run(arguments: &Arguments, only: &str) -> Result<()> {
    let page = Path::new(PAGE);
    let folder = page.with_file_name(PICTURES);
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    for growing in ALL.into_iter().filter(|growing| growing.is_wanted(only)) {
        eprintln!("measuring growth of {} …", growing.name());
        let before = Activity::now()?;
        let lines =
            growing.measure_all(arguments).with_context(|| format!("growth of {}", growing.name()))?;
        let others_share = Activity::now()?.others_share_since(before);
        let picture = folder.join(format!("{}.svg", growing.name()));
        std::fs::write(&picture, growing.picture(&lines))
            .with_context(|| format!("cannot write {}", picture.display()))?;
        let section = growing.section(arguments, &lines, others_share);
        print!("{section}");
        // A page that does not exist yet is empty.
        let old = std::fs::read_to_string(page).unwrap_or_default();
        std::fs::write(page, with_section(&old, &introduction(arguments), &section))
            .with_context(|| format!("cannot write {}", page.display()))?;
    }
    Ok(())
}

impl Growing {
    fn is_wanted(self, only: &str) -> bool {
        only == PART || only.strip_prefix(PART).and_then(|rest| rest.strip_prefix('-')) == Some(self.name())
    }

    fn name(self) -> &'static str {
        match self {
            Growing::Backlog => "backlog",
            Growing::Queues => "queues",
            Growing::Connections => "connections",
            Growing::BodySize => "body-size",
            Growing::Subscriptions => "subscriptions",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Growing::Backlog => "Backlog",
            Growing::Queues => "Queues",
            Growing::Connections => "Connections",
            Growing::BodySize => "Body size",
            Growing::Subscriptions => "Subscriptions",
        }
    }

    /// Returns the words behind a size.
    fn noun(self) -> &'static str {
        match self {
            Growing::Backlog => "waiting messages",
            Growing::Queues => "queues",
            Growing::Connections => "connections",
            Growing::BodySize => "bytes of body",
            Growing::Subscriptions => "subscriptions",
        }
    }

    fn method(self) -> &'static str {
        match self {
            Growing::Backlog => {
                "The queue has that many messages of 256 B before two senders (256 unconfirmed each) and two receivers start. The \
                 receivers take the oldest messages, whose bodies have left memory."
            }
            Growing::Queues => {
                "Eight senders (256 unconfirmed each) and eight receivers with 1 KiB. Each connection has a link at an eighth of the \
                 queues, and each sender sends one message over each of its links in turn. A connection has at most 125 links, so 10,000 \
                 queues have 80 senders and 80 receivers, with as many messages in flight in all."
            }
            Growing::Connections => {
                "Each connection has a sender and a receiver at one queue, with 256 B. All senders together have 512 messages in flight, \
                 or one each if there are more."
            }
            Growing::BodySize => {
                "Two senders and two receivers of one queue. At most 2,048 messages or 8 MiB of bodies are sent and not yet received, \
                 whichever is less, so that receivers keep up with senders."
            }
            Growing::Subscriptions => {
                "Two senders, 256 B, without receivers. In one line each message is copied into every subscription, and values are for one \
                 copy. In the other each subscription has a correlation filter, of which one matches each message."
            }
        }
    }

    /// Returns the reason for the shape of the lines.
    fn reason(self) -> &'static str {
        match self {
            Growing::BodySize => {
                "A message has a fixed cost and a cost for each byte (network in and out, disk, copies); from about 4 KiB the bytes \
                 dominate."
            }
            Growing::Subscriptions => {
                "The cost of a message is shared by its copies, so one copy of many is cheaper; matching filters are found by their value, \
                 not one by one."
            }
            Growing::Backlog => {
                "The log keeps up to 2 GiB; beyond that the journal copies bodies to cold segments, and receivers read them from there."
            }
            Growing::Queues => {
                "Each message arrives over another link, so the runs of messages that a link hands over, delivers and confirms together \
                 become short, and their fixed costs are shared by fewer messages, in the broker and in the clients."
            }
            Growing::Connections => {
                "With more connections each has fewer messages in flight, at last one, so that every message has a read, a wake-up and a \
                 write of its own on both sides."
            }
        }
    }

    fn lines(self) -> &'static [&'static str] {
        match self {
            Growing::Subscriptions => {
                &["a copy for each subscription, per copy", "one of the filters matches"]
            }
            _ => &["messages"],
        }
    }

    fn sizes(self, is_quick: bool) -> Vec<usize> {
        let all = match self {
            Growing::Backlog => vec![1_000, 10_000, 100_000, 1_000_000, 10_000_000],
            Growing::Queues | Growing::Connections => vec![1, 10, 100, 1_000, 10_000],
            Growing::BodySize => (2..=10).map(|power| 1_usize << (2 * power)).collect(),
            Growing::Subscriptions => vec![1, 10, 100, 1_000],
        };
        let dropped = usize::from(is_quick);
        all[..all.len() - dropped].to_vec()
    }

    fn measure_all(self, arguments: &Arguments) -> Result<Vec<Vec<Step>>> {
        let sizes = self.sizes(arguments.quick);
        let steps = |_| sizes.iter().map(|size| Step { size: *size, values: Vec::new() }).collect();
        let mut lines: Vec<Vec<Step>> = (0..self.lines().len()).map(steps).collect();
        for _ in 0..arguments.repetitions {
            for (index, line) in lines.iter_mut().enumerate() {
                for step in line {
                    let once = load::runtime()?.block_on(self.measure(arguments, index, step.size));
                    let once = once.with_context(|| format!("{} {}", step.size, self.noun()))?;
                    let (rate, cpu) = (number(once.rate), number(once.cpu_us));
                    eprintln!("  {} {}: {rate}/s, {cpu} µs", step.size, self.noun());
                    step.values.push(once);
                }
            }
        }
        Ok(lines)
    }

    async fn measure(self, arguments: &Arguments, line: usize, size: usize) -> Result<Measured> {
        match (self, line) {
            (Growing::Backlog, _) => backlog(arguments, size).await,
            (Growing::Queues, _) => {
                Ok(spread::measure(arguments, Shape::over_queues(size, 1024)).await?.into())
            }
            (Growing::Connections, _) => connections(arguments, size).await,
            (Growing::BodySize, _) => body_size(arguments, size).await,
            (Growing::Subscriptions, 0) => copies(arguments, size).await,
            (Growing::Subscriptions, _) => filtered(arguments, size).await,
        }
    }

    fn picture(self, lines: &[Vec<Step>]) -> String {
        let (units, unit) = match self {
            Growing::Subscriptions => ("messages or copies", "message or copy"),
            _ => ("messages", "message"),
        };
        let panel = |title: String, value: fn(&Measured) -> f64| LinePanel {
            title,
            x_label: self.noun().to_owned(),
            lines: lines.iter().zip(self.lines()).map(|(steps, name)| line(name, steps, value)).collect(),
        };
        svg::line_charts(&[
            panel(format!("{units} per second"), |once| once.rate),
            panel(format!("µs of broker CPU per {unit}"), |once| once.cpu_us),
        ])
    }

    fn section(self, arguments: &Arguments, lines: &[Vec<Step>], others_share: f64) -> String {
        let mut text = format!("## {}\n\n{}\n\n", self.title(), self.method());
        let _ = write!(
            text,
            "![Rate and CPU time per message over {}]({PICTURES}/{}.svg)\n\n",
            self.noun(),
            self.name()
        );
        for (steps, name) in lines.iter().zip(self.lines()) {
            if lines.len() > 1 {
                let _ = write!(text, "Line \"{name}\":\n\n");
            }
            let _ = write!(
                text,
                "| {} | per second | spread | broker CPU | spread |\n| --- | --- | --- | --- | --- |\n",
                self.noun()
            );
            for step in steps {
                let _ = writeln!(text, "{}", table_row(step));
            }
            let _ = write!(text, "\n{}\n\n", flatness(steps, self.noun()));
        }
        let _ = write!(text, "{}\n\n", self.reason());
        let _ = writeln!(
            text,
            "Measured with version {} on {} in {} repetition(s){}; other programs used {:.0} % of the cores.",
            machine::version(),
            machine::date(),
            arguments.repetitions,
            if arguments.quick { ", **a quick run**" } else { "" },
            others_share * 100.0
        );
        text
    }
}

impl From<load::Measured> for Measured {
    fn from(measured: load::Measured) -> Self {
        Measured { rate: measured.rate, cpu_us: measured.cpu_per_message.as_secs_f64() * 1e6 }
    }
}

async fn backlog(arguments: &Arguments, count: usize) -> Result<Measured> {
    let broker = Broker::start(&arguments.data)?;
    let payload = Message::data(vec![b'x'; BODY_BYTES]).to_bytes();
    load::fill(&broker, &payload, count).await?;
    under_load(arguments, &broker, BODY_BYTES).await
}

async fn under_load(arguments: &Arguments, broker: &Broker, body_bytes: usize) -> Result<Measured> {
    measured(arguments, broker, Load::start(broker, body_bytes).await?).await
}

async fn measured(arguments: &Arguments, broker: &Broker, load: Load) -> Result<Measured> {
    tokio::time::sleep(Duration::from_secs(1)).await;
    let time = Duration::from_secs(if arguments.quick { 2 } else { 5 });
    let measured = load.measure(broker, time).await?;
    load.stop().await?;
    Ok(measured.into())
}

async fn connections(arguments: &Arguments, count: usize) -> Result<Measured> {
    let shape = Shape {
        connections: count,
        is_shared: true,
        unconfirmed: (UNCONFIRMED_IN_ALL / count).max(1),
        ..Shape::over_queues(1, BODY_BYTES)
    };
    Ok(spread::measure(arguments, shape).await?.into())
}

async fn body_size(arguments: &Arguments, body_bytes: usize) -> Result<Measured> {
    let broker = Broker::start_with(&arguments.data, &[])?;
    let settings = QueueSettings {
        lock_duration: Duration::from_secs(300),
        max_message_size_bytes: 2 * 1024 * 1024,
        ..QueueSettings::default()
    };
    broker.admin()?.create_queue(&EntityName::parse(QUEUE)?, &QueueSpec::of(&settings)).await?;
    let limit = WAITING_MAX.min(WAITING_BYTES_MAX / body_bytes);
    let load = Load::start_limited(&broker, body_bytes, limit).await?;
    measured(arguments, &broker, load).await
}

async fn copies(arguments: &Arguments, count: usize) -> Result<Measured> {
    let broker = Broker::start_with(&arguments.data, &[])?;
    let mut admin = topics::topic(&broker).await?;
    for number in 0..count {
        let name = format!("s{number}");
        admin
            .create_subscription(&topics::name_of(topics::TOPIC)?, &name, &SubscriptionSpec::default())
            .await?;
    }
    let sends = SENDS_MAX.min(COPIES_MAX / count);
    let measured = topics::send(&broker, sends, |_| topics::plain()).await?;
    Ok(Measured { rate: measured.rate * count as f64, cpu_us: measured.cpu_us / count as f64 })
}

async fn filtered(arguments: &Arguments, count: usize) -> Result<Measured> {
    let broker = Broker::start_with(&arguments.data, &[])?;
    let mut admin = topics::topic(&broker).await?;
    let topic = topics::name_of(topics::TOPIC)?;
    for number in 0..count {
        let name = format!("s{number}");
        admin.create_subscription(&topic, &name, &SubscriptionSpec::default()).await?;
        admin.remove_rule(&topic, &name, "$Default").await?;
        let correlation =
            CorrelationSpec { label: Some(format!("color-{number}")), ..CorrelationSpec::default() };
        let rule = RuleSpec { correlation: Some(correlation), ..RuleSpec::default() };
        admin.add_rule(&topic, &name, "color", &rule).await?;
    }
    let sends = if arguments.quick { SENDS_MAX / 4 } else { SENDS_MAX };
    let measured = topics::send(&broker, sends, move |number| topics::colored(number % count)).await?;
    Ok(Measured { rate: measured.rate, cpu_us: measured.cpu_us })
}

fn line(name: &str, steps: &[Step], value: fn(&Measured) -> f64) -> Line {
    let point = |step: &Step| {
        let spread = Spread::of(step, value);
        Point { x: step.size as f64, y: spread.median, least: spread.least, greatest: spread.greatest }
    };
    Line { name: name.to_owned(), points: steps.iter().map(point).collect() }
}

struct Spread {
    median: f64,
    least: f64,
    greatest: f64,
}

impl Spread {
    fn of(step: &Step, value: fn(&Measured) -> f64) -> Self {
        let values: Vec<f64> = step.values.iter().map(value).collect();
        Spread {
            median: median(&values),
            least: values.iter().copied().fold(f64::INFINITY, f64::min),
            greatest: values.iter().copied().fold(0.0, f64::max),
        }
    }

    fn range(&self) -> String {
        format!("{} … {}", number(self.least), number(self.greatest))
    }
}

fn table_row(step: &Step) -> String {
    let (rate, cpu) = (Spread::of(step, |once| once.rate), Spread::of(step, |once| once.cpu_us));
    format!(
        "| {} | {} | {} | {} µs | {} |",
        whole(step.size),
        number(rate.median),
        rate.range(),
        number(cpu.median),
        cpu.range()
    )
}

/// Formats a count with separated thousands.
fn whole(count: usize) -> String {
    if count < 100 { count.to_string() } else { number(count as f64) }
}

/// Returns a sentence that compares the last step with the first.
fn flatness(steps: &[Step], noun: &str) -> String {
    let (Some(first), Some(last)) = (steps.first(), steps.last()) else { return String::new() };
    let ratio =
        |value: fn(&Measured) -> f64| Spread::of(last, value).median / Spread::of(first, value).median;
    format!(
        "With {} {noun} the rate is {} times that with {}, and the CPU time {} times.",
        whole(last.size),
        number(ratio(|once| once.rate)),
        whole(first.size),
        number(ratio(|once| once.cpu_us))
    )
}

fn introduction(arguments: &Arguments) -> String {
    format!(
        "# Growth\n\n\
         Throughput and CPU time per message while one thing grows and everything else stays. Durability is on, clients and broker share \
         the cores, each point has a broker of its own, and a line marks the spread of the repetitions. Both axes are logarithmic. A \
         section names the version that it was measured with; to repeat: `cargo xtask bench --only growth`, or one section with \
         `--only growth-queues`.\n\n{}",
        machine::describe_machine(&arguments.data)
    )
}

/// Replaces or adds a section, which starts with its heading, and keeps the sections in their order.
fn with_section(page: &str, introduction: &str, section: &str) -> String {
    let mut text = introduction.trim_end().to_owned();
    for growing in ALL {
        let heading = format!("## {}\n", growing.title());
        let old = page.split_once(&heading).map(|(_, rest)| {
            let body = rest.split_once("\n## ").map_or(rest, |(body, _)| body);
            format!("{heading}{body}")
        });
        let wanted = if section.starts_with(&heading) { Some(section.to_owned()) } else { old };
        if let Some(section) = wanted {
            let _ = write!(text, "\n\n{}", section.trim_end());
        }
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_is_replaced_and_the_others_stay() {
        let page = "# Growth\n\n## Backlog\n\none\n\n## Connections\n\ntwo\n";
        let page = with_section(page, "# Growth\n", "## Queues\n\nnew\n");
        assert_eq!(page, "# Growth\n\n## Backlog\n\none\n\n## Queues\n\nnew\n\n## Connections\n\ntwo\n");
        let page = with_section(&page, "# Growth\n", "## Connections\n\nthree\n");
        assert_eq!(page, "# Growth\n\n## Backlog\n\none\n\n## Queues\n\nnew\n\n## Connections\n\nthree\n");
    }

    #[test]
    fn parts_are_chosen_by_name() {
        assert!(is_wanted("growth") && is_wanted("growth-body-size"));
        assert!(!is_wanted("growth-speed") && !is_wanted("queues"));
    }
}
