//! The result of a filter: a small code on the hot path, a message on demand.

use std::borrow::Cow;

/// The text of one reason. Most are fixed; a few carry a name.
pub type Reason = Cow<'static, str>;

/// A filter's result for one node: it fits, or a code that the check defines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Verdict(u8);

const UNRESOLVABLE: u8 = 0x80;

impl Verdict {
    pub const FITS: Self = Self(0);

    /// Unschedulable: evicting pods from the node may help. `code` is 1..=127.
    pub const fn unschedulable(code: u8) -> Self {
        assert!(code > 0 && code < UNRESOLVABLE);
        Self(code)
    }

    /// Unresolvable: preemption on this node cannot help. `code` is 1..=127.
    pub const fn unresolvable(code: u8) -> Self {
        assert!(code > 0 && code < UNRESOLVABLE);
        Self(code | UNRESOLVABLE)
    }

    pub const fn fits(self) -> bool {
        self.0 == 0
    }

    /// The check's code without the unresolvable flag; 0 when it fits.
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

/// Why a plugin rejected a pod.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
pub enum Status {
    /// An error; it aborts the cycle.
    Error,
    Unschedulable,
    #[serde(rename = "UnschedulableAndUnresolvable")]
    Unresolvable,
    /// Waiting for an expected event.
    Pending,
}

/// A rejection with its message: from points that run once per pod, and from opaque checks.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
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

/// Several errors in one line, as Kubernetes writes them: a single one alone, more in brackets, without duplicates.
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
