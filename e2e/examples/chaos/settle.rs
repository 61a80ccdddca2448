//! After the last fault: every pod that fits is bound within a minute, and the leader's cache equals the API server.
//!
//! | rule | meaning |
//! |---|---|
//! | `stuck` | a pod that fits is bound, and one that does not is tried |
//! | `no leader` | the same, if no leader answers |
//! | `not woken` | a pod that was refused is bound when nodes lend more |
//! | `cache` | the leader's cache equals the API server |

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use e2e::Api;
use serde_json::Value;

use crate::checker::Violation;
use crate::cluster::{PODS, RECLAIMED, REPORTS, retry};
use crate::evidence::{StoredPod, quantity, stored_pod, text};
use crate::replicas::{LEASE_NAME, LEASE_NAMESPACE};
use crate::workload::{Workload, job};

/// The longest time that a pod may wait.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);
/// The longest time for a scheduler with a planted fault: what is wrong stays so.
pub(crate) const PLANTED_LIMIT: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(200);
pub(crate) const NO_LEADER: &str = "no leader";
/// Native capacity that pods may ask for in a group with three nodes of four cpus. The largest ask for two: while less
/// than six are taken, some node has room for one.
const FITS: i64 = 8_000;
/// Pods that wait until nodes lend more.
const PROBES: usize = 3;
/// The cache follows the API server within seconds.
const CACHE_LIMIT: Duration = Duration::from_secs(20);

/// What is wrong when the faults are over.
pub(crate) fn settle(
    workload: &mut Workload,
    round: u64,
    limit: Duration,
) -> Result<Vec<Violation>> {
    let wait = |rule: &'static str, what: &'static str| Wait {
        rule,
        what,
        begun: Instant::now(),
        limit,
    };
    let bound = wait("stuck", "is not bound");
    retry("pods that do not fit are deleted", || trim(workload))?;
    // They have room now, since others were deleted: these events must wake them.
    let services = |pod: &Value| stored_pod(pod).reclaimed == 0;
    let mut violations = bound.for_all(&workload.api, services, is_bound)?;
    if !violations.is_empty() {
        return Ok(explain(violations, compare_cache(&workload.api)));
    }
    retry("nodes lend nothing", || workload.lend_all(0))?;
    let names = (0..PROBES).map(|index| format!("probe-{round}-{index}"));
    for name in names {
        retry("a pod is created", || workload.create(&job(&name, 500)))?;
    }
    let is_probe = |pod: &Value| text(&pod["metadata"]["name"]).starts_with("probe-");
    let was_tried = |pod: &Value| is_bound(pod) || is_refused(pod);
    let tried = wait("stuck", "was not tried");
    violations = tried.for_all(&workload.api, is_probe, was_tried)?;
    if !violations.is_empty() {
        return Ok(explain(violations, compare_cache(&workload.api)));
    }
    // Jobs have room now, since nodes lend more.
    retry("nodes lend much", || workload.lend_all(20_000))?;
    let woken = wait("not woken", "is not bound");
    violations = woken.for_all(&workload.api, |_| true, is_bound)?;
    violations.extend(compare_cache(&workload.api)?);
    retry("the probes are deleted", || {
        let pods = workload.api.list(PODS)?;
        pods.iter()
            .filter(|pod| is_probe(pod))
            .try_for_each(|pod| workload.delete(pod))
    })?;
    Ok(violations)
}

pub(crate) fn is_bound(pod: &Value) -> bool {
    !pod["spec"]["nodeName"].is_null()
}

pub(crate) fn is_refused(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    let mut scheduled = conditions.filter(|it| it["type"] == "PodScheduled");
    scheduled.any(|it| it["status"] == "False")
}

/// Deletes services until the others fit whatever their order; bound ones first.
fn trim(workload: &mut Workload) -> Result<()> {
    let mut pods = workload.api.list(PODS)?;
    pods.sort_by_key(is_bound);
    let mut asked: BTreeMap<String, i64> = BTreeMap::new();
    for pod in pods {
        let StoredPod { group, cpu, .. } = stored_pod(&pod);
        let asked = asked.entry(group).or_default();
        if *asked + cpu > FITS {
            workload.delete(&pod)?;
        } else {
            *asked += cpu;
        }
    }
    Ok(())
}

