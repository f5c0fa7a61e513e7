//! A request without its body: its target in parts, and its preconditions.

use std::net::IpAddr;

use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderName, IF_MATCH, IF_NONE_MATCH};
use http::request::Parts;
use http::uri::Scheme;
use peeklock_web::host_of;
use percent_encoding::percent_decode_str;

use crate::problem::Problem;
use crate::state::Arrival;
pub(crate) use peeklock_web::{read_body, shown};

/// The maximum number of segments in a path: the name of an entity has at most 260 characters, and the longest path
/// five more segments.
const SEGMENT_COUNT_MAX: usize = 300;

/// The head of a request.
pub(crate) struct Head {
    pub(crate) parts: Parts,
    /// The decoded segments of the path, without an empty one after a final slash.
    pub(crate) segments: Vec<String>,
    query: Vec<(String, String)>,
}

/// The state that a request requires of its resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Condition {
    None,
    /// `If-Match: *`: the resource must exist.
    Exists,
    /// `If-Match`: exactly this revision.
    Revision(u64),
    /// `If-Match` with a tag that the broker never returned.
    Unknown,
    /// `If-None-Match: *`: the resource must not exist.
    IsNew,
}

impl Head {
    pub(crate) fn new(parts: Parts) -> Result<Self, Problem> {
        let path = parts.uri.path().strip_prefix('/').unwrap_or_default();
        let path = path.strip_suffix('/').unwrap_or(path);
        let raw: Vec<&str> = if path.is_empty() { Vec::new() } else { path.split('/').collect() };
        if raw.len() > SEGMENT_COUNT_MAX {
            return Err(Problem::bad(format!("the path has more than {SEGMENT_COUNT_MAX} parts")));
        }
        let segments = raw.into_iter().map(decode).collect::<Result<_, _>>()?;
        let query = parts.uri.query().unwrap_or_default();
        let pairs = query.split('&').filter(|pair| !pair.is_empty());
        let query = pairs
            .map(|pair| {
                let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
                Ok((decode(key)?, decode(&value.replace('+', " "))?))
            })
            .collect::<Result<_, Problem>>()?;
        Ok(Head { parts, segments, query })
    }

