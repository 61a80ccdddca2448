//! Errors with their causes, each text once.
//!
//! Many libraries repeat the cause in the text of the error, so the causes of an error cannot simply be joined.

use std::error::Error;
use std::io;

/// The error and its causes. A cause that the text already contains is left out.
pub fn joined<'a>(errors: impl IntoIterator<Item = &'a (dyn Error + 'static)>) -> String {
    let mut text = String::new();
    for error in errors {
        let cause = error.to_string();
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

/// The error of a request with its causes; the error of a certificate is enough.
pub fn of_request(error: &(dyn Error + 'static)) -> String {
    match tls(error) {
        Some(tls) => of_tls(tls),
        None => joined(chain(error)),
    }
}

/// Why a server cannot be used: its certificate, or else the last cause.
pub fn of_connection(error: &(dyn Error + 'static)) -> String {
    if let Some(tls) = tls(error) {
        return of_tls(tls);
    }
    let last = chain(error).last();
    last.map(ToString::to_string).unwrap_or_default()
}

/// The error of TLS among the causes.
pub fn tls<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    chain(error).find_map(|mut cause| {
        // What the standard library wraps does not count as a cause, and connectors wrap it twice.
        while let Some(wrapped) = cause
            .downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref)
        {
            cause = wrapped;
        }
        cause.downcast_ref()
    })
}

pub fn of_tls(error: &rustls::Error) -> String {
    use rustls::{CertificateError, Error};
    match error {
        Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
            "its certificate is signed by an unknown authority".to_owned()
        }
        Error::InvalidCertificate(why) => format!("its certificate is not valid: {why}"),
        other => format!("TLS fails: {other}"),
    }
}

fn chain<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error: &&'a (dyn Error + 'static)| {
        (*error).source()
    })
}

#[cfg(test)]
mod tests {
    use rustls::{CertificateError, Error as TlsError};

    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{text}")]
    struct Outer {
        text: &'static str,
        source: io::Error,
    }

    fn outer(text: &'static str, source: io::Error) -> Outer {
        Outer { text, source }
    }

    #[test]
    fn a_cause_appears_once() {
        for (text, cause, want) in [
            ("cannot read x", "gone", "cannot read x: gone"),
            ("cannot read x: gone", "gone", "cannot read x: gone"),
        ] {
            let error = outer(text, io::Error::other(cause));
            assert_eq!(joined(chain(&error)), want);
        }
    }

    #[test]
    fn a_connection_fails_for_one_reason() {
        let tls = |error: TlsError| io::Error::new(io::ErrorKind::InvalidData, error);
        for (cause, want) in [
            (io::Error::other("refused"), "refused"),
            (
                tls(CertificateError::UnknownIssuer.into()),
                "its certificate is signed by an unknown authority",
            ),
            (
                io::Error::other(tls(CertificateError::UnknownIssuer.into())),
                "its certificate is signed by an unknown authority",
            ),
            (
                tls(CertificateError::BadEncoding.into()),
                "its certificate is not valid: BadEncoding",
            ),
            (
                tls(TlsError::HandshakeNotComplete),
                "TLS fails: handshake not complete",
            ),
        ] {
            let error = outer("client error (Connect)", cause);
            assert_eq!(of_connection(&error), want);
        }
    }
}
