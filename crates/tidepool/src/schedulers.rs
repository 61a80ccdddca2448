//! `tidepool schedulers`: which schedulers run, and how many pods wait for each.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use anyhow::Result;
use api::contracts::{NAMESPACE, REGISTERED_NAMES, SCHEDULER_NAMES, SCHEDULERS};
use clap::Args;
use engine::policies::schedulers::{DEFAULT_SCHEDULER, read_names};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use serde::{Deserialize, Serialize};

use crate::{
    ask::LEASE_NAMESPACES,
    causes,
    cluster::Source,
    component,
    exit::{Code, error},
    foreign::one_line,
    output::{self, Format, columns},
};

/// List the schedulers of a cluster and the pods that wait for them
///
/// A scheduler registers with the annotation tidepool.io/scheduler-names on its Lease, in namespace kube-system, tidepool-system or
/// one of --scheduler-namespaces of `tidepool controllers`, which finds out which of them run.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Flags {
    /// Kubeconfig of the cluster [default: $KUBECONFIG, else ~/.kube/config, else that of `tidepool up`]
    #[arg(long, value_name = "PATH")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    /// Namespaces whose Leases are listed, beside kube-system and tidepool-system: those that `tidepool controllers` has
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = component::namespace)]
    scheduler_namespaces: Vec<String>,
    /// Output format
    #[arg(long, short, value_enum, default_value = "table")]
    output: Format,
}

const EXAMPLES: &str = "\
Examples:
  tidepool schedulers             names, Leases, leaders, and pods that wait
  tidepool schedulers -o json     for programs
  tidepool schedulers --scheduler-namespaces volcano-system
                                  lists Leases of this namespace, too
  kubectl annotate lease volcano -n volcano-system tidepool.io/scheduler-names=volcano
                                  registers a scheduler that is not Tidepool's, if the controllers have this namespace";

/// Objects of one page.
const PAGE: u32 = 500;

/// One name on one Lease, or a name that no Lease here has.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct SchedulerRow {
    name: String,
    /// NAMESPACE/NAME.
    lease: Option<String>,
    leader: Option<String>,
    /// As the controllers judge; none if they never ran.
    running: Option<bool>,
    /// Pods of this name without a node; gated pods do not count.
    waiting: u64,
}

#[derive(Debug, Serialize, Deserialize)]
struct SchedulerList {
    schedulers: Vec<SchedulerRow>,
}

pub(crate) fn run(flags: &Flags) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let schedulers = runtime.block_on(list(flags))?;
    let answer = serde_json::to_value(SchedulerList { schedulers })?;
    output::print(flags.output, &answer, |list: SchedulerList| {
        table(&list.schedulers)
    })
}

async fn list(flags: &Flags) -> Result<Vec<SchedulerRow>> {
    let source = Source::find(flags.kubeconfig.as_deref(), |name| std::env::var_os(name));
    let missing =
        "there is no kubeconfig: start a cluster with `tidepool up`, or pass --kubeconfig";
    let source = source.ok_or_else(|| error(Code::Unreachable, missing))?;
    let (config, place) = source.read(flags.context.as_deref()).await?;
    let refuse = |why: kube::Error| match why {
        kube::Error::Api(status) => {
            let code = match status.code {
                401 | 403 => Code::Refused,
                _ => Code::Failed,
            };
            error(
                code,
                format!("{} answers: {}", place.server, one_line(&status.message)),
            )
        }
        other => {
            let why = causes::of_connection(&other);
            error(
                Code::Unreachable,
                format!("cannot connect to {} ({why})", place.server),
            )
        }
    };
    let client = Client::try_from(config).map_err(refuse)?;
    let mut leases: Vec<Lease> = Vec::new();
    let mut namespaces = BTreeSet::from(LEASE_NAMESPACES);
    namespaces.extend(flags.scheduler_namespaces.iter().map(String::as_str));
    // What users write on Leases elsewhere registers nothing.
    for namespace in namespaces {
        // Those of agents are many, and none is a scheduler's.
        let options = ListParams::default().labels("!tidepool.io/agent");
        each(&Api::namespaced(client.clone(), namespace), options, |it| {
            leases.push(it);
        })
        .await
        .map_err(refuse)?;
    }
    let mut waiting = BTreeMap::<String, u64>::new();
    let options = ListParams::default().fields("spec.nodeName=");
    each(&Api::all(client.clone()), options, |pod: Pod| {
        if let Some(name) = scheduler_of(&pod) {
            *waiting.entry(name).or_default() += 1;
        }
    })
    .await
    .map_err(refuse)?;
    let maps: Api<ConfigMap> = Api::namespaced(client, NAMESPACE);
    let map = maps.get_opt(SCHEDULERS).await.map_err(refuse)?;
    let names = map.and_then(|map| map.data?.remove(REGISTERED_NAMES));
    let running = names.map(|names| {
        let names = read_names(&names).valid;
        names.iter().map(|it| it.to_string()).collect()
    });
    Ok(rows(&leases, waiting, running.as_ref()))
}

/// Calls the function for each object, page by page.
async fn each<K>(
    api: &Api<K>,
    mut options: ListParams,
    mut found: impl FnMut(K),
) -> kube::Result<()>
where
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    options = options.limit(PAGE);
    loop {
        let page = api.list(&options).await?;
        page.items.into_iter().for_each(&mut found);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => options = options.continue_token(&token),
            None => return Ok(()),
        }
    }
}

