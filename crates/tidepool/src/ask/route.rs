//! How to reach a scheduler: its address, and if that cannot be reached its pod; and whether it is the right one.

use std::{io::Write, sync::Arc};

use anyhow::Result;
use api::http::{STATUS, SchedulerStatus};
use http::Uri;
use kube::{Config, client::ConfigExt};
use rustls::{
    CertificateError, ClientConfig,
    crypto::ring,
    pki_types::{CertificateDer, pem::PemObject},
};

use super::{
    Flags, Scheduler,
    connection::{Failure, Stream},
    lease::Leader,
    pin::{Pin, WrongCertificate},
};
use crate::{
    causes,
    cluster::Place,
    exit::{Code, code_of, error},
    foreign::one_line,
};

pub(super) struct Route {
    pub(super) server: Uri,
    /// The connection of the kubeconfig, for the credentials and for port-forward.
    pub(super) cluster: Option<Config>,
    pub(super) place: Option<Place>,
    /// None if the address is not that of a Lease.
    pub(super) leader: Option<Leader>,
}

/// Why a stream leads to no scheduler.
enum Wrong {
    Failure(Failure),
    /// Another scheduler answers there.
    Other(String),
    Answer(anyhow::Error),
}

impl Route {
    /// Connects to the address, else by port-forward to the pod of the Lease.
    pub(super) async fn connect(self, flags: &Flags) -> Result<Scheduler> {
        let (credentials, tls) = self.credentials(flags)?;
        let direct = match Stream::direct(&self.server).await {
            Ok(stream) => self.checked(stream, &credentials, tls.clone()).await,
            Err(failure) => Err(Wrong::Failure(failure)),
        };
        let wrong = match direct {
            Ok(scheduler) => return Ok(scheduler),
            Err(wrong) => wrong,
        };
        let why = match &wrong {
            Wrong::Failure(Failure::Unreachable(why)) => why.clone(),
            Wrong::Other(identity) => format!("{identity} answers there"),
            Wrong::Failure(Failure::Certificate(_)) | Wrong::Answer(_) => {
                return Err(self.error(wrong));
            }
        };
        let pod = self.leader.as_ref().and_then(|it| it.pod.as_ref());
        let Some((pod, cluster)) = pod.zip(self.cluster.as_ref()) else {
            return Err(self.error(wrong));
        };
        let (server, name) = (self.address(), format!("{}/{}", pod.0, pod.1));
        let unreachable = format!("cannot reach the scheduler at {server} ({why})");
        let stream = Stream::forwarded(cluster, pod, &self.server).await;
        let stream = stream.map_err(|failure| match failure {
            kube::Error::Api(status) if matches!(status.code, 401 | 403) => error(
                Code::Refused,
                format_args!(
                    "{unreachable}, and the API server refuses port-forward to pod {name}: {}; ask a cluster administrator for permission to create pods/portforward, or pass an address that can be reached with --server",
                    one_line(&status.message)
                ),
            ),
            kube::Error::Api(status) => failed(&unreachable, &name, &status.message),
            other => failed(&unreachable, &name, &causes::of_connection(&other)),
        })?;
        // If stderr is closed, there is nowhere to report it.
        let _ = writeln!(
            std::io::stderr(),
            "tidepool: {unreachable}; using port-forward to pod {name}"
        );
        let forwarded = self.checked(stream, &credentials, tls).await;
        forwarded.map_err(|wrong| match wrong {
            Wrong::Failure(Failure::Unreachable(why)) => failed(&unreachable, &name, &why),
            wrong => self.error(wrong),
        })
    }

    /// The credentials for the scheduler, and how to verify it. Tokens and client certificates are sent only over TLS.
    fn credentials(&self, flags: &Flags) -> Result<(Config, Option<Arc<ClientConfig>>)> {
        let mut config = Config::new(self.server.clone());
        if self.server.scheme_str() != Some("https") {
            return Ok((config, None));
        }
        if let Some(cluster) = &self.cluster {
            config.auth_info = cluster.auth_info.clone();
            config.root_cert = cluster.root_cert.clone();
        }
        config.accept_invalid_certs = flags.insecure_skip_tls_verify;
        let pin = match &flags.certificate_authority {
            Some(path) => {
                let certificates =
                    CertificateDer::pem_slice_iter(crate::read_input(path)?.as_bytes())
                        .filter_map(|it| Some(it.ok()?.to_vec()))
                        .collect::<Vec<_>>();
                if certificates.is_empty() {
                    let text = format!("{} contains no certificate in PEM", path.display());
                    return Err(error(Code::BadInput, text));
                }
                config.root_cert = Some(certificates);
                None
            }
            None => self
                .leader
                .as_ref()
                .and_then(|it| it.certificate.as_deref()),
        };
        let pin = pin.filter(|_| !flags.insecure_skip_tls_verify);
        if pin.is_some() {
            // Not needed, and a machine may have none.
            config.root_cert = Some(Vec::new());
        }
        let tls = config.rustls_client_config().map_err(|why| {
            let text = format!(
                "cannot use the credentials of the kubeconfig: {}",
                causes::of_connection(&why)
            );
            error(Code::BadInput, text)
        })?;
        let mut tls = tls;
        if let Some(pin) = pin {
            let provider = Arc::new(ring::default_provider());
            tls.dangerous()
                .set_certificate_verifier(Pin::new(pin, provider));
        }
        Ok((config, Some(Arc::new(tls))))
    }

