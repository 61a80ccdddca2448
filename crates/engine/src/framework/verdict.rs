//! What a filter says: a small code on the hot path, words on demand.

use std::borrow::Cow;

/// The text of one reason. Most are fixed; a few carry a name.
pub type Reason = Cow<'static, str>;

/// A filter's answer for one node: it fits, or a code of the check's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Verdict(u8);

const UNRESOLVABLE: u8 = 0x80;

impl Verdict {
    pub const FITS: Self = Self(0);

    /// No, but removing pods from the node might help. `code` is 1..=127.
    pub const fn unschedulable(code: u8) -> Self {
        assert!(code > 0 && code < UNRESOLVABLE);
        Self(code)
    }

    /// No, and no preemption on this node can change it. `code` is 1..=127.
    pub const fn unresolvable(code: u8) -> Self {
        assert!(code > 0 && code < UNRESOLVABLE);
        Self(code | UNRESOLVABLE)
    }

    pub const fn fits(self) -> bool {
        self.0 == 0
    }

    /// The check's own code, without what removing pods may do; 0 when it fits.
    pub const fn code(self) -> u8 {
        self.0 & !UNRESOLVABLE
    }

    pub const fn is_unresolvable(self) -> bool {
        self.0 & UNRESOLVABLE != 0
    }

    pub(crate) const fn status(self) -> Status {
        if self.is_unresolvable() {
            Status::Unresolvable
        } else {
            Status::Unschedulable
        }
    }
}

/// The ways in which a plugin says no.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
pub enum Status {
    /// Something broke: the cycle is aborted.
    Error,
    Unschedulable,
    #[serde(rename = "UnschedulableAndUnresolvable")]
    Unresolvable,
    /// Waiting for something that is on its way.
    Pending,
}

/// A no with its words: from points that are asked once per pod, and from opaque checks.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Rejection {
    pub status: Status,
    pub reasons: Vec<Reason>,
}

impl Rejection {
    pub fn new(status: Status, reason: impl Into<Reason>) -> Self {
        Self {
            status,
            reasons: vec![reason.into()],
        }
    }

    pub fn unschedulable(reason: impl Into<Reason>) -> Self {
        Self::new(Status::Unschedulable, reason)
    }

    pub fn unresolvable(reason: impl Into<Reason>) -> Self {
        Self::new(Status::Unresolvable, reason)
    }

    pub fn error(text: impl Into<Reason>) -> Self {
        Self::new(Status::Error, text)
    }

    pub fn is_failure(&self) -> bool {
        self.status == Status::Error
    }

    pub fn message(&self) -> String {
        self.reasons.join(", ")
    }
}

/// Several errors in one line, as Kubernetes writes them: a single one alone, more in brackets, none twice.
pub fn error_list(errors: &[String]) -> String {
    let mut distinct: Vec<&str> = Vec::new();
    for error in errors {
        if !distinct.contains(&&**error) {
            distinct.push(error);
        }
    }
    match distinct[..] {
        [only] => only.to_owned(),
        _ => format!("[{}]", distinct.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_in_one_line() {
        for (errors, want) in [
            (vec!["a"], "a"),
            (vec!["a", "a"], "a"),
            (vec!["a", "b", "a"], "[a, b]"),
        ] {
            let errors: Vec<String> = errors.into_iter().map(Into::into).collect();
            assert_eq!(error_list(&errors), want);
        }
    }
}
