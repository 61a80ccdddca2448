//! One run: a fresh control plane, a backlog, one scheduler, and what it took.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use control_plane::scheduler::{DECIDE_THREAD, IO_THREAD};
use e2e::{Binds, ControlPlane, Process};
use futures::{StreamExt, TryStreamExt, stream};
use http::Method;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{ListParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde::Serialize;
use serde_json::Value;

use crate::contestant::Contestant;
use crate::meter;
use crate::workload::{self, Workload};

/// Creations at a time.
const AT_ONCE: usize = 16;
/// More than the slowest needs for 8,000 pods.
const LONGEST: Duration = Duration::from_secs(900);
/// When no event came for so long, the last one has come: kube-scheduler may drop some.
const SILENCE: Duration = Duration::from_secs(3);
const POLL: Duration = Duration::from_millis(5);
/// A new kind is served within a second or two.
const SERVED: Duration = Duration::from_secs(30);

const REPORTS: &str = "/apis/node.katalyst.kubewharf.io/v1alpha1/customnoderesources";
const POLICIES: &str =
    "/apis/scheduling.sigs.x-k8s.io/v1alpha1/namespaces/default/resourcepolicies";

/// Pods and the nodes that were chosen for them.
pub(crate) type Placements = BTreeMap<String, String>;

pub(crate) struct Drain {
    pub(crate) workload: Workload,
    pub(crate) nodes: usize,
    pub(crate) pods: usize,
}

/// The pods that wait, as far as a binding needs it.
pub(crate) struct Backlog<'a> {
    /// Name and uid.
    pods: Vec<(String, String)>,
    nodes: usize,
    decided: &'a Placements,
}

impl Backlog<'_> {
    /// One line for each pod. What nobody decided yet goes around.
    pub(crate) fn placements(&self) -> String {
        let mut text = String::new();
        for (index, (name, uid)) in self.pods.iter().enumerate() {
            let around = format!("node-{}", index % self.nodes);
            let node = self.decided.get(name).unwrap_or(&around);
            text += &format!("default {name} {uid} {node}\n");
        }
        text
    }
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct Line {
    bench: &'static str,
    pub(crate) scheduler: &'static str,
    workload: &'static str,
    nodes: usize,
    pods: usize,
    /// Runs whose medians these are.
    pub(crate) runs: usize,
    bound: u64,
    events: u64,
    pods_per_s: f64,
    pods_per_s_with_events: f64,
    /// After the last event.
    cpu_ms_per_pod: f64,
    cpu_ms_per_pod_at_last_bind: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    io_cpu_ms_per_pod: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    decide_cpu_ms_per_pod: Option<f64>,
    peak_rss_mib: f64,
    apiserver_cpu_ms_per_pod: f64,
    requests: BTreeMap<String, u64>,
}

impl Line {
    /// The median of each figure of several equal runs.
    pub(crate) fn median(lines: &[&Self]) -> Option<Self> {
        let of = |figure: fn(&Self) -> f64| median(lines.iter().map(|line| figure(line)));
        let of_some = |figure: fn(&Self) -> Option<f64>| {
            let figures: Option<Vec<f64>> = lines.iter().map(|line| figure(line)).collect();
            figures.map(|figures| median(figures.into_iter()))
        };
        let first = *lines.first()?;
        let verbs = first.requests.keys().map(|verb| {
            let counts = lines.iter().map(|line| line.requests.get(verb).copied());
            let counts = counts.map(|count| count.unwrap_or(0) as f64);
            (verb.clone(), median(counts) as u64)
        });
        Some(Self {
            runs: lines.len(),
            bound: of(|line| line.bound as f64) as u64,
            events: of(|line| line.events as f64) as u64,
            pods_per_s: of(|line| line.pods_per_s),
            pods_per_s_with_events: of(|line| line.pods_per_s_with_events),
            cpu_ms_per_pod: of(|line| line.cpu_ms_per_pod),
            cpu_ms_per_pod_at_last_bind: of(|line| line.cpu_ms_per_pod_at_last_bind),
            io_cpu_ms_per_pod: of_some(|line| line.io_cpu_ms_per_pod),
            decide_cpu_ms_per_pod: of_some(|line| line.decide_cpu_ms_per_pod),
            peak_rss_mib: of(|line| line.peak_rss_mib),
            apiserver_cpu_ms_per_pod: of(|line| line.apiserver_cpu_ms_per_pod),
            requests: verbs.collect(),
            ..first.clone()
        })
    }
}

/// To thousandths: more would only look exact.
fn rounded(figure: f64) -> f64 {
    (figure * 1e3).round() / 1e3
}