/// What pods must be at the latest so long after `begun`.
struct Wait {
    rule: &'static str,
    /// What is wrong with a pod that is late.
    what: &'static str,
    begun: Instant,
    limit: Duration,
}

impl Wait {
    /// A violation for each of these pods that is late.
    fn for_all(
        &self,
        api: &Api,
        of: impl Fn(&Value) -> bool,
        is_well: impl Fn(&Value) -> bool,
    ) -> Result<Vec<Violation>> {
        loop {
            let pods = retry("pods can be listed", || api.list(PODS))?;
            let late = pods.iter().filter(|pod| of(pod) && !is_well(pod));
            let late: Vec<&Value> = late.collect();
            if late.is_empty() || self.begun.elapsed() > self.limit {
                let violation = |pod: &&Value| Violation {
                    rule: self.rule,
                    text: format!(
                        "pod {} ({}) {} {:?} after the last fault: {}",
                        text(&pod["metadata"]["name"]),
                        text(&pod["metadata"]["uid"]),
                        self.what,
                        self.limit,
                        pod["status"]
                    ),
                };
                return Ok(late.iter().map(violation).collect());
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

/// Adds what the leader believes when pods are stuck. They are stuck for another reason if it does not answer.
fn explain(mut stuck: Vec<Violation>, cache: Result<Vec<Violation>>) -> Vec<Violation> {
    match cache {
        Ok(differences) => stuck.extend(differences),
        Err(error) => {
            for violation in &mut stuck {
                violation.rule = NO_LEADER;
                violation.text = format!("{}; {error:#}", violation.text);
            }
        }
    }
    stuck
}

/// The differences that stay.
fn compare_cache(api: &Api) -> Result<Vec<Violation>> {
    let begun = Instant::now();
    loop {
        let found = differences_now(api);
        match found {
            Ok(found) if found.is_empty() => return Ok(Vec::new()),
            Ok(found) if begun.elapsed() > CACHE_LIMIT => {
                let violation = |text| Violation {
                    rule: "cache",
                    text,
                };
                return Ok(found.into_iter().map(violation).collect());
            }
            Err(error) if begun.elapsed() > CACHE_LIMIT => return Err(error),
            _ => std::thread::sleep(LOOK_EVERY),
        }
    }
}

fn differences_now(api: &Api) -> Result<Vec<String>> {
    let dump = leader_cache(api)?;
    let (nodes, reports) = (api.list("/api/v1/nodes")?, api.list(REPORTS)?);
    Ok(differences(&dump, &nodes, &reports, &api.list(PODS)?))
}

/// `/debug/cache` of the holder of the Lease.
fn leader_cache(api: &Api) -> Result<Value> {
    let lease = api.get(&format!(
        "/apis/coordination.k8s.io/v1/namespaces/{LEASE_NAMESPACE}/leases/{LEASE_NAME}"
    ))?;
    let server = text(&lease["metadata"]["annotations"][::api::contracts::SERVER]);
    let address = server
        .strip_prefix("http://")
        .with_context(|| format!("the leader does not serve on loopback: `{server}`"))?;
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    write!(
        stream,
        "GET /debug/cache HTTP/1.0\r\nHost: {address}\r\n\r\n"
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer
        .split_once("\r\n\r\n")
        .context("the leader's answer has no body")?;
    serde_json::from_str(body).with_context(|| format!("the leader answered no JSON: {head}"))
}

/// Per node: capacity, what pods take, their number; and nothing assumed or unknown.
fn differences(dump: &Value, nodes: &[Value], reports: &[Value], pods: &[Value]) -> Vec<String> {
    let mut found = Vec::new();
    let mut differ = |what: String, cached: i64, real: i64| {
        if cached != real {
            found.push(format!(
                "{what} is {cached} in the cache and {real} in the API server"
            ));
        }
    };
    let name = |object: &Value| text(&object["metadata"]["name"]);
    let cached = dump["nodes"].as_array().map_or(&[][..], Vec::as_slice);
    let length = |items: &Value| items.as_array().map_or(0, |it| count(it.len()));
    differ(
        "the number of nodes".to_owned(),
        count(cached.len()),
        count(nodes.len()),
    );
    differ(
        "the number of unknown nodes".to_owned(),
        length(&dump["unknownNodes"]),
        0,
    );
    for node in nodes {
        let node_name = name(node);
        let entry = cached.iter().find(|it| it["name"] == *node_name);
        let entry = entry.unwrap_or(&Value::Null);
        let here = pods
            .iter()
            .filter(|it| it["spec"]["nodeName"] == *node_name);
        let here: Vec<StoredPod> = here.map(stored_pod).collect();
        let report = reports.iter().find(|it| name(it) == node_name);
        let report = report.unwrap_or(&Value::Null);
        let (native, reclaimed) = (&entry["native"], &entry["reclaimed"]);
        let of = |what: &str| format!("{what} of node {node_name}");
        let allocatable = &node["status"]["allocatable"];
        let lent = &report["status"]["resources"]["allocatable"];
        for (what, cached, real) in [
            (
                "allocatable cpu",
                &native["allocatable"]["cpu"],
                quantity(&allocatable["cpu"]),
            ),
            (
                "requested cpu",
                &native["requested"]["cpu"],
                here.iter().map(|it| it.cpu).sum(),
            ),
            (
                "lent cpu",
                &reclaimed["allocatable"][RECLAIMED],
                quantity(&lent[RECLAIMED]),
            ),
            (
                "reclaimed cpu",
                &reclaimed["requested"][RECLAIMED],
                here.iter().map(|it| it.reclaimed).sum(),
            ),
            (
                "the number of pods",
                &entry["pods"],
                1_000 * count(here.len()),
            ),
        ] {
            differ(of(what), quantity(cached), real);
        }
        for what in ["assumed", "nominated"] {
            differ(
                of(&format!("the number of {what} pods")),
                length(&entry[what]),
                0,
            );
        }
    }
    found
}

fn count(length: usize) -> i64 {
    i64::try_from(length).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn pods_are_stuck_only_while_a_leader_answers() {
        let violation = |rule| Violation {
            rule,
            text: String::new(),
        };
        let rules = |cache| -> Vec<&str> {
            let found = explain(vec![violation("stuck")], cache);
            found.iter().map(|it| it.rule).collect()
        };
        assert_eq!(rules(Ok(vec![])), ["stuck"]);
        assert_eq!(rules(Ok(vec![violation("cache")])), ["stuck", "cache"]);
        assert_eq!(rules(Err(anyhow::anyhow!("refused"))), [NO_LEADER]);
    }

    #[test]
    fn differences_name_the_node() {
        let node = json!({"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "4"}}});
        let report = json!({"metadata": {"name": "n"},
            "status": {"resources": {"allocatable": {RECLAIMED: "2000"}}}});
        let request = |resource: &str, amount: &str| {
            let requests = json!({resource: amount});
            json!({"metadata": {"name": amount}, "spec": {"nodeName": "n",
                "containers": [{"resources": {"requests": requests}}]}})
        };
        let pods = [request("cpu", "1500m"), request(RECLAIMED, "500")];
        let mut dump = json!({"unknownNodes": [], "nodes": [{"name": "n", "pods": 2, "assumed": [], "nominated": [],
            "native": {"allocatable": {"cpu": "4"}, "requested": {"cpu": "1500m"}},
            "reclaimed": {"allocatable": {RECLAIMED: "2k"}, "requested": {RECLAIMED: "500"}}}]});
        let (nodes, reports) = ([node], [report]);
        assert_eq!(differences(&dump, &nodes, &reports, &pods), [""; 0]);
        dump["nodes"][0]["native"]["requested"]["cpu"] = json!("1");
        dump["nodes"][0]["assumed"] = json!([{"name": "p"}]);
        let want = [
            "requested cpu of node n is 1000 in the cache and 1500 in the API server",
            "the number of assumed pods of node n is 1 in the cache and 0 in the API server",
        ];
        assert_eq!(differences(&dump, &nodes, &reports, &pods), want);
    }
}
