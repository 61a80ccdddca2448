//! The address and identity of a scheduler, from its Lease.

use std::collections::BTreeMap;

use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client, Config, api::ListParams};

use super::{Flags, root_cause};
use crate::foreign::one_line;

/// The annotation of a scheduler's Lease with the URL of the leader.
const SERVER: &str = "tidepool.io/server";

/// The holder of a Lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Holder {
    pub(super) lease: String,
    pub(super) identity: String,
}

/// Why no Lease has the address of a scheduler.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unknown {
    /// The API server did not answer.
    Silent(String),
    /// It answered, without an address.
    Unhelpful(String),
}

/// The address on a Lease, and the holders of all Leases with that address.
pub(super) async fn server(
    config: &Config,
    flags: &Flags,
) -> Result<(String, Vec<Holder>), Unknown> {
    let server = &config.cluster_url;
    let client =
        Client::try_from(config.clone()).map_err(|why| Unknown::Silent(why.to_string()))?;
    let (leases, place) = leases(client, flags).await.map_err(|why| match why {
        kube::Error::Api(status) => {
            Unknown::Unhelpful(format!("{server} answers: {}", one_line(&status.message)))
        }
        other => Unknown::Silent(format!("{server} does not answer ({})", root_cause(&other))),
    })?;
    let mut found: BTreeMap<String, Vec<Holder>> = BTreeMap::new();
    for lease in leases {
        let identity = lease.spec.and_then(|spec| spec.holder_identity);
        let meta = lease.metadata;
        let address = meta.annotations.and_then(|mut it| it.remove(SERVER));
        if let (Some(identity), Some(address)) = (identity, address)
            && !identity.is_empty()
        {
            let (namespace, name) = (meta.namespace.as_deref(), meta.name.as_deref());
            let lease = format!("{}/{}", namespace.unwrap_or(""), name.unwrap_or(""));
            let holders = found.entry(address).or_default();
            holders.push(Holder { lease, identity });
        }
    }
    if found.len() > 1 {
        let several: Vec<String> = found
            .iter()
            .filter_map(|(address, holders)| Some((address, &holders.first()?.lease)))
            .map(|(address, lease)| format!("{} (--lease {lease})", one_line(address)))
            .collect();
        let text = format!("found several schedulers: {}", several.join(", "));
        return Err(Unknown::Unhelpful(text));
    }
    let none = || {
        Unknown::Unhelpful(format!(
            "no Lease {place} of {server} has the address of a scheduler"
        ))
    };
    found.pop_first().ok_or_else(none)
}

/// Leases that may be a scheduler's, and the place of the search.
async fn leases(client: Client, flags: &Flags) -> Result<(Vec<Lease>, String), kube::Error> {
    if let Some((namespace, name)) = &flags.lease {
        let one = Api::namespaced(client, namespace).get_opt(name).await?;
        return Ok((one.into_iter().collect(), format!("{namespace}/{name}")));
    }
    let namespace = match &flags.lease_namespace {
        Some(namespace) => namespace,
        None => {
            let all = Api::all(client.clone());
            // The Leases of nodes are many, and no scheduler's.
            let but_nodes = ListParams::default().fields("metadata.namespace!=kube-node-lease");
            match all.list(&but_nodes).await {
                Ok(found) => return Ok((found.items, "in any namespace".to_owned())),
                // Without permission for all namespaces, try the usual one.
                Err(kube::Error::Api(status)) if status.code == 403 => "kube-system",
                Err(why) => return Err(why),
            }
        }
    };
    let found = Api::namespaced(client, namespace)
        .list(&ListParams::default())
        .await?;
    Ok((found.items, format!("in namespace {namespace}")))
}
