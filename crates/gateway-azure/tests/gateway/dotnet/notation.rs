//! Parses the notation of values in recordings: see `tests/dotnet/README.md`.

/// A value in the notation of a recording.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Expr {
    /// A number, a time, a boolean, null or another word, and its type suffix.
    Word(String, Option<String>),
    Text(String),
    Symbol(String),
    Binary(Vec<u8>),
    Char(char),
    Uuid(String),
    /// A delivery tag that is a lock token in .NET's byte order.
    Tag(String),
    List(Vec<Expr>),
    Array(Vec<Expr>),
    Map(Vec<(Expr, Expr)>),
    Described(Box<Expr>, Box<Expr>),
    /// A type of the standard with named fields.
    Composite(String, Fields),
    /// A section of a message that is not a composite.
    Section(String, Box<Expr>),
    /// A binary that contains an encoded message.
    Message(Vec<Expr>),
}

pub(super) type Fields = Vec<(String, Expr)>;

/// The field that represents "the rest as for ch1" until it is filled in.
pub(super) const THE_REST: &str = "the rest";

impl Expr {
    pub(super) fn word(text: &str) -> Self {
        Self::Word(text.to_owned(), None)
    }

    pub(super) fn is_word(&self, text: &str) -> bool {
        matches!(self, Self::Word(found, _) if found == text)
    }

    pub(super) fn fields(&self) -> &Fields {
        match self {
            Self::Composite(_, fields) => fields,
            other => panic!("no fields in {other:?}"),
        }
    }

    /// Returns the field of that name.
    pub(super) fn get(&self, name: &str) -> Option<&Expr> {
        self.fields().iter().find(|(found, _)| found == name).map(|(_, value)| value)
    }

    pub(super) fn number(&self) -> u32 {
        match self {
            Self::Word(text, _) => text.parse().unwrap_or_else(|_| panic!("not a number: {text}")),
            other => panic!("not a number: {other:?}"),
        }
    }

    /// Applies a change to every value, the innermost first.
    pub(super) fn for_each(&mut self, change: &mut impl FnMut(&mut Expr)) {
        match self {
            Self::List(all) | Self::Array(all) | Self::Message(all) => {
                all.iter_mut().for_each(|one| one.for_each(change));
            }
            Self::Map(entries) => entries.iter_mut().for_each(|(key, value)| {
                key.for_each(change);
                value.for_each(change);
            }),
            Self::Described(_, value) | Self::Section(_, value) => value.for_each(change),
            Self::Composite(_, fields) => fields.iter_mut().for_each(|(_, value)| value.for_each(change)),
            _ => {}
        }
        change(self);
    }
}

/// Parses a performative, such as `attach {name: "a" (=L1), handle: 0}`, and the name that it gives to a link.
pub(super) fn performative(text: &str) -> (Expr, Option<String>) {
    let mut parser = Parser { rest: text, link: None };
    let expr = parser.value();
    assert!(parser.rest.is_empty(), "left over: {}", parser.rest);
    (expr, parser.link)
}

pub(super) fn value(text: &str) -> Expr {
    performative(text).0
}

/// Parses a section of a message, such as `data b"x"`.
pub(super) fn section(text: &str) -> Expr {
    if text.starts_with("header {") || text.starts_with("properties {") {
        return value(text);
    }
    let (name, content) = text.split_once(' ').unwrap_or_else(|| panic!("not a section: {text}"));
    Expr::Section(name.to_owned(), Box::new(value(content)))
}

/// The prefix of a value, and the parser for the rest.
type Form = (&'static str, fn(&mut Parser<'_>) -> Expr);

const FORMS: &[Form] = &[
    ("\"", |parser| Expr::Text(parser.until_closing('"'))),
    ("b\"", |parser| Expr::Binary(parser.until_closing('"').into_bytes())),
    ("b#", |parser| Expr::Binary(unhex(parser.token()))),
    ("uuid(", |parser| Expr::Uuid(parser.until_closing(')'))),
    ("tag(", |parser| Expr::Tag(parser.until_closing(')'))),
    ("array[", |parser| Expr::Array(parser.items("]", Parser::value))),
    ("list[", |parser| Expr::List(parser.items("]", Parser::value))),
    ("{", |parser| Expr::Map(parser.items("}", Parser::entry))),
    ("@", |parser| parser.described()),
    ("'", |parser| parser.character()),
    ("as sent", |_| Expr::word("as sent")),
    // The content of these two is on the lines below.
    ("binary, decoded below", |_| Expr::Message(Vec::new())),
    ("list of ", |parser| {
        parser.token();
        Expr::List(Vec::new())
    }),
];

