//! Writes XML elements as text.

/// Writes elements in sequence. Texts are escaped; names are trusted, because they are constants of the broker.
#[derive(Default)]
pub struct Writer {
    out: String,
    open: Vec<&'static str>,
}

impl Writer {
    pub fn document() -> Self {
        Writer { out: r#"<?xml version="1.0" encoding="utf-8"?>"#.to_owned(), open: Vec::new() }
    }

    pub fn begin(&mut self, name: &'static str, attributes: &[(&str, &str)]) {
        self.open_tag(name, attributes);
        self.out.push('>');
        self.open.push(name);
    }

    pub fn end(&mut self) {
        if let Some(name) = self.open.pop() {
            self.close_tag(name);
        }
    }

    /// Writes an element without content.
    pub fn empty(&mut self, name: &str, attributes: &[(&str, &str)]) {
        self.open_tag(name, attributes);
        self.out.push_str("/>");
    }

    pub fn text(&mut self, name: &str, text: &str) {
        self.text_with(name, &[], text);
    }

    pub fn text_with(&mut self, name: &str, attributes: &[(&str, &str)], text: &str) {
        self.open_tag(name, attributes);
        self.out.push('>');
        escape(&mut self.out, text);
        self.close_tag(name);
    }

    /// Writes an element with this text; omits the element if there is no text.
    pub fn optional(&mut self, name: &str, text: Option<&str>) {
        if let Some(text) = text {
            self.text(name, text);
        }
    }

    pub fn bool(&mut self, name: &str, value: bool) {
        self.text(name, if value { "true" } else { "false" });
    }

    pub fn number(&mut self, name: &str, value: impl ToString) {
        self.text(name, &value.to_string());
    }

    pub fn finish(self) -> String {
        debug_assert!(self.open.is_empty(), "an element was not closed");
        self.out
    }

    fn open_tag(&mut self, name: &str, attributes: &[(&str, &str)]) {
        self.out.push('<');
        self.out.push_str(name);
        for (key, value) in attributes {
            self.out.push(' ');
            self.out.push_str(key);
            self.out.push_str("=\"");
            escape(&mut self.out, value);
            self.out.push('"');
        }
    }

    fn close_tag(&mut self, name: &str) {
        self.out.push_str("</");
        self.out.push_str(name);
        self.out.push('>');
    }
}

fn escape(out: &mut String, text: &str) {
    for char in text.chars() {
        match char {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            // A parser would convert an unescaped carriage return to a line feed.
            '\r' => out.push_str("&#xD;"),
            // XML cannot represent these characters.
            '\u{0}'..='\u{8}' | '\u{b}' | '\u{c}' | '\u{e}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => {
                out.push('\u{fffd}')
            }
            other => out.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xml::read;

    #[test]
    fn written_xml_can_be_read() {
        let mut writer = Writer::document();
        writer.begin("a", &[("b", "\"<&>'")]);
        writer.text("c", "1 < 2 & 3 > 2 \r\n \u{1}");
        writer.empty("d", &[]);
        writer.end();
        let tree = read(writer.finish().as_bytes()).unwrap();
        assert_eq!(tree.children[0].text, "1 < 2 & 3 > 2 \r\n \u{fffd}");
        assert_eq!(tree.children[1].name, "d");
    }
}
