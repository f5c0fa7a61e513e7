//! The blob names and metadata of the stock checkpoint stores of the Event Hubs SDKs.

use crate::metadata::Metadata;
use crate::name::BlobName;

/// A blob of a stock checkpoint store. Names are in lower case here, because some stores write them so and others keep
/// the spelling.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StockRecord {
    /// The host name that clients used for the namespace.
    pub host: String,
    pub hub: String,
    pub group: String,
    pub partition: u32,
    pub kind: StockKind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StockKind {
    Checkpoint {
        offset: Option<String>,
        sequence_number: Option<i64>,
    },
    /// Empty: no owner.
    Ownership {
        owner: String,
    },
}

impl StockRecord {
    /// Parses a blob of a checkpoint store. Returns `None` if its name is not
    /// `HOST/HUB/GROUP/checkpoint|ownership/PARTITION`.
    pub fn parse(name: &BlobName, metadata: &Metadata) -> Option<Self> {
        let name = name.as_str().to_lowercase();
        // A hub's name may contain slashes; the other parts do not.
        let mut from_end = name.rsplitn(4, '/');
        let partition = from_end.next()?.parse().ok()?;
        let kind = from_end.next()?;
        let group = from_end.next()?.to_owned();
        let (host, hub) = from_end.next()?.split_once('/')?;
        if host.is_empty() || hub.is_empty() || group.is_empty() {
            return None;
        }
        let text = |name: &str| metadata.get(name).filter(|text| !text.is_empty());
        let kind = match kind {
            "checkpoint" => StockKind::Checkpoint {
                offset: text("offset").map(str::to_owned),
                sequence_number: text("sequencenumber").and_then(|number| number.parse().ok()),
            },
            "ownership" => StockKind::Ownership { owner: text("ownerid").unwrap_or_default().to_owned() },
            _ => return None,
        };
        Some(StockRecord { host: host.to_owned(), hub: hub.to_owned(), group, partition, kind })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(name: &str, metadata: &[(&str, &str)]) -> Option<StockRecord> {
        let mut all = Metadata::default();
        metadata.iter().for_each(|(name, value)| all.add(name, value).unwrap());
        StockRecord::parse(&BlobName::parse(name).unwrap(), &all)
    }

    #[test]
    fn checkpoints_and_ownerships_are_recognised_by_name() {
        let found =
            parse("NS.example/Homes/$Default/checkpoint/12", &[("offset", "7"), ("sequencenumber", "7")])
                .unwrap();
        assert_eq!(
            (found.host.as_str(), found.hub.as_str(), found.group.as_str()),
            ("ns.example", "homes", "$default")
        );
        assert_eq!(found.partition, 12);
        assert_eq!(
            found.kind,
            StockKind::Checkpoint { offset: Some("7".to_owned()), sequence_number: Some(7) }
        );
        let found = parse("localhost/a/b/c/ownership/0", &[("ownerid", "")]).unwrap();
        assert_eq!((found.hub.as_str(), found.group.as_str()), ("a/b", "c"));
        assert_eq!(found.kind, StockKind::Ownership { owner: String::new() });
        let found = parse("ns/h/g/checkpoint/0", &[("offset", "x"), ("sequencenumber", "None")]).unwrap();
        assert_eq!(found.kind, StockKind::Checkpoint { offset: Some("x".to_owned()), sequence_number: None });
    }

    #[test]
    fn other_blobs_are_not_recognised() {
        for name in [
            "a",
            "h/g/checkpoint/0",
            "ns/h/g/checkpoint/x",
            "ns/h/g/other/0",
            "/h/g/checkpoint/0",
            "ns//g/checkpoint/0",
        ] {
            assert_eq!(parse(name, &[]), None, "{name}");
        }
    }
}
