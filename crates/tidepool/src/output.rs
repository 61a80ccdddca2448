//! Prints answers: as a table for people, or as JSON or YAML for programs.

use anyhow::{Context, Result};
use clap::ValueEnum;
use serde::de::DeserializeOwned;
use serde_json::Value;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people; the format may change
    Table,
    Json,
    Yaml,
}

/// Prints an answer unchanged, or as the table of its type.
pub(crate) fn print<T: DeserializeOwned>(
    format: Format,
    answer: &Value,
    table: impl FnOnce(T) -> String,
) -> Result<()> {
    let text = match format {
        Format::Table => table(T::deserialize(answer).context(
            "cannot read the answer, because the scheduler has another version; use -o json",
        )?),
        Format::Json => serde_json::to_string_pretty(answer).context("cannot write JSON")? + "\n",
        Format::Yaml => serde_saphyr::to_string(answer).context("cannot write YAML")?,
    };
    crate::say(&text)
}

/// The number with the noun, which gets an `s` unless there is one: `1 pod`, `2 pods`.
pub(crate) fn count(number: impl std::fmt::Display, noun: &str) -> String {
    match number.to_string() {
        one if one == "1" => format!("1 {noun}"),
        number => format!("{number} {noun}s"),
    }
}

/// Aligns the columns of rows. Numbers and their headings are aligned right.
pub(crate) fn columns(rows: &[Vec<String>]) -> String {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let cells = |column: usize| rows.iter().filter_map(move |row| row.get(column));
    let width = |column| cells(column).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..count).map(|it| width(it).unwrap_or(0)).collect();
    let is_number = |cell: &String| cell.parse::<f64>().is_ok();
    let numeric: Vec<bool> = (0..count)
        .map(|column| rows.len() > 1 && cells(column).skip(1).all(is_number))
        .collect();
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(&widths).zip(&numeric);
        let line: Vec<String> = cells
            .map(|((cell, &width), &numeric)| match numeric {
                true => format!("{cell:>width$}"),
                false => format!("{cell:width$}"),
            })
            .collect();
        text.push_str(line.join("  ").trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thing_has_no_plural() {
        for (number, want) in [(0, "0 pods"), (1, "1 pod"), (2, "2 pods"), (-1, "-1 pods")] {
            assert_eq!(count(number, "pod"), want);
        }
    }

    #[test]
    fn columns_are_under_each_other() {
        let rows = [
            vec!["NODE", "SCORE", "WHY"],
            vec!["a", "7", "because"],
            vec!["node-2", "120"],
        ];
        let rows = rows.map(|row| row.into_iter().map(str::to_owned).collect());
        assert_eq!(
            columns(&rows),
            "NODE    SCORE  WHY\na           7  because\nnode-2    120\n"
        );
        assert_eq!(columns(&[]), "");
    }
}
