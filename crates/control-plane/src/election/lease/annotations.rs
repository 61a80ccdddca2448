//! What the holder of a Lease writes on it about itself: see [`api::lease`].

use std::sync::Arc;

use api::contracts::{SCHEDULER_NAMES, SERVER, SERVER_CERTIFICATE, SERVER_POD};

use crate::serve::{Listening, ServingCertificate};

/// The annotations of one process.
#[derive(Debug, Clone, Default)]
pub(crate) struct Annotations {
    server: Option<String>,
    /// The fingerprint is that of the certificate at the time of writing: each renewal writes the current one.
    certificate: Option<Arc<ServingCertificate>>,
    pod: Option<String>,
    scheduler_names: Option<String>,
}

impl Annotations {
    /// Those of a process that listens there, and that has a connection to this API server.
    pub(crate) fn new(listening: Option<&Listening>, api_server: Option<&http::Uri>) -> Self {
        Self {
            server: listening.map(|it| it.url(api_server)),
            certificate: listening.and_then(Listening::certificate),
            pod: listening.and_then(Listening::pod).map(str::to_owned),
            scheduler_names: None,
        }
    }

    /// Adds the names of the profiles of a scheduler.
    pub(crate) fn with_scheduler_names(mut self, names: &[String]) -> Self {
        self.scheduler_names = Some(names.join(","));
        self
    }

    /// The value of each annotation; one without a value is absent.
    pub(super) fn values(&self) -> [(&'static str, Option<String>); 4] {
        let certificate = self.certificate.as_ref();
        [
            (SERVER, self.server.clone()),
            (SERVER_CERTIFICATE, certificate.map(|it| it.fingerprint())),
            (SERVER_POD, self.pod.clone()),
            (SCHEDULER_NAMES, self.scheduler_names.clone()),
        ]
    }
}
