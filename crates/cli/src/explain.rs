//! `peeklock topic explain`: the subscriptions that would get a message, and the reasons.

use std::io::{self, Write};

use anyhow::Result;
use peeklock::low_level::{EntityName, Explained, Named, Sample};

use crate::connect::Connect;
use crate::property::Property;
use crate::table::Table;

/// Tell which subscriptions of a topic would get a message, and why the others would not; nothing is sent.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// The topic
    #[arg(value_parser = EntityName::parse)]
    topic: EntityName,
    /// An application property, or KEY:=VALUE for a number, true or false; may be repeated
    #[arg(long = "property", value_name = "KEY=TEXT", value_parser = Property::parse)]
    properties: Vec<Property>,
    /// What the message is about, sys.Label in filters
    #[arg(long, value_name = "TEXT")]
    subject: Option<String>,
    #[arg(long, value_name = "ID")]
    message_id: Option<String>,
    #[arg(long, value_name = "ID")]
    correlation_id: Option<String>,
    /// The session that the message belongs to
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    #[arg(long, value_name = "ENTITY")]
    reply_to: Option<String>,
    #[arg(long, value_name = "ID")]
    reply_to_session: Option<String>,
    #[arg(long, value_name = "TEXT")]
    to: Option<String>,
    #[arg(long, value_name = "TYPE")]
    content_type: Option<String>,
    #[command(flatten)]
    connect: Connect,
}

const EXAMPLES: &str = "\
Examples:
  peeklock topic explain orders --property Priority=High
  peeklock topic explain orders --property Amount:=1500 --subject order --json";

pub(crate) async fn run(arguments: &Arguments) -> Result<()> {
    let Arguments { topic, connect, .. } = arguments;
    let explained = connect.admin().await?.explain(topic.as_str(), &arguments.sample()).await?;
    connect.print(&explained, |out| match explained.is_empty() {
        true => writeln!(out, "topic '{topic}' has no subscriptions, so nobody would get it"),
        false => show(out, &explained),
    })
}

impl Arguments {
    fn sample(&self) -> Sample {
        let properties =
            self.properties.iter().map(|property| (property.key.clone(), property.value.clone()));
        Sample {
            properties: Named(properties.collect()),
            label: self.subject.clone(),
            message_id: self.message_id.clone(),
            correlation_id: self.correlation_id.clone(),
            session_id: self.session.clone(),
            reply_to: self.reply_to.clone(),
            reply_to_session_id: self.reply_to_session.clone(),
            to: self.to.clone(),
            content_type: self.content_type.clone(),
            partition_key: None,
        }
    }
}

/// Writes a line for each rule. The first line of a subscription has its result.
fn show(out: &mut Vec<u8>, explained: &[Explained]) -> io::Result<()> {
    let mut table = Table::new().text("SUBSCRIPTION").text("RESULT").text("RULE").text("WHY");
    for one in explained {
        let mut head = [one.subscription.clone(), result(one)];
        if one.rules.is_empty() {
            let why = "a subscription without rules gets nothing".to_owned();
            table.row(head.iter().cloned().chain(["-".to_owned(), why]));
        }
        for rule in &one.rules {
            table.row(head.iter().cloned().chain([rule.name.clone(), rule.why.clone()]));
            head = Default::default();
        }
    }
    table.write(out)
}

fn result(one: &Explained) -> String {
    match (one.copies, &one.dead_letters) {
        (_, Some(_)) => "dead-letters it".to_owned(),
        (0, None) => "does not".to_owned(),
        (1, None) => "gets it".to_owned(),
        (count, None) => format!("gets it {count} times"),
    }
}