    pub(crate) fn query(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// Returns a number in the query.
    pub(crate) fn query_number(&self, name: &str) -> Result<Option<u64>, Problem> {
        self.query(name)
            .map(|text| {
                let wrong =
                    || Problem::bad(format!("the query's '{name}' is '{}'; give a number", shown(text)));
                text.parse().map_err(|_| wrong())
            })
            .transpose()
    }

    /// Rejects unknown parameters, so that a typing error is not silently ignored.
    pub(crate) fn check_query(&self, known: &[&str]) -> Result<(), Problem> {
        match self.query.iter().find(|(key, _)| !known.contains(&key.as_str())) {
            Some((key, _)) if known.is_empty() => {
                Err(Problem::bad(format!("the query has '{}'; nothing is known here", shown(key))))
            }
            Some((key, _)) => {
                let known = known.join(", ");
                Err(Problem::bad(format!(
                    "the query has '{}'; only these are known here: {known}",
                    shown(key)
                )))
            }
            None => Ok(()),
        }
    }

    pub(crate) fn header(&self, name: &HeaderName) -> Option<&str> {
        self.parts.headers.get(name).and_then(|value| value.to_str().ok())
    }

    pub(crate) fn token(&self) -> Option<&str> {
        self.header(&AUTHORIZATION).map(str::trim)
    }

    /// Returns the host and port as the client wrote them.
    pub(crate) fn authority(&self) -> &str {
        let of_target = || self.parts.uri.authority().map(http::uri::Authority::as_str);
        self.header(&HOST).or_else(of_target).unwrap_or("localhost")
    }

    /// Returns the address of this server, for links in answers.
    pub(crate) fn base(&self) -> String {
        let scheme = self.parts.extensions.get::<Scheme>().map_or("http", Scheme::as_str);
        format!("{scheme}://{}", self.authority())
    }

    pub(crate) fn arrival(&self) -> Option<&Arrival> {
        self.parts.extensions.get()
    }

    /// Returns whether the request is from a local program that addresses the server by a loopback name. A page in a
    /// browser can reach the listener by DNS rebinding, but only under another name.
    pub(crate) fn is_local(&self) -> bool {
        self.arrival().is_some_and(|arrival| arrival.is_loopback)
            && is_loopback_host(host_of(self.authority()))
    }

    pub(crate) fn condition(&self) -> Condition {
        match (self.header(&IF_MATCH).map(str::trim), self.header(&IF_NONE_MATCH).map(str::trim)) {
            (Some("*"), _) => Condition::Exists,
            (Some(tag), _) => parse_tag(tag).map_or(Condition::Unknown, Condition::Revision),
            (None, Some("*")) => Condition::IsNew,
            (None, _) => Condition::None,
        }
    }

    /// Returns whether the client already has this state.
    pub(crate) fn has_already(&self, revision: u64) -> bool {
        let tags = self.header(&IF_NONE_MATCH).unwrap_or_default();
        tags.split(',').any(|tag| parse_tag(tag.trim()) == Some(revision))
    }

    /// Rejects a body of another content type. Without a content type, the expected one is assumed.
    pub(crate) fn check_content_type(&self, known: &[&str], wanted: &'static str) -> Result<(), Problem> {
        let Some(given) = self.header(&CONTENT_TYPE) else { return Ok(()) };
        let kind = given.split(';').next().unwrap_or_default().trim();
        if known.iter().any(|known| kind.eq_ignore_ascii_case(known)) {
            return Ok(());
        }
        Err(Problem::MediaType { given: shown(given), wanted })
    }

    pub(crate) fn not_allowed(&self, allow: &str) -> Problem {
        Problem::Method { method: shown(self.parts.method.as_str()), allow: allow.to_owned() }
    }
}

pub(crate) fn is_loopback_host(host: &str) -> bool {
    let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    host.eq_ignore_ascii_case("localhost")
        || address.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Returns the entity tag of a revision: the revision in quotes. Weak tags are accepted as well.
pub(crate) fn tag(revision: u64) -> String {
    format!("\"{revision}\"")
}

fn parse_tag(tag: &str) -> Option<u64> {
    tag.strip_prefix("W/").unwrap_or(tag).strip_prefix('"')?.strip_suffix('"')?.parse().ok()
}

fn decode(text: &str) -> Result<String, Problem> {
    let decoded = percent_decode_str(text).decode_utf8();
    let decoded = decoded.map_err(|_| Problem::bad("the address is not UTF-8 behind its percent signs"))?;
    Ok(decoded.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(uri: &str, headers: &[(&str, &str)]) -> Result<Head, Problem> {
        let mut request = http::Request::builder().uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        Head::new(request.body(()).unwrap().into_parts().0)
    }

    #[test]
    fn paths_and_queries_are_split() {
        let head = head("/a%2Fb/Subscriptions/?api-version=2021-05&%24top=2&$skip=0", &[]).unwrap();
        assert_eq!(head.segments, ["a/b", "Subscriptions"]);
        assert_eq!(head.query("API-Version"), Some("2021-05"));
        assert_eq!(head.query_number("$top").unwrap(), Some(2));
        assert!(head.check_query(&["api-version", "$top"]).is_err());
    }

    #[test]
    fn malformed_paths_and_queries_are_rejected() {
        assert!(head("/%ff", &[]).is_err());
        assert!(head("/a?b=%ff", &[]).is_err());
        assert!(head("/a?$top=x", &[]).unwrap().query_number("$top").is_err());
        assert!(head(&"/a".repeat(SEGMENT_COUNT_MAX + 1), &[]).is_err());
        assert_eq!(head("/", &[]).unwrap().segments, Vec::<String>::new());
    }

    #[test]
    fn loopback_names_are_recognised() {
        for host in ["localhost", "LOCALHOST", "127.0.0.1", "127.1.2.3", "[::1]", "::1"] {
            assert!(is_loopback_host(host), "{host}");
        }
        for host in ["", "evil.example", "localhost.evil.example", "0.0.0.0", "10.0.0.1", "[::2]"] {
            assert!(!is_loopback_host(host), "{host}");
        }
    }

    #[test]
    fn conditions_are_parsed() {
        let condition = |name, value| head("/a", &[(name, value)]).unwrap().condition();
        assert_eq!(condition("if-match", "*"), Condition::Exists);
        assert_eq!(condition("if-match", "\"7\""), Condition::Revision(7));
        assert_eq!(condition("if-match", "W/\"7\""), Condition::Revision(7));
        assert_eq!(condition("if-match", "abc"), Condition::Unknown);
        assert_eq!(condition("if-none-match", "*"), Condition::IsNew);
        assert!(head("/a", &[("if-none-match", "\"6\", \"7\"")]).unwrap().has_already(7));
    }
}