    /// The scheduler at the end of the stream, if it is that of the Lease.
    async fn checked(
        &self,
        stream: Stream,
        credentials: &Config,
        tls: Option<Arc<ClientConfig>>,
    ) -> Result<Scheduler, Wrong> {
        let client = stream.client(&self.server, credentials, tls).await;
        let scheduler = Scheduler {
            client: client.map_err(Wrong::Failure)?,
            server: self.server.clone(),
            cluster: self.cluster.clone().filter(|_| self.place.is_some()),
            place: self.place.clone(),
            default_namespace: match &self.cluster {
                Some(cluster) => cluster.default_namespace.clone(),
                None => "default".to_owned(),
            },
        };
        let Some(leader) = &self.leader else {
            return Ok(scheduler);
        };
        // The address of a Lease may mean another machine, as 127.0.0.1 does. A scheduler without an identity, or that
        // refuses to show it, is accepted.
        let status = match scheduler.get(STATUS).await {
            Err(why) if code_of(&why) == Code::Refused => return Ok(scheduler),
            status => status.map_err(Wrong::Answer)?,
        };
        let status: SchedulerStatus = serde_json::from_value(status).unwrap_or_default();
        match status.identity {
            found if found.is_empty() || found == leader.identity => Ok(scheduler),
            found => Err(Wrong::Other(one_line(&found).into_owned())),
        }
    }

    fn address(&self) -> String {
        self.server.to_string().trim_end_matches('/').to_owned()
    }

    fn error(&self, wrong: Wrong) -> anyhow::Error {
        let server = self.address();
        let text = match (wrong, &self.leader) {
            (Wrong::Answer(why), _) => return why,
            (Wrong::Failure(Failure::Certificate(why)), leader) => {
                return error(Code::Unreachable, distrust(&server, &why, leader.as_ref()));
            }
            (Wrong::Failure(Failure::Unreachable(why)), None) => format!(
                "the scheduler at {server} does not answer ({why}); start one with `tidepool up`, or pass another address with --server"
            ),
            (Wrong::Failure(Failure::Unreachable(why)), Some(leader)) => format!(
                "the scheduler of Lease {} does not answer at {server} ({why}); run the command where this address can be reached, or pass another one with --server",
                leader.lease
            ),
            (Wrong::Other(found), leader) => {
                let holder = leader.as_ref().map(|it| (&*it.lease, &*it.identity));
                let (lease, identity) = holder.unwrap_or_default();
                format!(
                    "Lease {lease} has the address {server} for {}, but {found} answers there: run the command on the machine of the former, or pass --server",
                    one_line(identity)
                )
            }
        };
        error(Code::Unreachable, text)
    }
}

fn failed(unreachable: &str, pod: &str, why: &str) -> anyhow::Error {
    let why = one_line(why.trim_end());
    let text = format!(
        "{unreachable}, and port-forward to pod {pod} fails: {why}; pass an address that can be reached with --server"
    );
    error(Code::Unreachable, text)
}

/// Why the certificate of a server is not accepted, and what to do.
fn distrust(server: &str, error: &rustls::Error, leader: Option<&Leader>) -> String {
    const REMEDY: &str = "pass its CA with --certificate-authority, or accept any certificate with --insecure-skip-tls-verify";
    if let rustls::Error::InvalidCertificate(CertificateError::Other(other)) = error
        && let Some(wrong) = other.0.downcast_ref::<WrongCertificate>()
    {
        let lease = leader.map_or("", |it| &it.lease);
        let WrongCertificate { found, wanted } = wrong;
        let wanted = one_line(wanted);
        return format!(
            "the server at {server} is not the scheduler of Lease {lease}: the SHA-256 of its certificate is {found}, that on the Lease is {wanted}; try again if the certificate was just renewed, or pass another address with --server"
        );
    }
    let why = causes::of_tls(error);
    match leader {
        Some(Leader {
            lease,
            certificate: None,
            ..
        }) => format!(
            "cannot trust the scheduler at {server}: {why}, and Lease {lease} has no fingerprint of it, because the scheduler has an older version; {REMEDY}"
        ),
        _ => format!("cannot trust the scheduler at {server}: {why}; {REMEDY}"),
    }
}
