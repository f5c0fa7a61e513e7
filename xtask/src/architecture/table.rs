//! Reads the tables of a Markdown file.

use anyhow::{Result, bail};

/// Returns the rows of the first table below a heading, without the head. Each row has `columns` cells.
pub(super) fn rows<'a>(text: &'a str, heading: &str, columns: usize) -> Result<Vec<Vec<&'a str>>> {
    let mut lines = text.lines().skip_while(|line| *line != heading).skip(1);
    let lines = lines.by_ref().take_while(|line| !line.starts_with("## "));
    let table: Vec<&str> =
        lines.skip_while(|line| !line.starts_with('|')).take_while(|line| line.starts_with('|')).collect();
    if table.len() < 3 {
        bail!("there is no table below '{heading}'");
    }
    let rows: Vec<Vec<&str>> = table.into_iter().skip(2).map(cells).collect();
    match rows.iter().find(|row| row.len() != columns) {
        Some(row) => bail!("a row below '{heading}' has {} cells instead of {columns}: {row:?}", row.len()),
        None => Ok(rows),
    }
}

fn cells(line: &str) -> Vec<&str> {
    line.trim().trim_matches('|').split('|').map(str::trim).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_read_from_the_first_table_below_the_heading() {
        let text = "## One\n| x | y |\n| - | - |\n| 0 | 0 |\n\n## Two\nText.\n\n| a | b |\n| --- | --- |\n| 1 | 2 |\n| 3 | |\n\nMore.\n\
                    | z | z |\n";
        assert_eq!(rows(text, "## Two", 2).unwrap(), [["1", "2"], ["3", ""]]);
        assert!(rows(text, "## Two", 3).is_err());
        assert!(rows(text, "## Three", 2).is_err());
    }
}
