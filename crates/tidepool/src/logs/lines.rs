//! The format of log lines: text or JSON, always one line.
//!
//! The format is that of `tracing`. This code exists because logged values may come from untrusted users, and must
//! neither end the line nor fill the disk.

use std::fmt;

use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::Value;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::FmtContext;
use tracing_subscriber::fmt::format::{FormatEvent, FormatFields, Writer};
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::registry::LookupSpan;

use crate::foreign::{cut, one_line};

/// Score tables have several lines, of names and numbers only.
const TABLES: &str = "scores";

#[derive(Clone, Copy)]
pub(super) enum Lines {
    Text,
    Json,
}

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let meta = event.metadata();
        let mut fields = Fields {
            whole: meta.target() == TABLES,
            target: None,
            all: Vec::new(),
        };
        event.record(&mut fields);
        let target = fields.target.as_deref().unwrap_or(meta.target());
        match self {
            Self::Text => {
                SystemTime.format_time(&mut writer)?;
                write!(writer, " {:>5} {target}:", meta.level())?;
                fields.write(&mut writer)?;
                writeln!(writer)
            }
            Self::Json => {
                let mut timestamp = String::new();
                SystemTime.format_time(&mut Writer::new(&mut timestamp))?;
                let line = Line {
                    timestamp,
                    level: meta.level().as_str(),
                    fields: &fields,
                    target,
                };
                let line = serde_json::to_string(&line).map_err(|_| fmt::Error)?;
                writeln!(writer, "{line}")
            }
        }
    }
}

#[derive(serde::Serialize)]
struct Line<'a> {
    timestamp: String,
    level: &'static str,
    fields: &'a Fields,
    target: &'a str,
}

/// The fields of an event.
struct Fields {
    /// Without truncation and escapes.
    whole: bool,
    /// The target of an event of the `log` crate.
    target: Option<String>,
    all: Vec<(&'static str, Value)>,
}

impl Fields {
    fn add(&mut self, field: &Field, value: impl Into<Value>) {
        match field.name() {
            "log.target" => self.target = value.into().as_str().map(str::to_owned),
            // The source location.
            name if name.starts_with("log.") => {}
            name => self.all.push((name, value.into())),
        }
    }

    fn add_text(&mut self, field: &Field, text: String) {
        let text = match cut(&text) {
            kept if !self.whole && kept.len() < text.len() => format!("{kept}…"),
            _ => text,
        };
        self.add(field, text);
    }

    /// The message, then the others as `name=value`.
    fn write(&self, writer: &mut Writer<'_>) -> fmt::Result {
        let is_message = |(name, _): &&(&str, Value)| *name == "message";
        for (_, message) in self.all.iter().filter(is_message) {
            match message.as_str() {
                Some(text) if self.whole => write!(writer, " {text}")?,
                Some(text) => write!(writer, " {}", one_line(text))?,
                None => write!(writer, " {message}")?,
            }
        }
        for (name, value) in self.all.iter().filter(|field| !is_message(field)) {
            match value.as_str() {
                // Quoted, so that a value cannot look like another field.
                Some(text) if text.is_empty() || text.contains([' ', '"', '=']) => {
                    write!(writer, " {name}={text:?}")?;
                }
                Some(text) => write!(writer, " {name}={}", one_line(text))?,
                None => write!(writer, " {name}={value}")?,
            }
        }
        Ok(())
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.add_text(field, format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.add_text(field, value.to_owned());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, value);
    }
}

/// In their order, as they came.
impl Serialize for Fields {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.all.len()))?;
        for (name, value) in &self.all {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use serde_json::json;

    use super::*;

    /// What is logged meanwhile, without the time.
    fn logged(lines: Lines, say: impl FnOnce()) -> String {
        #[derive(Clone, Default)]
        struct Buffer(Arc<Mutex<Vec<u8>>>);
        impl io::Write for Buffer {
            fn write(&mut self, text: &[u8]) -> io::Result<usize> {
                self.0.lock().unwrap().extend(text);
                Ok(text.len())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let buffer = Buffer::default();
        let writer = buffer.clone();
        let log = tracing_subscriber::fmt()
            .event_format(lines)
            .with_writer(move || writer.clone());
        tracing::subscriber::with_default(log.finish(), say);
        let text = buffer.0.lock().unwrap().clone();
        let text = String::from_utf8(text).unwrap();
        match lines {
            Lines::Text => text.split_once(' ').unwrap().1.to_owned(),
            Lines::Json => text,
        }
    }

    #[test]
    fn a_stranger_writes_no_line() {
        let forged =
            "1\n2026-01-01T00:00:00Z  INFO x: bind pod=kube-system/fake node=evil\u{1b}[2J";
        let text = logged(Lines::Text, || {
            tracing::warn!(target: "x", pod = "default/a", count = 3, why = %forged, "ignoring invalid setting");
        });
        assert_eq!(
            text,
            " WARN x: ignoring invalid setting pod=default/a count=3 \
             why=\"1\\n2026-01-01T00:00:00Z  INFO x: bind pod=kube-system/fake node=evil\\u{1b}[2J\"\n"
        );
        let text = logged(
            Lines::Text,
            || tracing::info!(target: "x", "it said {forged}"),
        );
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(!text.contains('\u{1b}'), "{text}");
    }

    #[test]
    fn json_has_the_same_and_numbers_as_numbers() {
        let long = "x".repeat(70_000);
        let text = logged(Lines::Json, || {
            tracing::info!(target: "x", pod = "default/a", count = 3, deciding = true, why = %long, "wait\n");
        });
        assert_eq!(text.lines().count(), 1);
        assert!(text.len() < 2_000, "{}", text.len());
        let line: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            (&line["level"], &line["target"]),
            (&json!("INFO"), &json!("x"))
        );
        let fields = &line["fields"];
        assert_eq!(fields["message"], "wait\n");
        assert_eq!(
            (&fields["count"], &fields["deciding"]),
            (&json!(3), &json!(true))
        );
    }

    #[test]
    fn a_table_of_scores_keeps_its_lines() {
        let table = format!("Top10\n{}", "| a |\n".repeat(1_000));
        let text = logged(Lines::Text, || tracing::info!(target: "scores", "{table}"));
        assert_eq!(text, format!(" INFO scores: {table}\n"));
    }
}