fn median(figures: impl Iterator<Item = f64>) -> f64 {
    let mut figures: Vec<f64> = figures.collect();
    figures.sort_by(f64::total_cmp);
    let middle = figures.len() / 2;
    match figures.len() {
        0 => 0.0,
        even if even.is_multiple_of(2) => f64::midpoint(figures[middle - 1], figures[middle]),
        _ => figures[middle],
    }
}

impl Drain {
    /// Leaves in `placements` what was decided.
    pub(crate) async fn run(
        &self,
        contestant: Contestant,
        placements: &mut Placements,
    ) -> Result<Line> {
        let control_plane = ControlPlane::start(e2e::Options {
            disable_admission_plugins: vec![
                "ServiceAccount".to_owned(),
                "TaintNodesByCondition".to_owned(),
            ],
            ..e2e::Options::default()
        })?;
        let client = Client::try_from(control_plane.admin().to_client_config().await?)?;
        self.create_nodes(&client).await?;
        if self.workload.lends() {
            define(&client, REPORTS).await?;
            self.create_reports(&client).await?;
        }
        if let Some(policy) = self.workload.policy() {
            define(&client, POLICIES).await?;
            send(&client, Method::POST, POLICIES, &policy).await?;
        }
        let backlog = Backlog {
            pods: self.create_pods(&client).await?,
            nodes: self.nodes,
            decided: placements,
        };
        let apiserver = control_plane
            .apiserver_id()
            .context("kube-apiserver is not running")?;
        let binds = Binds::watch(&control_plane.admin())?;
        let requests = requests(&client).await?;
        let apiserver_cpu = meter::cpu(apiserver)?;

        let begun = Instant::now();
        let mut scheduler = contestant.start(self.workload, &control_plane, &backlog)?;
        let last_bind = last_bind(&binds, self.pods, &mut scheduler).await?;
        let at_last_bind = Used::read(scheduler.id(), apiserver)?;
        let (events, last_event, used) = if contestant.writes_events() {
            self.last_event(&control_plane, &scheduler, apiserver)
                .await?
        } else {
            (0, last_bind, at_last_bind.clone())
        };

        let per_pod = |cpu: Duration| rounded(cpu.as_secs_f64() * 1e3 / self.pods as f64);
        let per_s = |end: Instant| rounded(self.pods as f64 / (end - begun).as_secs_f64());
        let mut asked = self::requests(&client).await?;
        for (verb, before) in requests {
            if let Some(count) = asked.get_mut(&verb) {
                *count = count.saturating_sub(before);
            }
        }
        asked.retain(|_, count| *count > 0);
        let line = Line {
            bench: "drain",
            scheduler: contestant.name(),
            workload: self.workload.name(),
            nodes: self.nodes,
            pods: self.pods,
            runs: 1,
            bound: binds.count() as u64,
            events,
            pods_per_s: per_s(last_bind),
            pods_per_s_with_events: per_s(last_event),
            cpu_ms_per_pod: per_pod(used.scheduler),
            cpu_ms_per_pod_at_last_bind: per_pod(at_last_bind.scheduler),
            io_cpu_ms_per_pod: used.io.map(per_pod),
            decide_cpu_ms_per_pod: used.decide.map(per_pod),
            peak_rss_mib: rounded(meter::peak_rss_mib(scheduler.id())?),
            apiserver_cpu_ms_per_pod: per_pod(used.apiserver.saturating_sub(apiserver_cpu)),
            requests: asked,
        };
        scheduler.stop();
        placements.extend(decided(&client).await?);
        Ok(line)
    }

    /// How many events there are, when the last one came, and what had been used then.
    async fn last_event(
        &self,
        control_plane: &ControlPlane,
        scheduler: &Process,
        apiserver: u32,
    ) -> Result<(u64, Instant, Used)> {
        let mut known = 0;
        let (mut at, mut used) = (Instant::now(), Used::read(scheduler.id(), apiserver)?);
        while known < self.pods as u64 && at.elapsed() < SILENCE {
            tokio::time::sleep(4 * POLL).await;
            let count = control_plane.count_objects("/registry/events/default/")?;
            if count > known {
                known = count;
                (at, used) = (Instant::now(), Used::read(scheduler.id(), apiserver)?);
            }
        }
        Ok((known, at, used))
    }

    async fn create_nodes(&self, client: &Client) -> Result<()> {
        let api: Api<Node> = Api::all(client.clone());
        let made = stream::iter(0..self.nodes).map(|index| create(&api, self.workload.node(index)));
        made.buffer_unordered(AT_ONCE)
            .try_for_each(|_| async { Ok(()) })
            .await
    }

