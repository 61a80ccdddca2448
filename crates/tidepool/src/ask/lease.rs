//! The scheduler that a Lease names: its address, its certificate and its pod.

use std::collections::BTreeMap;

use api::contracts::{SCHEDULER_NAMES, SERVER, SERVER_CERTIFICATE, SERVER_POD};
use engine::policies::schedulers::OWN_NAMESPACES;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client, Config, ResourceExt, api::ListParams};

use super::Flags;
use crate::{causes, component::is_name, foreign::one_line};

/// The namespaces of the Leases that count without a flag: that of `tidepool scheduler`, and that of the manifests. Users
/// that may write a Lease elsewhere must not receive the credentials of an administrator.
pub(crate) const LEASE_NAMESPACES: [&str; 2] = OWN_NAMESPACES;

/// The leader of a Lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Leader {
    /// NAMESPACE/NAME.
    pub(super) lease: String,
    pub(super) identity: String,
    pub(super) server: String,
    /// The SHA-256 of its certificate; older schedulers do not write it.
    pub(super) certificate: Option<String>,
    /// Namespace and name.
    pub(super) pod: Option<(String, String)>,
    names_schedulers: bool,
    renewed: Option<jiff::Timestamp>,
}

/// Why no leader is found.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Missing {
    /// The API server does not answer.
    Silent(String),
    /// The API server refuses the request.
    Refused(String),
    /// It answers, but no Lease names a scheduler.
    NoLeader(String),
    /// Several Leases do.
    Several(String),
}

/// The leader on the Lease of the flags, or on the only Lease of a scheduler.
pub(super) async fn leader(config: &Config, flags: &Flags) -> Result<Leader, Missing> {
    let server = config.cluster_url.to_string();
    let server = server.trim_end_matches('/');
    let refuse = |why| match why {
        kube::Error::Api(status) => {
            Missing::Refused(format!("{server} answers: {}", one_line(&status.message)))
        }
        other => {
            let why = causes::of_connection(&other);
            Missing::Silent(format!("cannot connect to {server} ({why})"))
        }
    };
    let client = Client::try_from(config.clone()).map_err(refuse)?;
    if let Some((namespace, name)) = &flags.lease {
        let leases: Api<Lease> = Api::namespaced(client, namespace);
        return match leases.get_opt(name).await.map_err(refuse)? {
            Some(lease) => read(lease).map_err(Missing::NoLeader),
            None => {
                let text = format!("Lease {namespace}/{name} does not exist on {server}");
                Err(Missing::NoLeader(text))
            }
        };
    }
    let namespaces = match &flags.lease_namespace {
        Some(namespace) => vec![namespace.as_str()],
        None => LEASE_NAMESPACES.to_vec(),
    };
    // An agent writes its Lease there, too; it is no scheduler.
    let options = ListParams::default().labels("!tidepool.io/agent");
    let (mut leaders, mut refused) = (Vec::new(), None);
    for namespace in &namespaces {
        let leases: Api<Lease> = Api::namespaced(client.clone(), namespace);
        match leases.list(&options).await {
            Ok(found) => leaders.extend(found.items.into_iter().filter_map(|it| read(it).ok())),
            // One namespace may be enough.
            Err(why @ kube::Error::Api(_)) => refused = refused.or(Some(why)),
            Err(why) => return Err(refuse(why)),
        }
    }
    match (one(leaders)?, refused) {
        (Some(leader), _) => Ok(leader),
        (None, Some(why)) => Err(refuse(why)),
        (None, None) => {
            let namespaces = namespaces.join(" or ");
            Err(Missing::NoLeader(format!(
                "no Lease in namespace {namespaces} of {server} has the annotations {SCHEDULER_NAMES} and {SERVER} of a scheduler"
            )))
        }
    }
}

/// The leader that a Lease names; an error is the reason why it names none.
fn read(lease: Lease) -> Result<Leader, String> {
    let annotation = |name| lease.annotations().get(name).filter(|it| !it.is_empty());
    let name = format!(
        "{}/{}",
        lease.namespace().unwrap_or_default(),
        lease.name_any()
    );
    let holder = lease
        .spec
        .as_ref()
        .and_then(|it| it.holder_identity.as_ref());
    let Some(identity) = holder.filter(|it| !it.is_empty()) else {
        return Err(format!(
            "Lease {name} has no holder: no scheduler is active"
        ));
    };
    let Some(server) = annotation(SERVER) else {
        let identity = one_line(identity);
        return Err(format!(
            "Lease {name} of {identity} has no annotation {SERVER} with the address of a scheduler"
        ));
    };
    let pod = annotation(SERVER_POD).and_then(|pod| pod.split_once('/'));
    let pod = pod.filter(|(namespace, name)| is_name(namespace) && is_name(name));
    Ok(Leader {
        identity: identity.clone(),
        server: server.clone(),
        certificate: annotation(SERVER_CERTIFICATE).cloned(),
        pod: pod.map(|(namespace, name)| (namespace.to_owned(), name.to_owned())),
        names_schedulers: annotation(SCHEDULER_NAMES).is_some(),
        renewed: lease
            .spec
            .as_ref()
            .and_then(|it| it.renew_time.as_ref())
            .map(|it| it.0),
        lease: name,
    })
}

