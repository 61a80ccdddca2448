//! Flags for the certificate of a webhook.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use control_plane::serve::TlsFiles;
use control_plane::webhook::certificates::{
    CertificateOptions, CertificatePeriods, Configuration, ManagedCertificate,
};

use crate::component;

/// The certificate for reviews.
#[derive(Args)]
#[command(next_help_heading = "Certificate for reviews")]
pub(crate) struct CertificateFlags {
    /// Certificate chain for reviews, for example from cert-manager [default: one that the replicas keep in a Secret].
    #[arg(long, value_name = "PATH", requires = "webhook_private_key_file")]
    webhook_cert_file: Option<PathBuf>,
    /// Private key of the certificate.
    #[arg(long, value_name = "PATH", requires = "webhook_cert_file")]
    webhook_private_key_file: Option<PathBuf>,
    /// Host name or address in the certificate, as webhook configurations with a URL use it; may be repeated. The names of the
    /// Service are always in it.
    #[arg(long = "webhook-host", value_name = "HOST")]
    webhook_hosts: Vec<String>,
    /// Life of the CA.
    #[arg(long, value_name = "DURATION", default_value = "365d", value_parser = component::duration)]
    ca_lifetime: Duration,
    /// Life of the certificate.
    #[arg(long, value_name = "DURATION", default_value = "90d", value_parser = component::duration)]
    certificate_lifetime: Duration,
    /// Age at which the CA is renewed [default: two thirds of its life].
    #[arg(long, value_name = "DURATION", value_parser = component::duration)]
    ca_renewal: Option<Duration>,
    /// Age at which the certificate is renewed [default: two thirds of its life].
    #[arg(long, value_name = "DURATION", value_parser = component::duration)]
    certificate_renewal: Option<Duration>,
    /// Time that a new CA is in the CA bundles before it is used.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = component::duration)]
    ca_settle_time: Duration,
    /// Time between two reads of the Secret or of the files.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = component::duration)]
    certificate_check_interval: Duration,
}

impl CertificateFlags {
    /// `name` is that of the Secret, the Service and the configurations.
    pub(crate) fn options(
        &self,
        namespace: &str,
        name: &str,
        configurations: &'static [Configuration],
    ) -> CertificateOptions {
        let files = self
            .webhook_cert_file
            .clone()
            .zip(self.webhook_private_key_file.clone());
        if let Some((certificate, key)) = files {
            return CertificateOptions::Files {
                files: TlsFiles { certificate, key },
                reload: self.certificate_check_interval,
            };
        }
        let service = [
            format!("{name}.{namespace}.svc"),
            format!("{name}.{namespace}.svc.cluster.local"),
        ];
        CertificateOptions::Managed(ManagedCertificate {
            hosts: service
                .into_iter()
                .chain(self.webhook_hosts.iter().cloned())
                .collect(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            configurations,
            periods: CertificatePeriods {
                authority: self.ca_lifetime,
                certificate: self.certificate_lifetime,
                renew_certificate: self.certificate_renewal,
                renew_authority: self.ca_renewal,
                settle: self.ca_settle_time,
                check: self.certificate_check_interval,
            },
        })
    }
}