    async fn create_reports(&self, client: &Client) -> Result<()> {
        let made = stream::iter(0..self.nodes).map(|index| async move {
            let report = workload::report(index);
            send(client, Method::POST, REPORTS, &report).await?;
            // The status of a new object is left out.
            let path = format!("{REPORTS}/node-{index}/status");
            send(client, Method::PATCH, &path, &report).await
        });
        made.buffer_unordered(AT_ONCE)
            .try_for_each(|_| async { Ok(()) })
            .await
    }

    async fn create_pods(&self, client: &Client) -> Result<Vec<(String, String)>> {
        let api: Api<Pod> = Api::default_namespaced(client.clone());
        let made = stream::iter(0..self.pods)
            .map(|index| create(&api, self.workload.pod(index, self.nodes)));
        made.buffered(AT_ONCE)
            .map_ok(|pod| (pod.name_any(), pod.uid().unwrap_or_default()))
            .try_collect()
            .await
    }
}

/// Creates our definitions, and waits until objects of this kind can be created.
async fn define(client: &Client, kind: &str) -> Result<()> {
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    for (_, definition) in api::crds::all() {
        send(client, Method::POST, definitions, &definition).await?;
    }
    let begun = Instant::now();
    while let Err(error) = send(client, Method::GET, kind, &Value::Null).await {
        if begun.elapsed() > SERVED {
            return Err(error.context("the API server does not serve what it was told to"));
        }
        tokio::time::sleep(10 * POLL).await;
    }
    Ok(())
}

/// CPU times.
#[derive(Debug, Clone)]
struct Used {
    scheduler: Duration,
    io: Option<Duration>,
    decide: Option<Duration>,
    apiserver: Duration,
}

impl Used {
    fn read(scheduler: u32, apiserver: u32) -> Result<Self> {
        Ok(Self {
            scheduler: meter::cpu(scheduler)?,
            io: meter::thread_cpu(scheduler, IO_THREAD)?,
            decide: meter::thread_cpu(scheduler, DECIDE_THREAD)?,
            apiserver: meter::cpu(apiserver)?,
        })
    }
}

/// Returns when the last of so many pods was bound.
async fn last_bind(binds: &Binds, pods: usize, scheduler: &mut Process) -> Result<Instant> {
    let begun = Instant::now();
    loop {
        let bound = binds.count();
        if bound >= pods {
            return Ok(Instant::now());
        }
        let words = match scheduler.ended()? {
            Some(status) => format!("the scheduler ended ({status})"),
            None if binds.is_over() => "the watch ended".to_owned(),
            None if begun.elapsed() > LONGEST => format!("{LONGEST:?} were not enough"),
            None => {
                tokio::time::sleep(POLL).await;
                continue;
            }
        };
        let log = scheduler.last_words();
        bail!("{words}: {bound} of {pods} pods are bound\n{log}");
    }
}

/// For kinds that have no type here; a patch is merged.
async fn send(client: &Client, method: Method, path: &str, body: &Value) -> Result<Value> {
    let kind = match method {
        Method::PATCH => "application/merge-patch+json",
        _ => "application/json",
    };
    let bytes = match body {
        Value::Null => Vec::new(),
        body => body.to_string().into_bytes(),
    };
    let request = http::Request::builder().method(method).uri(path);
    let request = request.header("content-type", kind).body(bytes)?;
    client
        .request(request)
        .await
        .with_context(|| path.to_owned())
}

async fn create<K>(api: &Api<K>, object: Value) -> Result<K>
where
    K: kube::Resource + Clone + std::fmt::Debug + Serialize + serde::de::DeserializeOwned,
{
    let object: K = serde_json::from_value(object)?;
    Ok(api.create(&PostParams::default(), &object).await?)
}

async fn requests(client: &Client) -> Result<BTreeMap<String, u64>> {
    let request = http::Request::get("/metrics").body(Vec::new())?;
    Ok(meter::requests(&client.request_text(request).await?))
}

async fn decided(client: &Client) -> Result<Placements> {
    let api: Api<Pod> = Api::default_namespaced(client.clone());
    let pods = api.list(&ListParams::default()).await?;
    let node = |pod: Pod| {
        let name = pod.name_any();
        pod.spec
            .and_then(|spec| spec.node_name)
            .map(|node| (name, node))
    };
    Ok(pods.items.into_iter().filter_map(node).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_is_between_the_two_in_the_middle() {
        for (figures, want) in [
            (vec![], 0.0),
            (vec![3.0], 3.0),
            (vec![4.0, 1.0], 2.5),
            (vec![9.0, 1.0, 2.0], 2.0),
            (vec![9.0, 1.0, 2.0, 4.0], 3.0),
        ] {
            assert_eq!(median(figures.into_iter()), want);
        }
    }
}
