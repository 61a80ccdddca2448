//! Exit codes, which are part of the interface.

use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Code {
    Failed = 1,
    /// Invalid flags or arguments.
    BadInput = 2,
    /// A check found a problem.
    Problem = 3,
    /// The server does not answer.
    Unreachable = 4,
    /// The server refuses the request.
    Refused = 5,
}

/// For `tidepool --help`.
pub(crate) const CODES: &str = "\
Exit codes: 0 success, 1 failure, 2 invalid flags, 3 problem found, 4 server not reachable, 5 permission denied";

/// An error with an exit code. Others are [`Code::Failed`].
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
    fn a_code_survives_added_context() {
        let coded = Err::<(), _>(error(Code::Unreachable, "it sleeps")).context("no answer");
        let coded = coded.unwrap_err();
        assert_eq!(code_of(&coded), Code::Unreachable);
        assert_eq!(format!("{coded:#}"), "no answer: it sleeps");
        assert_eq!(code_of(&anyhow::anyhow!("no")), Code::Failed);
    }
}
