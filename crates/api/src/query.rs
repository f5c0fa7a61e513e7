//! Queries: the parameters of an endpoint, how a server parses them and how a client writes them.

use peeklock_types::SubQueue;

/// The parameters of an endpoint. All of them are optional.
pub trait Query: Sized {
    const PARAMETERS: &'static [Parameter];

    /// Parses the parameters; `value` returns the text of one, if the request has it.
    fn read<'q>(value: impl Fn(&str) -> Option<&'q str>) -> Result<Self, WrongValue>;

    /// Returns the given parameters as text.
    fn pairs(&self) -> Vec<(&'static str, String)>;
}

/// One parameter, for the OpenAPI description.
#[derive(Debug)]
pub struct Parameter {
    pub name: &'static str,
    /// The type in JSON Schema.
    pub kind: &'static str,
    pub description: &'static str,
}

/// A parameter whose value cannot be parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrongValue {
    pub name: &'static str,
    /// The expected value.
    pub wanted: &'static str,
}

/// The value of a parameter.
pub(crate) trait Value: Sized {
    const KIND: &'static str;
    const WANTED: &'static str;
    fn parse(text: &str) -> Option<Self>;
    fn show(&self) -> String;
}

impl Value for u64 {
    const KIND: &'static str = "integer";
    const WANTED: &'static str = "a number";

    fn parse(text: &str) -> Option<Self> {
        text.parse().ok()
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

impl Value for String {
    const KIND: &'static str = "string";
    const WANTED: &'static str = "text";

    fn parse(text: &str) -> Option<Self> {
        Some(text.to_owned())
    }

    fn show(&self) -> String {
        self.clone()
    }
}

const SUB_QUEUES: [(&str, SubQueue); 2] =
    [("deadLetter", SubQueue::DeadLetter), ("transferDeadLetter", SubQueue::TransferDeadLetter)];

impl Value for SubQueue {
    const KIND: &'static str = "string";
    const WANTED: &'static str = "deadLetter or transferDeadLetter, or leave it out";

    fn parse(text: &str) -> Option<Self> {
        SUB_QUEUES.iter().find(|(word, _)| word.eq_ignore_ascii_case(text)).map(|(_, sub_queue)| *sub_queue)
    }

    fn show(&self) -> String {
        let word = SUB_QUEUES.iter().find(|(_, sub_queue)| sub_queue == self);
        word.map_or_else(String::new, |(word, _)| (*word).to_owned())
    }
}

impl Query for () {
    const PARAMETERS: &'static [Parameter] = &[];

    fn read<'q>(_: impl Fn(&str) -> Option<&'q str>) -> Result<Self, WrongValue> {
        Ok(())
    }

    fn pairs(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }
}

/// Declares a query: for each parameter its field, its type, its name in the request and its description.
macro_rules! query {
    ($(#[$doc:meta])* $query:ident { $( $field:ident: $kind:ty = $name:literal, $description:literal; )* }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct $query {
            $( #[doc = $description] pub $field: Option<$kind>, )*
        }

        impl $crate::query::Query for $query {
            const PARAMETERS: &'static [$crate::query::Parameter] = &[
                $( $crate::query::Parameter {
                    name: $name,
                    kind: <$kind as $crate::query::Value>::KIND,
                    description: $description,
                }, )*
            ];

            fn read<'q>(
                value: impl Fn(&str) -> Option<&'q str>,
            ) -> Result<Self, $crate::query::WrongValue> {
                use $crate::query::{Value, WrongValue};
                Ok($query { $( $field: match value($name) {
                    None => None,
                    Some(text) => {
                        let wrong = WrongValue { name: $name, wanted: <$kind as Value>::WANTED };
                        Some(<$kind as Value>::parse(text).ok_or(wrong)?)
                    }
                }, )* })
            }

            fn pairs(&self) -> Vec<(&'static str, String)> {
                let pairs = [$( self.$field.as_ref().map(|value| ($name, $crate::query::Value::show(value))), )*];
                pairs.into_iter().flatten().collect()
            }
        }
    };
}
pub(crate) use query;

query! {
    /// A page of a collection.
    PageQuery {
        top: u64 = "top", "The maximum number of items; 100 by default";
        after: String = "after", "The 'next' of the previous page";
    }
}
