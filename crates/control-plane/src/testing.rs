//! For tests: what is logged.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use tracing::subscriber::DefaultGuard;

/// Holds what this thread logs from its begin on.
pub(crate) struct Log {
    text: Text,
    _guard: DefaultGuard,
}

#[derive(Clone, Default)]
struct Text(Arc<Mutex<Vec<u8>>>);

impl Log {
    pub(crate) fn begin() -> Self {
        let text = Text::default();
        let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer({
            let text = text.clone();
            move || text.clone()
        });
        Self {
            text,
            _guard: tracing::subscriber::set_default(subscriber.finish()),
        }
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        let text = self.text.0.lock().unwrap().clone();
        let text = String::from_utf8(text).unwrap();
        text.lines().map(str::to_owned).collect()
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
