//! The findings of field validation in a document: unknown and duplicate fields.

/// The real server stops counting here, too.
pub(super) const MAX_FINDINGS: usize = 100;

/// Messages in the order in which they are reported, each once.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    pub(super) messages: Vec<String>,
}

impl Findings {
    pub(super) fn unknown(&mut self, path: &str) {
        self.add(|| format!("unknown field {path:?}"));
    }

    pub(super) fn duplicate(&mut self, path: &str) {
        self.add(|| format!("duplicate field {path:?}"));
    }

    pub(super) fn add(&mut self, message: impl FnOnce() -> String) {
        if self.messages.len() < MAX_FINDINGS {
            let message = message();
            if !self.messages.contains(&message) {
                self.messages.push(message);
            }
        }
    }
}
