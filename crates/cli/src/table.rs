//! Tables for terminals.

use std::io::{self, Write};

/// Rows under a heading. Each column is as wide as its widest cell; numbers are right-aligned.
pub(crate) struct Table {
    headings: Vec<Heading>,
    rows: Vec<Vec<String>>,
}

struct Heading {
    text: &'static str,
    is_number: bool,
}

impl Table {
    pub(crate) fn new() -> Self {
        Table { headings: Vec::new(), rows: Vec::new() }
    }

    pub(crate) fn text(mut self, text: &'static str) -> Self {
        self.headings.push(Heading { text, is_number: false });
        self
    }

    pub(crate) fn number(mut self, text: &'static str) -> Self {
        self.headings.push(Heading { text, is_number: true });
        self
    }

    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    pub(crate) fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let headings: Vec<_> = self.headings.iter().map(|heading| heading.text.to_owned()).collect();
        let widths: Vec<_> = (0..headings.len()).map(|column| self.width(column)).collect();
        for row in std::iter::once(&headings).chain(&self.rows) {
            let mut line = String::new();
            for ((cell, width), heading) in row.iter().zip(&widths).zip(&self.headings) {
                let width = *width;
                if heading.is_number {
                    line.push_str(&format!("{cell:>width$}  "));
                } else {
                    line.push_str(&format!("{cell:<width$}  "));
                }
            }
            writeln!(out, "{}", line.trim_end())?;
        }
        Ok(())
    }

    fn width(&self, column: usize) -> usize {
        let heading = self.headings.get(column).map_or("", |heading| heading.text);
        let cells = self.rows.iter().filter_map(|row| row.get(column)).map(String::as_str);
        cells.chain([heading]).map(|cell| cell.chars().count()).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new().text("NAME").number("COUNT").text("WHY");
        table.row(["über-alles", "7", "because"].map(str::to_owned));
        table.row(["x", "1000000", ""].map(str::to_owned));
        let mut out = Vec::new();
        table.write(&mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text, "NAME          COUNT  WHY\nüber-alles        7  because\nx           1000000\n");
    }
}
