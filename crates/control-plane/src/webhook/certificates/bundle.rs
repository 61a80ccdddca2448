//! The CA bundle in webhook configurations.

use jiff::Timestamp;
use k8s_openapi::ByteString;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde_json::{Value, json};

use super::Configuration;
use crate::serve::Validity;

impl Configuration {
    fn plural(self) -> &'static str {
        match self {
            Self::Mutating => "mutatingwebhookconfigurations",
            Self::Validating | Self::NodeNames | Self::Evictions => {
                "validatingwebhookconfigurations"
            }
        }
    }

    /// The name of the configuration of a component.
    fn name(self, component: &str) -> String {
        match self {
            Self::Mutating | Self::Validating => component.to_owned(),
            Self::NodeNames => format!("{component}-node-names"),
            Self::Evictions => format!("{component}-evictions"),
        }
    }
}

/// Certificates in one bundle; the oldest ones that are not ours any more go first.
const MOST: usize = 16;

/// The configurations of one name.
pub(super) struct Bundles<'a> {
    client: &'a kube::Client,
    name: &'a str,
    configurations: &'a [Configuration],
}

impl<'a> Bundles<'a> {
    pub(super) fn new(
        client: &'a kube::Client,
        name: &'a str,
        configurations: &'a [Configuration],
    ) -> Self {
        Self {
            client,
            name,
            configurations,
        }
    }

    /// Makes the configurations trust these CAs. True if they did already.
    pub(super) async fn trust(
        &self,
        wanted: &[String],
        now: Timestamp,
    ) -> Result<bool, kube::Error> {
        let mut is_trusted = true;
        for configuration in self.configurations {
            let (plural, name) = (configuration.plural(), configuration.name(self.name));
            let path = format!("/apis/admissionregistration.k8s.io/v1/{plural}/{name}");
            let get = http::Request::get(&path).body(Vec::new());
            let get = get.map_err(kube::Error::HttpError)?;
            let configuration: Value = match self.client.request(get).await {
                Err(error) if reconcile::is_not_found(&error) => continue,
                result => result?,
            };
            let operations = operations(&configuration, wanted, now);
            if operations.is_empty() {
                continue;
            }
            is_trusted = false;
            let body = serde_json::to_vec(&operations).map_err(kube::Error::SerdeError)?;
            let patch = http::Request::patch(&path)
                .header(http::header::CONTENT_TYPE, "application/json-patch+json")
                .body(body)
                .map_err(kube::Error::HttpError)?;
            self.client.request::<Value>(patch).await?;
            tracing::info!(configuration = name, plural, "wrote the CA bundle");
        }
        Ok(is_trusted)
    }
}

/// The JSON patch that makes every webhook of a configuration trust these CAs.
fn operations(configuration: &Value, wanted: &[String], now: Timestamp) -> Vec<Value> {
    let webhooks = configuration["webhooks"].as_array().into_iter().flatten();
    let mut operations = Vec::new();
    for (i, webhook) in webhooks.enumerate() {
        let known = &webhook["clientConfig"]["caBundle"];
        let known = serde_json::from_value::<ByteString>(known.clone()).unwrap_or_default();
        let known = String::from_utf8_lossy(&known.0).into_owned();
        let merged = merge(&known, wanted, now);
        if merged != known {
            let path = format!("/webhooks/{i}/clientConfig/caBundle");
            let value = json!(ByteString(merged.into_bytes()));
            operations.push(json!({"op": "add", "path": path, "value": value}));
        }
    }
    if !operations.is_empty() {
        // Another replica may have written meanwhile, from a newer Secret.
        let seen = &configuration["metadata"]["resourceVersion"];
        operations.insert(
            0,
            json!({"op": "test", "path": "/metadata/resourceVersion", "value": seen}),
        );
    }
    operations
}

/// Adds CAs to a bundle. Others stay until they expire: this replica may have read an older Secret than the one that wrote them.
fn merge(known: &str, wanted: &[String], now: Timestamp) -> String {
    let mut certificates: Vec<String> = known
        .split_inclusive("-----END CERTIFICATE-----")
        .map(|part| format!("{}\n", part.trim()))
        .filter(|part| is_alive(part, now))
        .map(|part| part.replace("\r\n", "\n"))
        .collect();
    let wanted: Vec<String> = wanted
        .iter()
        .map(|it| format!("{}\n", it.trim().replace("\r\n", "\n")))
        .collect();
    certificates.extend(
        wanted
            .iter()
            .filter(|it| !certificates.contains(it))
            .cloned()
            .collect::<Vec<_>>(),
    );
    let mut excess = certificates.len().saturating_sub(MOST);
    certificates.retain(|it| {
        let goes = excess > 0 && !wanted.contains(it);
        excess -= usize::from(goes);
        !goes
    });
    certificates.concat()
}

fn is_alive(pem: &str, now: Timestamp) -> bool {
    let der = CertificateDer::from_pem_slice(pem.as_bytes()).ok();
    let validity = der.and_then(|der| Validity::of(&der));
    validity.is_some_and(|validity| validity.end > now)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::webhook::certificates::authority::KeyedCertificate;

    fn authority(ends: i64) -> String {
        let at = |second| Timestamp::from_second(second).unwrap();
        KeyedCertificate::authority(at(1_800_000_000), at(ends))
            .unwrap()
            .certificate
    }

    #[test]
    fn bundles_keep_what_is_alive() {
        let now = Timestamp::from_second(1_800_000_100).unwrap();
        let (ours, theirs, expired) = (
            authority(1_900_000_000),
            authority(1_900_000_000),
            authority(1_800_000_050),
        );
        let known = format!("{expired}{theirs}");
        let merged = merge(&known, std::slice::from_ref(&ours), now);
        assert_eq!(merged.matches("BEGIN").count(), 2);
        assert_eq!(
            merge(&merged, std::slice::from_ref(&ours), now),
            merged,
            "nothing to do"
        );
        assert_eq!(
            merge("not pem", std::slice::from_ref(&ours), now)
                .matches("BEGIN")
                .count(),
            1
        );
        let many: String = (0..20).map(|_| authority(1_900_000_000)).collect();
        let bounded = merge(&many, std::slice::from_ref(&ours), now);
        assert_eq!(bounded.matches("BEGIN").count(), MOST);
        assert!(bounded.ends_with(&format!("{}\n", ours.trim().replace("\r\n", "\n"))));
    }

    #[test]
    fn only_webhooks_that_lack_a_ca_are_patched() {
        let now = Timestamp::from_second(1_800_000_100).unwrap();
        let ours = authority(1_900_000_000);
        let bundle = merge("", std::slice::from_ref(&ours), now);
        let configuration = json!({"metadata": {"resourceVersion": "7"}, "webhooks": [
            {"name": "a", "clientConfig": {"caBundle": ByteString(bundle.into_bytes())}},
            {"name": "b", "clientConfig": {"service": {}}},
        ]});
        let found = operations(&configuration, std::slice::from_ref(&ours), now);
        assert_eq!(found.len(), 2);
        assert_eq!(found[0]["value"], "7");
        assert_eq!(found[1]["path"], "/webhooks/1/clientConfig/caBundle");
    }
}