/// The scheduler that the pod waits for, if it waits.
fn scheduler_of(pod: &Pod) -> Option<String> {
    let spec = pod.spec.as_ref()?;
    let phase = pod.status.as_ref().and_then(|it| it.phase.as_deref());
    let waits = spec.node_name.as_ref().is_none_or(String::is_empty)
        && spec.scheduling_gates.as_ref().is_none_or(Vec::is_empty)
        && pod.metadata.deletion_timestamp.is_none()
        && !matches!(phase, Some("Succeeded" | "Failed"));
    let name = spec.scheduler_name.clone().unwrap_or_default();
    waits.then_some(name)
}

fn rows(
    leases: &[Lease],
    waiting: BTreeMap<String, u64>,
    running: Option<&BTreeSet<String>>,
) -> Vec<SchedulerRow> {
    let mut rows = Vec::new();
    let mut unseen: BTreeSet<String> = waiting.keys().cloned().collect();
    unseen.insert(DEFAULT_SCHEDULER.to_owned());
    // The controllers may have namespaces that this command was not given.
    unseen.extend(running.into_iter().flatten().cloned());
    let is_running = |name: &str| running.map(|running| running.contains(name));
    for lease in leases {
        let names = lease.annotations().get(SCHEDULER_NAMES);
        let holder = lease
            .spec
            .as_ref()
            .and_then(|it| it.holder_identity.clone());
        let holder = holder.filter(|it| !it.is_empty());
        for name in names.map(|it| read_names(it).valid).unwrap_or_default() {
            unseen.remove(&*name);
            rows.push(SchedulerRow {
                lease: Some(format!(
                    "{}/{}",
                    lease.namespace().unwrap_or_default(),
                    lease.name_any()
                )),
                // A Lease that was released has no leader, whatever another Lease of the name has.
                running: is_running(&name).map(|running| running && holder.is_some()),
                leader: holder.clone(),
                waiting: waiting.get(&*name).copied().unwrap_or(0),
                name: name.to_string(),
            });
        }
    }
    rows.extend(unseen.into_iter().map(|name| SchedulerRow {
        lease: None,
        leader: None,
        running: is_running(&name),
        waiting: waiting.get(&name).copied().unwrap_or(0),
        name,
    }));
    rows.sort_by(|a, b| (&a.name, &a.lease).cmp(&(&b.name, &b.lease)));
    rows
}

fn table(rows: &[SchedulerRow]) -> String {
    let heading = ["NAME", "RUNNING", "LEASE", "LEADER", "WAITING"];
    let mut lines = vec![heading.map(str::to_owned).to_vec()];
    let dash = |text: &Option<String>| {
        text.as_deref()
            .map_or("-".into(), |it| one_line(it).into_owned())
    };
    lines.extend(rows.iter().map(|row| {
        let running = match row.running {
            Some(true) => "yes",
            Some(false) => "no",
            None => "unknown",
        };
        vec![
            one_line(&row.name).into_owned(),
            running.to_owned(),
            dash(&row.lease),
            dash(&row.leader),
            row.waiting.to_string(),
        ]
    }));
    columns(&lines)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_of_leases_and_pods() {
        let lease = |name: &str, holder: &str, names: &str| -> Lease {
            serde_json::from_value(json!({
                "metadata": {"namespace": "infra", "name": name, "annotations": {SCHEDULER_NAMES: names}},
                "spec": {"holderIdentity": holder},
            }))
            .unwrap()
        };
        let leases = [
            lease("one", "me", "tidepool,batch"),
            lease("two", "", "batch,no name"),
        ];
        let waiting = BTreeMap::from([("tidepol".to_owned(), 2), ("batch".to_owned(), 1)]);
        let running: BTreeSet<String> = ["batch", "default-scheduler", "tidepool"]
            .map(str::to_owned)
            .into();
        assert_eq!(
            table(&rows(&leases, waiting.clone(), Some(&running))),
            "NAME               RUNNING  LEASE      LEADER  WAITING\n\
             batch              yes      infra/one  me            1\n\
             batch              no       infra/two  -             1\n\
             default-scheduler  yes      -          -             0\n\
             tidepol            no       -          -             2\n\
             tidepool           yes      infra/one  me            0\n"
        );
        let unknown = rows(&[], waiting, None);
        assert!(
            unknown.iter().all(|row| row.running.is_none()),
            "{unknown:?}"
        );
    }

    #[test]
    fn pods_that_wait_for_a_scheduler() {
        for (pod, want) in [
            (
                json!({"spec": {"schedulerName": "x", "containers": []}}),
                Some("x"),
            ),
            (
                json!({"spec": {"schedulerName": "x", "nodeName": "n", "containers": []}}),
                None,
            ),
            (
                json!({"spec": {"schedulerName": "x", "schedulingGates": [{"name": "g"}], "containers": []}}),
                None,
            ),
            (
                json!({"spec": {"schedulerName": "x", "containers": []}, "status": {"phase": "Failed"}}),
                None,
            ),
        ] {
            let pod: Pod = serde_json::from_value(pod).unwrap();
            assert_eq!(scheduler_of(&pod).as_deref(), want, "{pod:?}");
        }
    }
}
