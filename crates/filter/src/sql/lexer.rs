//! Splits text into tokens.

use std::ops::Range;

/// A token and its byte range in the text.
#[derive(Clone, Debug)]
pub(super) struct Lexeme {
    pub(super) token: Token,
    pub(super) span: Range<usize>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    /// A keyword or a name; the parser decides.
    Word,
    /// `[name]` or `"name"`, without its quotes.
    Quoted(String),
    Text(String),
    /// A whole number without its sign, so that the smallest `i64` can be written.
    Integer(u64),
    Decimal(f64),
    Parameter,
    Symbol(&'static str),
    End,
    /// A character that no token begins with. It is the last token.
    Bad {
        found: String,
        expected: &'static str,
    },
}

/// Longer symbols come first, so that `<=` is not read as `<`.
const SYMBOLS: [&str; 17] =
    ["<=", ">=", "<>", "!=", "=", "<", ">", "+", "-", "*", "/", "%", "(", ")", ",", ".", ";"];

pub(super) fn tokens(source: &str) -> Vec<Lexeme> {
    let mut lexer = Lexer { source, at: 0 };
    let mut lexemes = Vec::new();
    loop {
        lexer.skip_space();
        let start = lexer.at;
        let token = lexer.next();
        let is_last = matches!(token, Token::End | Token::Bad { .. });
        lexemes.push(Lexeme { token, span: start..lexer.at });
        if is_last {
            return lexemes;
        }
    }
}

struct Lexer<'a> {
    source: &'a str,
    at: usize,
}

impl<'a> Lexer<'a> {
    fn rest(&self) -> &'a str {
        self.source.get(self.at..).unwrap_or_default()
    }

    fn take_while(&mut self, belongs: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let end = rest.find(|c| !belongs(c)).unwrap_or(rest.len());
        self.at += end;
        rest.get(..end).unwrap_or_default()
    }

    fn skip_space(&mut self) {
        self.take_while(char::is_whitespace);
    }

    fn next(&mut self) -> Token {
        let mut chars = self.rest().chars();
        let Some(first) = chars.next() else { return Token::End };
        match first {
            '\'' => self.quoted('\'').map_or_else(|bad| bad, Token::Text),
            '"' => self.quoted('"').map_or_else(|bad| bad, Token::Quoted),
            '[' => self.quoted(']').map_or_else(|bad| bad, Token::Quoted),
            '@' => self.parameter(),
            '0'..='9' => self.number(),
            '.' if chars.next().is_some_and(|c| c.is_ascii_digit()) => self.number(),
            c if starts_name(c) => {
                self.take_while(continues_name);
                Token::Word
            }
            c => self.symbol(c),
        }
    }

    fn symbol(&mut self, first: char) -> Token {
        let Some(symbol) = SYMBOLS.into_iter().find(|symbol| self.rest().starts_with(symbol)) else {
            return bad(format!("the character {first:?}"), "a property, a value or an operator");
        };
        self.at += symbol.len();
        Token::Symbol(symbol)
    }

    fn parameter(&mut self) -> Token {
        self.at += 1;
        if self.take_while(continues_name).is_empty() {
            return bad("'@' alone".to_owned(), "the name of a parameter right behind '@'");
        }
        Token::Parameter
    }

    /// Reads text up to the closing quote. A doubled closing quote stands for itself.
    fn quoted(&mut self, closing: char) -> Result<String, Token> {
        let mut text = String::new();
        let mut chars = self.rest().char_indices().skip(1).peekable();
        while let Some((at, c)) = chars.next() {
            if c != closing {
                text.push(c);
            } else if chars.next_if(|(_, next)| *next == closing).is_some() {
                text.push(closing);
            } else {
                self.at += at + closing.len_utf8();
                return Ok(text);
            }
        }
        let (found, expected) = match closing {
            '\'' => ("a text that does not end", "a closing quote (')"),
            ']' => ("a name that does not end", "a closing bracket (])"),
            _ => ("a name that does not end", "a closing double quote (\")"),
        };
        Err(bad(found.to_owned(), expected))
    }

    fn number(&mut self) -> Token {
        let start = self.at;
        self.take_while(|c| c.is_ascii_digit());
        let mut is_whole = true;
        if self.rest().starts_with('.') {
            is_whole = false;
            self.at += 1;
            self.take_while(|c| c.is_ascii_digit());
        }
        if self.rest().starts_with(['e', 'E']) {
            is_whole = false;
            self.at += 1;
            if self.rest().starts_with(['+', '-']) {
                self.at += 1;
            }
            self.take_while(|c| c.is_ascii_digit());
        }
        let has_tail = !self.take_while(continues_name).is_empty();
        let text = self.source.get(start..self.at).unwrap_or_default();
        let token = match is_whole {
            _ if has_tail => None,
            true => text.parse().ok().map(Token::Integer),
            false => text.parse().ok().filter(|number: &f64| number.is_finite()).map(Token::Decimal),
        };
        token.unwrap_or_else(|| bad(format!("'{text}'"), "a number such as 5, 0.5 or 1.5e3"))
    }
}

fn bad(found: String, expected: &'static str) -> Token {
    Token::Bad { found, expected }
}

fn starts_name(c: char) -> bool {
    c.is_alphabetic() || c == '_'
}

fn continues_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}
