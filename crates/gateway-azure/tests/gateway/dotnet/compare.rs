//! Compares the broker's frames with the recording: every field, except ids, times and texts, which differ between
//! runs.

use peeklock_amqp::{Decode, Decoder, Value};

use super::build::{Known, dotnet_order, id_kind};
use super::notation::Expr;
use super::schema::{composite, name_of, section_code};

/// The error contains the path of a value and the difference.
pub(super) type Compared = Result<(), String>;

/// Texts for people, and times that are not encoded as a timestamp: only their type is compared.
const FREE_FIELDS: &[(&str, &str)] = &[("error", "description")];
const FREE_KEYS: &[&str] = &["statusDescription", "status-description", "com.microsoft:locked-until-utc"];

impl Known {
    /// Compares a value; `kind` is the type of a word without its own.
    pub(super) fn compare(&mut self, expected: &Expr, kind: &str, found: &Value, path: &str) -> Compared {
        match (expected, found) {
            (Expr::Composite(name, _), Value::Described(described)) => {
                let is_same = described.descriptor.as_u64() == Some(composite(name).0);
                match described.value.as_list() {
                    Some(list) if is_same => self.compare_fields(name, expected, list, path),
                    _ => differs(path, expected, found),
                }
            }
            (Expr::Section(name, value), Value::Described(described)) => {
                if described.descriptor.as_u64() != Some(section_code(name)) {
                    return differs(path, expected, found);
                }
                self.compare(value, "*", &described.value, path)
            }
            (Expr::Described(descriptor, value), Value::Described(described)) => {
                self.compare(descriptor, "*", &described.descriptor, path)?;
                self.compare(value, "*", &described.value, path)
            }
            (Expr::List(all), Value::List(list)) => self.compare_all(all, list, path),
            (Expr::Array(all), Value::Array(array)) => self.compare_all(all, array.elements(), path),
            (Expr::Map(entries), Value::Map(map)) => self.compare_map(entries, map, path),
            (Expr::Message(sections), Value::Binary(bytes)) => self.compare_sections(sections, bytes, path),
            (Expr::Uuid(name), Value::Uuid(found)) if self.guid_or(name, *found) == *found => Ok(()),
            (Expr::Tag(name), Value::Binary(tag)) => match <[u8; 16]>::try_from(tag.as_ref()) {
                Ok(tag) if self.guid_or(name, dotnet_order(tag)) == dotnet_order(tag) => Ok(()),
                _ => differs(path, expected, found),
            },
            (Expr::Word(time, own), Value::Timestamp(_))
                if own.as_deref().unwrap_or(kind) == "timestamp" && !self.is_fixed(time) =>
            {
                Ok(())
            }
            (Expr::Uuid(_), _) => differs(path, expected, found),
            _ if self.value(expected, kind) == *found => Ok(()),
            _ => differs(path, expected, found),
        }
    }

    /// Returns whether a time is compared: times that the client sent, and the year 1, which means "none".
    fn is_fixed(&self, time: &str) -> bool {
        self.was_sent(time) || time.starts_with("0001-")
    }

    fn compare_fields(&mut self, name: &str, expected: &Expr, list: &[Value], path: &str) -> Compared {
        let (_, fields) = composite(name);
        for (place, (field, kind)) in fields.iter().enumerate() {
            let path = format!("{path} {name}.{field}");
            let found = list.get(place).unwrap_or(&Value::Null);
            match expected.get(field) {
                None if found.is_null() => {}
                None => return Err(format!("{path}: nothing expected, found {found:?}")),
                Some(value) => {
                    let own = self.compare_own(name, field, expected, value, found);
                    own.unwrap_or_else(|| self.compare(value, kind, found, &path))?;
                }
            }
        }
        Ok(())
    }

    /// Compares a field whose value differs between runs. Returns `None` for other fields.
    fn compare_own(
        &mut self,
        name: &str,
        field: &str,
        expected: &Expr,
        value: &Expr,
        found: &Value,
    ) -> Option<Compared> {
        let (kind, is_new) = match (name, field) {
            ("attach", "handle") => ("handle", true),
            ("flow" | "transfer" | "detach", "handle") => ("handle", false),
            ("transfer", "delivery-id") => ("delivery-id", true),
            ("disposition", "first" | "last") if expected.get("role")?.is_word("sender") => {
                ("delivery-id", false)
            }
            ("declared", "txn-id") => ("txn-id", true),
            (_, "txn-id") => ("txn-id", false),
            ("transfer", "delivery-tag") if matches!(value, Expr::Binary(_)) => {
                return matches!(found, Value::Binary(_)).then_some(Ok(()));
            }
            field if FREE_FIELDS.contains(&field) => {
                return matches!(found, Value::String(_)).then_some(Ok(()));
            }
            _ => return None,
        };
        self.compare_id(kind, is_new, value, found)
    }

    /// Compares an id. Returns `None` if the broker never assigned it: it is the client's, and is compared literally.
    fn compare_id(&mut self, kind: &str, is_new: bool, recorded: &Expr, found: &Value) -> Option<Compared> {
        if is_new && !found.is_null() {
            self.learn_id(kind, recorded, found);
        }
        let known = self.id(kind, recorded)?;
        Some(if known == found {
            Ok(())
        } else {
            Err(format!("{kind}: expected {known:?}, found {found:?}"))
        })
    }

