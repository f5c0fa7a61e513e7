//! Parses the recordings of `tests/dotnet`; the README there describes the notation.

/// One request and its answer.
pub(crate) struct Exchange {
    /// The number, and the call of the program.
    pub(crate) title: String,
    pub(crate) method: String,
    pub(crate) uri: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
    pub(crate) status: u16,
    pub(crate) answer_headers: Vec<(String, String)>,
    pub(crate) answer: String,
}

/// Headers that later requests omit if they equal those of the first.
const INHERITED: [&str; 4] = ["Host", "Authorization", "User-Agent", "x-ms-return-client-request-id"];

/// Parses all exchanges of a recording, in order, each with all of its headers.
pub(crate) fn read(text: &str) -> Vec<Exchange> {
    let mut exchanges: Vec<Exchange> = text.split("\n## ").skip(1).map(read_one).collect();
    let inherited: Vec<(String, String)> = exchanges[0].headers.clone();
    for exchange in exchanges.iter_mut().skip(1) {
        for (name, value) in inherited.iter().filter(|(name, _)| INHERITED.contains(&name.as_str())) {
            if header(&exchange.headers, name).is_none() {
                exchange.headers.push((name.clone(), value.clone()));
            }
        }
    }
    exchanges
}

pub(crate) fn header<'a>(headers: &'a [(String, String)], name: &str) -> Option<&'a str> {
    headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
}

fn read_one(text: &str) -> Exchange {
    let title = text.lines().next().unwrap().to_owned();
    let (request, headers, body) = side(text, '>');
    let (status, answer_headers, answer) = side(text, '<');
    let word = |line: &str, at: usize| line.split(' ').nth(at).unwrap().to_owned();
    Exchange {
        method: word(&request, 0),
        uri: word(&request, 1),
        headers,
        body,
        status: word(&status, 1).parse().unwrap(),
        answer_headers,
        answer,
        title,
    }
}

/// Returns the first line, the headers and the body of the lines that start with `mark`.
fn side(text: &str, mark: char) -> (String, Vec<(String, String)>, String) {
    let mut lines = text
        .lines()
        .filter_map(|line| line.strip_prefix(mark))
        .map(|line| line.strip_prefix(' ').unwrap_or(line));
    let first = lines.next().unwrap().to_owned();
    let split =
        |line: &str| line.split_once(": ").map(|(name, value)| (name.to_owned(), value.to_owned())).unwrap();
    let headers = lines.by_ref().take_while(|line| !line.is_empty()).map(split).collect();
    (first, headers, lines.collect::<Vec<_>>().join("\n"))
}
