//! For tests, of other crates too: captures the log of a thread.

#![allow(clippy::unwrap_used, reason = "only tests use it")]

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use tracing::subscriber::DefaultGuard;

/// The log of this thread since `begin`.
pub struct Log {
    text: Text,
    _guard: DefaultGuard,
}

#[derive(Clone, Default)]
struct Text(Arc<Mutex<Vec<u8>>>);

impl Log {
    pub fn begin() -> Self {
        let (text, log) = (Text::default(), tracing_subscriber::fmt());
        let log = log.with_ansi(false).with_writer(text.writer());
        Self {
            text,
            _guard: tracing::subscriber::set_default(log.finish()),
        }
    }

    /// Lines as JSON.
    pub fn begin_json() -> Self {
        let (text, log) = (Text::default(), tracing_subscriber::fmt().json());
        let log = log.with_writer(text.writer());
        Self {
            text,
            _guard: tracing::subscriber::set_default(log.finish()),
        }
    }

    pub fn lines(&self) -> Vec<String> {
        let text = self.text.0.lock().unwrap().clone();
        let text = String::from_utf8(text).unwrap();
        text.lines().map(str::to_owned).collect()
    }
}

impl Text {
    fn writer(&self) -> impl Fn() -> Self + Send + Sync + 'static {
        let text = self.clone();
        move || text.clone()
    }
}

impl Write for Text {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