    fn compare_all(&mut self, all: &[Expr], list: &[Value], path: &str) -> Compared {
        if all.len() != list.len() {
            return Err(format!("{path}: expected {} elements, found {list:?}", all.len()));
        }
        let mut pairs = all.iter().zip(list).enumerate();
        pairs.try_for_each(|(at, (expected, found))| {
            self.compare(expected, "*", found, &format!("{path}[{at}]"))
        })
    }

    fn compare_map(&mut self, entries: &[(Expr, Expr)], map: &[(Value, Value)], path: &str) -> Compared {
        let mut left: Vec<_> = map.iter().collect();
        for (key, expected) in entries {
            let key_value = self.value(key, "*");
            let path = format!("{path}.{}", key_value.as_str().unwrap_or("?"));
            let Some(at) = left.iter().position(|(found, _)| *found == key_value) else {
                return Err(format!("{path}: expected {expected:?}, found nothing"));
            };
            let (_, found) = left.remove(at);
            let own = id_kind(key).and_then(|kind| {
                let is_new = self.id(kind, expected).is_none();
                self.compare_id(kind, is_new, expected, found)
            });
            let is_free = key_value.as_str().is_some_and(|key| FREE_KEYS.contains(&key));
            if is_free && self.value(expected, "*").kind() == found.kind() {
                continue;
            }
            own.unwrap_or_else(|| self.compare(expected, "*", found, &path))?;
        }
        if left.is_empty() { Ok(()) } else { Err(format!("{path}: not expected: {left:?}")) }
    }

    pub(super) fn compare_sections(&mut self, sections: &[Expr], mut bytes: &[u8], path: &str) -> Compared {
        let mut found = Vec::new();
        while !bytes.is_empty() {
            let mut decoder = Decoder::new(bytes);
            found.push(Value::decode(&mut decoder).map_err(|error| format!("{path}: {error}"))?);
            bytes = decoder.remaining();
        }
        if sections.len() != found.len() {
            let names: Vec<_> = found.iter().map(described_name).collect();
            return Err(format!("{path}: expected {} sections, found {names:?}", sections.len()));
        }
        let mut pairs = sections.iter().zip(&found);
        pairs.try_for_each(|(expected, found)| {
            self.compare(expected, "*", found, &format!("{path} {}", described_name(found)))
        })
    }
}

/// Returns the name of a described type of the standard.
pub(super) fn described_name(value: &Value) -> &'static str {
    value.as_described().and_then(|described| described.descriptor.as_u64()).map_or("?", name_of)
}

fn differs(path: &str, expected: &Expr, found: &Value) -> Compared {
    Err(format!("{path}: expected {expected:?}, found {found:?}"))
}

#[cfg(test)]
mod tests {
    use super::{Compared, Known, Value};
    use crate::dotnet::notation::{section, value};

    /// Compares a line of a recording with the frame that another line describes.
    fn compare(expected: &str, found: &str) -> Compared {
        let found = Known::default().value(&value(found), "*");
        Known::default().compare(&value(expected), "*", &found, "")
    }

    #[test]
    fn ids_times_and_texts_may_differ() {
        let refused =
            |text: &str| format!("rejected {{error: error {{condition: :a, description: {text}}}}}");
        compare(&refused("\"as it was\""), &refused("\"as it is\"")).unwrap();
        compare("declared {txn-id: b#00}", "declared {txn-id: b#0102}").unwrap();
        let time = |time: &str| format!("properties {{creation-time: {time}}}");
        compare(&time("2026-11-17T20:31:07.986Z"), &time("2026-11-18T00:00:00.000Z")).unwrap();
    }

    #[test]
    fn everything_else_is_compared() {
        let recorded =
            "attach {name: \"a\", handle: 0, role: sender, max-message-size: 5, properties: {:n: 1:int}}";
        compare(recorded, recorded).unwrap();
        for (part, other) in [
            ("\"a\"", "\"b\""),
            ("sender", "receiver"),
            ("5", "6"),
            (", max-message-size: 5", ""),
            ("5", "5, initial-delivery-count: 0"),
            ("1:int", "1:long"),
            (":n: 1:int", ""),
            (":n: 1:int", ":n: 1:int, :m: 1:int"),
            (":n:", "\"n\":"),
        ] {
            compare(recorded, &recorded.replace(part, other)).unwrap_err();
        }
        compare("accepted {}", "released {}").unwrap_err();
    }

    #[test]
    fn a_name_stands_for_one_token() {
        let mut known = Known::default();
        let token = value("array[uuid(guid-1), uuid(guid-2), uuid(guid-1)]");
        let tokens = |last| [1, 2, last].map(|byte| Value::Uuid([byte; 16])).to_vec();
        let array = |last| peeklock_amqp::Array::new(peeklock_amqp::Kind::Uuid, tokens(last)).unwrap().into();
        known.compare(&token, "*", &array(1), "").unwrap();
        known.compare(&token, "*", &array(2), "").unwrap_err();
    }

    #[test]
    fn a_missing_or_additional_section_is_reported() {
        let mut known = Known::default();
        let sections = [section("properties {message-id: \"a\"}"), section("data b\"x\"")];
        let bytes = known.encoded(&sections);
        known.compare_sections(&sections, &bytes, "").unwrap();
        known.compare_sections(&sections[1..], &bytes, "").unwrap_err();
        known.compare_sections(&sections, &known.encoded(&sections[..1]), "").unwrap_err();
    }
}
