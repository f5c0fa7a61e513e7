//! A request without its body: the target taken apart, and what must be so before anything happens.

use std::net::IpAddr;

use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderName, IF_MATCH, IF_NONE_MATCH};
use http::request::Parts;
use http::uri::Scheme;
use peeklock_web::host_of;
use percent_encoding::percent_decode_str;

use crate::problem::Problem;
use crate::state::Arrival;
pub(crate) use peeklock_web::{read_body, shown};

/// Parts of a path; an entity's name has 260 characters at most, and the longest path five parts more.
const SEGMENT_COUNT_MAX: usize = 300;

/// Where and how a request came in.
pub(crate) struct Head {
    pub(crate) parts: Parts,
    /// The parts of the path, decoded; a slash at the end makes no part.
    pub(crate) segments: Vec<String>,
    query: Vec<(String, String)>,
}

/// Which state of the thing a request is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Condition {
    None,
    /// `If-Match: *`: any, but it must be there.
    Exists,
    /// `If-Match`: exactly this one.
    Revision(u64),
    /// `If-Match` with a tag that was never ours.
    Unknown,
    /// `If-None-Match: *`: none.
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

    /// A number in the query.
    pub(crate) fn query_number(&self, name: &str) -> Result<Option<u64>, Problem> {
        self.query(name)
            .map(|text| {
                let wrong =
                    || Problem::bad(format!("the query's '{name}' is '{}'; give a number", shown(text)));
                text.parse().map_err(|_| wrong())
            })
            .transpose()
    }

    /// Refuses what this request does not know, so that a typing error is not taken for consent.
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

    /// Host and port as the client wrote them.
    pub(crate) fn authority(&self) -> &str {
        let of_target = || self.parts.uri.authority().map(http::uri::Authority::as_str);
        self.header(&HOST).or_else(of_target).unwrap_or("localhost")
    }

    /// The address of this server, as links in answers begin.
    pub(crate) fn base(&self) -> String {
        let scheme = self.parts.extensions.get::<Scheme>().map_or("http", Scheme::as_str);
        format!("{scheme}://{}", self.authority())
    }

    pub(crate) fn arrival(&self) -> Option<&Arrival> {
        self.parts.extensions.get()
    }

    /// From a program on this machine that knows it. A page in a browser can be led here under a name of its own, which is none of ours.
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

    /// Whether the client has this state already.
    pub(crate) fn has_already(&self, revision: u64) -> bool {
        let tags = self.header(&IF_NONE_MATCH).unwrap_or_default();
        tags.split(',').any(|tag| parse_tag(tag.trim()) == Some(revision))
    }

    /// Refuses a body of another kind. None named: taken for the right one.
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

fn is_loopback_host(host: &str) -> bool {
    let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    host.eq_ignore_ascii_case("localhost")
        || address.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// An entity tag of ours is the revision in quotes; weak ones are as good.
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
    fn paths_and_queries_are_taken_apart() {
        let head = head("/a%2Fb/Subscriptions/?api-version=2021-05&%24top=2&$skip=0", &[]).unwrap();
        assert_eq!(head.segments, ["a/b", "Subscriptions"]);
        assert_eq!(head.query("API-Version"), Some("2021-05"));
        assert_eq!(head.query_number("$top").unwrap(), Some(2));
        assert!(head.check_query(&["api-version", "$top"]).is_err());
    }

    #[test]
    fn what_cannot_be_decoded_is_refused() {
        assert!(head("/%ff", &[]).is_err());
        assert!(head("/a?b=%ff", &[]).is_err());
        assert!(head("/a?$top=x", &[]).unwrap().query_number("$top").is_err());
        assert!(head(&"/a".repeat(SEGMENT_COUNT_MAX + 1), &[]).is_err());
        assert_eq!(head("/", &[]).unwrap().segments, Vec::<String>::new());
    }

    #[test]
    fn names_of_this_machine_are_known() {
        for host in ["localhost", "LOCALHOST", "127.0.0.1", "127.1.2.3", "[::1]", "::1"] {
            assert!(is_loopback_host(host), "{host}");
        }
        for host in ["", "evil.example", "localhost.evil.example", "0.0.0.0", "10.0.0.1", "[::2]"] {
            assert!(!is_loopback_host(host), "{host}");
        }
    }

    #[test]
    fn conditions_are_read() {
        let condition = |name, value| head("/a", &[(name, value)]).unwrap().condition();
        assert_eq!(condition("if-match", "*"), Condition::Exists);
        assert_eq!(condition("if-match", "\"7\""), Condition::Revision(7));
        assert_eq!(condition("if-match", "W/\"7\""), Condition::Revision(7));
        assert_eq!(condition("if-match", "abc"), Condition::Unknown);
        assert_eq!(condition("if-none-match", "*"), Condition::IsNew);
        assert!(head("/a", &[("if-none-match", "\"6\", \"7\"")]).unwrap().has_already(7));
    }
}