struct Parser<'a> {
    rest: &'a str,
    link: Option<String>,
}

impl<'a> Parser<'a> {
    fn takes(&mut self, prefix: &str) -> bool {
        self.rest.strip_prefix(prefix).map(|rest| self.rest = rest).is_some()
    }

    fn expects(&mut self, prefix: &str) {
        assert!(self.takes(prefix), "expected {prefix} before: {}", self.rest);
    }

    fn until(&mut self, is_end: impl Fn(char) -> bool) -> &'a str {
        let len = self.rest.find(is_end).unwrap_or(self.rest.len());
        let (token, rest) = self.rest.split_at(len);
        self.rest = rest;
        token
    }

    /// Consumes and returns the text before that character, and consumes the character.
    fn until_closing(&mut self, closing: char) -> String {
        let token = self.until(|found| found == closing).to_owned();
        self.rest = self.rest.strip_prefix(closing).unwrap_or_else(|| panic!("{token} does not end"));
        token
    }

    fn value(&mut self) -> Expr {
        match FORMS.iter().find(|(start, _)| self.takes(start)) {
            Some((_, read)) => read(self),
            None if self.rest.starts_with(':') => Expr::Symbol(self.symbol()),
            None => self.word_or_composite(),
        }
    }

    /// Consumes the text up to the next character that can follow a word.
    fn token(&mut self) -> &'a str {
        self.until(|found| ",}]) (".contains(found))
    }

    fn items<T>(&mut self, end: &str, mut item: impl FnMut(&mut Self) -> T) -> Vec<T> {
        let mut items = Vec::new();
        while !self.takes(end) {
            if !items.is_empty() {
                self.expects(", ");
            }
            items.push(item(self));
        }
        items
    }

    fn entry(&mut self) -> (Expr, Expr) {
        let key = self.value();
        self.expects(": ");
        (key, self.value())
    }

    fn field(&mut self) -> (String, Expr) {
        if self.takes("the rest as for ") {
            return (THE_REST.to_owned(), Expr::word(self.token()));
        }
        let name = self.until(|found| found == ':').to_owned();
        self.expects(": ");
        let value = self.value();
        if self.takes(" (=") {
            self.link = Some(self.until_closing(')'));
        }
        (name, value)
    }

    /// Parses a symbol. It may contain colons; as a map key it ends with a colon and a space.
    fn symbol(&mut self) -> String {
        let whole = self.rest;
        let token = self.token();
        let name = match token.strip_suffix(':') {
            Some(key) if self.rest.starts_with(' ') => key,
            _ => token,
        };
        self.rest = &whole[name.len()..];
        name[1..].to_owned()
    }

    fn described(&mut self) -> Expr {
        let descriptor = self.until_closing('(');
        let descriptor = match descriptor.strip_prefix(':') {
            Some(symbol) => Expr::Symbol(symbol.to_owned()),
            None => Expr::Word(descriptor, Some("ulong".to_owned())),
        };
        let value = self.value();
        self.expects(")");
        Expr::Described(Box::new(descriptor), Box::new(value))
    }

    fn character(&mut self) -> Expr {
        let text = self.until_closing('\'');
        self.expects(":char");
        Expr::Char(text.chars().next().expect("a character"))
    }

    fn word_or_composite(&mut self) -> Expr {
        let token = self.token();
        if self.takes(" {") {
            return Expr::Composite(token.to_owned(), self.items("}", Self::field));
        }
        match token.rsplit_once(':') {
            Some((text, kind)) if kind.starts_with(char::is_alphabetic) => {
                Expr::Word(text.to_owned(), Some(kind.to_owned()))
            }
            _ => Expr::word(token),
        }
    }
}

pub(super) fn unhex(digits: &str) -> Vec<u8> {
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.as_bytes().chunks(2).map(byte).collect()
}