/// The only scheduler, if there is any.
fn one(mut leaders: Vec<Leader>) -> Result<Option<Leader>, Missing> {
    // Other components have Leases with an address, too, and must not receive the credentials of users. Admission policies keep the
    // names of schedulers off their Leases.
    leaders.retain(|leader| leader.names_schedulers);
    let by_address: BTreeMap<&str, &Leader> = leaders.iter().map(|it| (&*it.server, it)).collect();
    if by_address.len() > 1 {
        let all: Vec<String> = by_address
            .values()
            .map(|it| format!("--lease {} ({})", it.lease, one_line(&it.server)))
            .collect();
        return Err(Missing::Several(all.join(" or ")));
    }
    // The Lease of a leader that crashed stays, and the next leader may have its address.
    leaders.sort_by_key(|leader| leader.renewed);
    Ok(leaders.pop())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn lease(name: &str, holder: &str, annotations: Value) -> Lease {
        let lease = json!({"metadata": {"namespace": "infra", "name": name, "annotations": annotations},
            "spec": {"holderIdentity": holder}});
        serde_json::from_value(lease).unwrap()
    }

    #[test]
    fn a_lease_names_its_leader_or_the_reason_why_not() {
        let all = json!({SERVER: "https://a", SERVER_CERTIFICATE: "ab", SERVER_POD: "ns/pod-0", SCHEDULER_NAMES: "x"});
        let leader = read(lease("lock", "me", all)).unwrap();
        let want = Leader {
            lease: "infra/lock".into(),
            identity: "me".into(),
            server: "https://a".into(),
            certificate: Some("ab".into()),
            pod: Some(("ns".into(), "pod-0".into())),
            names_schedulers: true,
            renewed: None,
        };
        assert_eq!(leader, want);
        let old = read(lease("lock", "me", json!({SERVER: "https://a"}))).unwrap();
        let want = Leader {
            certificate: None,
            pod: None,
            names_schedulers: false,
            ..want
        };
        assert_eq!(old, want);
        for pod in ["pod", "ns/", "ns/../x", "a/b/c", "ns/Pod?x"] {
            let found = read(lease(
                "lock",
                "me",
                json!({SERVER: "https://a", SERVER_POD: pod}),
            ));
            assert_eq!(found.unwrap().pod, None, "{pod}");
        }
        for (holder, annotations, want) in [
            (
                "",
                json!({SERVER: "https://a"}),
                "Lease infra/lock has no holder",
            ),
            (
                "me\n",
                json!({}),
                "Lease infra/lock of me\\n has no annotation tidepool.io/server",
            ),
        ] {
            let why = read(lease("lock", holder, annotations)).unwrap_err();
            assert!(why.starts_with(want), "{why}");
        }
    }

    #[test]
    fn the_only_scheduler_is_found() {
        let scheduler = |name, server| {
            let names = json!({SERVER: server, SCHEDULER_NAMES: "x"});
            read(lease(name, "me", names)).unwrap()
        };
        let other = |name, server| read(lease(name, "me", json!({SERVER: server}))).unwrap();
        for (case, leaders, want) in [
            ("none", vec![], Ok(None)),
            ("one", vec![scheduler("a", "http://1")], Ok(Some("infra/a"))),
            (
                "beside another component",
                vec![scheduler("a", "http://1"), other("b", "http://2")],
                Ok(Some("infra/a")),
            ),
            (
                "another component only",
                vec![other("b", "http://2")],
                Ok(None),
            ),
            (
                "two",
                vec![scheduler("a", "http://1"), scheduler("b", "http://2")],
                Err("--lease infra/a (http://1) or --lease infra/b (http://2)"),
            ),
        ] {
            let found = one(leaders).map(|it| it.map(|leader| leader.lease));
            let want = want
                .map(|it| it.map(str::to_owned))
                .map_err(|text| Missing::Several(text.to_owned()));
            assert_eq!(found, want, "{case}");
        }
    }
}
