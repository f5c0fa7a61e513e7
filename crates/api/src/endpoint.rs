//! One operation of the API, declared once for the server and the client.

use std::marker::PhantomData;

use http::Method;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::query::Query;

/// A method at one or more paths, with the types of its query `Q`, its body `B` and its answer `A`.
pub struct Endpoint<Q, B, A> {
    pub method: Method,
    /// The paths, with `{…}` for each name.
    pub paths: &'static [&'static str],
    /// A summary in one line for the OpenAPI description.
    pub summary: &'static str,
    /// The statuses of a success.
    pub statuses: &'static [u16],
    types: PhantomData<fn(Q, B) -> A>,
}

pub type Get<A, Q = ()> = Endpoint<Q, (), A>;
pub type Put<B, A> = Endpoint<(), B, A>;
pub type Post<B, A> = Endpoint<(), B, A>;
pub type Delete = Endpoint<(), (), ()>;

/// A page of a collection. The query of the following page has `next` as its `after` or `from`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "{T}Page")]
pub struct Page<T> {
    pub items: Vec<T>,
    /// Absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

impl<T> Page<T> {
    /// Returns a collection that always fits one page.
    pub fn whole(items: impl IntoIterator<Item = T>) -> Self {
        Page { items: items.into_iter().collect(), next: None }
    }
}

impl<Q, A> Endpoint<Q, (), A> {
    pub const fn get(paths: &'static [&'static str], summary: &'static str) -> Self {
        Self { method: Method::GET, paths, summary, statuses: &[200], types: PhantomData }
    }
}

impl<B, A> Endpoint<(), B, A> {
    /// Declares a `PUT`, which creates or changes and is idempotent.
    pub const fn put(paths: &'static [&'static str], summary: &'static str) -> Self {
        Self { method: Method::PUT, paths, summary, statuses: &[200, 201], types: PhantomData }
    }

    pub const fn post(paths: &'static [&'static str], summary: &'static str) -> Self {
        Self { method: Method::POST, paths, summary, statuses: &[200], types: PhantomData }
    }

    /// Declares a `POST` that creates something.
    pub const fn post_new(paths: &'static [&'static str], summary: &'static str) -> Self {
        Self { method: Method::POST, paths, summary, statuses: &[201], types: PhantomData }
    }
}

impl Endpoint<(), (), ()> {
    pub const fn delete(paths: &'static [&'static str], summary: &'static str) -> Self {
        Self { method: Method::DELETE, paths, summary, statuses: &[204], types: PhantomData }
    }
}

impl<Q: Query, B, A> Endpoint<Q, B, A> {
    /// Returns whether requests have a body.
    pub fn takes_body(&self) -> bool {
        self.method == Method::PUT || self.method == Method::POST
    }

    /// Returns the path and query of a request. `names` are the names in the path from left to right, each with its
    /// key.
    ///
    /// # Panics
    /// If no path of the endpoint has these keys.
    pub fn uri(&self, names: &[(&str, &str)], query: &Q) -> String {
        let keys = || names.iter().map(|(key, _)| *key);
        let path = self.paths.iter().find(|path| parameters(path).eq(keys()));
        let path = path.unwrap_or_else(|| panic!("{:?} have no path with {names:?}", self.paths));
        let mut values = names.iter().map(|(_, value)| *value);
        let mut uri = String::new();
        for part in path.trim_start_matches('/').split('/') {
            let value = parameter(part).and_then(|_| values.next());
            uri.push('/');
            uri.push_str(&value.map_or_else(|| part.to_owned(), encode));
        }
        let pairs = query.pairs().into_iter().map(|(key, value)| format!("{key}={}", encode(&value)));
        let query = pairs.collect::<Vec<_>>().join("&");
        if query.is_empty() { uri } else { format!("{uri}?{query}") }
    }
}

/// Returns the keys of the names in a path, from left to right.
pub fn parameters(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter_map(parameter)
}

fn parameter(part: &str) -> Option<&str> {
    part.strip_prefix('{')?.strip_suffix('}')
}

/// Encodes one segment of a path or one value of a query; a '/' in a name is escaped.
fn encode(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

#[cfg(test)]
mod tests {
    use crate::{PageQuery, policies, queues, rules};

    #[test]
    fn each_name_is_one_segment_of_the_path() {
        let names = [("topic", "shop/orders"), ("subscription", "a.b"), ("rule", "$Default")];
        let uri = rules::SHOW.uri(&names, &());
        assert_eq!(uri, "/api/topics/shop%2Forders/subscriptions/a%2Eb/rules/%24Default");
        let names = [("topic", "shop/orders"), ("policy", "app key")];
        assert_eq!(policies::SHOW.uri(&names, &()), "/api/topics/shop%2Forders/policies/app%20key");
        assert_eq!(policies::LIST.uri(&[], &PageQuery::default()), "/api/policies");
    }

    #[test]
    fn a_query_has_only_the_given_values() {
        let query = PageQuery { top: Some(2), after: Some("a b".to_owned()) };
        assert_eq!(queues::LIST.uri(&[], &query), "/api/queues?top=2&after=a%20b");
        assert_eq!(queues::LIST.uri(&[], &PageQuery::default()), "/api/queues");
    }
}
