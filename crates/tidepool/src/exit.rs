//! What the exit code says. Every command keeps to this list, which is part of the interface.

use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Code {
    Failed = 1,
    /// Flags and arguments that make no sense.
    BadInput = 2,
    /// What was to be checked is not good.
    Problem = 3,
    /// What was asked does not answer.
    Unreachable = 4,
    /// What was asked does not answer us.
    Refused = 5,
}

/// For `tidepool --help`.
pub(crate) const CODES: &str = "\
Exit codes: 0 done, 1 failed, 2 bad flags, 3 found a problem, 4 not reachable, 5 not allowed";

/// A code that an error brings along. Errors without one are [`Code::Failed`].
#[derive(Debug)]
struct Coded {
    code: Code,
    message: String,
}

impl fmt::Display for Coded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Coded {}

/// An error that ends the process with this code.
pub(crate) fn error(code: Code, message: impl fmt::Display) -> anyhow::Error {
    let message = message.to_string();
    Coded { code, message }.into()
}

/// The code that an error ends the process with.
pub(crate) fn code_of(error: &anyhow::Error) -> Code {
    let coded = error
        .chain()
        .find_map(|cause| cause.downcast_ref::<Coded>());
    coded.map_or(Code::Failed, |coded| coded.code)
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::*;

    #[test]
    fn a_code_survives_more_words() {
        let coded = Err::<(), _>(error(Code::Unreachable, "it sleeps")).context("no answer");
        let coded = coded.unwrap_err();
        assert_eq!(code_of(&coded), Code::Unreachable);
        assert_eq!(format!("{coded:#}"), "no answer: it sleeps");
        assert_eq!(code_of(&anyhow::anyhow!("no")), Code::Failed);
    }
}
