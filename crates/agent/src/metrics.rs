//! The last period as metrics.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;

use engine::model::Name;
use engine::node::{
    Advice, CpuMemory, GroupUse, NanoCores, NodeSample, Pressure, ReclaimedReport, Stall,
};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::agent::{PodNames, State};
use crate::report::send::SendCounts;

type Labels = Vec<(&'static str, String)>;
type Values = Family<Labels, Gauge<f64, AtomicU64>>;

/// What the agent did besides measuring.
pub(crate) struct Work {
    /// By kind of object.
    pub(crate) reports: BTreeMap<&'static str, SendCounts>,
    /// By outcome.
    pub(crate) evictions: BTreeMap<&'static str, u64>,
    pub(crate) settings_error: Option<String>,
    pub(crate) reclaimed: ReclaimedReport,
}

/// A value that could not be measured has no line.
pub(crate) fn registry(state: &State, pods: &BTreeMap<Name, PodNames>, work: &Work) -> Registry {
    let metrics = Metrics::default();
    metrics.work(state, work);
    metrics.advice(&state.advice);
    metrics
        .unreadable_files
        .get_or_create(&Vec::new())
        .set(state.problems.len() as f64);
    if let Some((at, duration)) = state.taken {
        let age = at.elapsed().as_secs_f64();
        metrics.sample_age.get_or_create(&Vec::new()).set(age);
        let duration = duration.as_secs_f64();
        metrics
            .sample_duration
            .get_or_create(&Vec::new())
            .set(duration);
    }
    if let Some(sample) = &state.sample {
        metrics.machine(sample);
        for (name, group) in [
            ("kubepods", &sample.kubepods),
            ("burstable", &sample.burstable),
            ("besteffort", &sample.besteffort),
        ] {
            metrics.group(&metrics.groups, vec![("group", name.to_owned())], group);
        }
        let unknown = PodNames::default();
        for (uid, pod) in &sample.pods {
            let names = pods.get(uid).unwrap_or(&unknown);
            let labels = vec![
                ("namespace", names.namespace.clone()),
                ("pod", names.name.clone()),
                ("uid", uid.to_string()),
            ];
            metrics.group(&metrics.pods, labels.clone(), &pod.group);
            for (id, group) in &pod.containers {
                // The sandbox and containers that the API does not show yet have no name.
                let mut labels = labels.clone();
                let name = names.containers.get(&**id).cloned();
                labels.push(("container", name.unwrap_or_default()));
                labels.push(("id", id.to_string()));
                metrics.group(&metrics.containers, labels, group);
            }
        }
    }
    metrics.register()
}

#[derive(Default)]
struct Metrics {
    sample_age: Values,
    sample_duration: Values,
    unreadable_files: Values,
    machine_cpu: Values,
    machine_memory: Values,
    machine_load: Values,
    numa_cpu: Values,
    numa_memory: Values,
    groups: GroupMetrics,
    pods: GroupMetrics,
    containers: GroupMetrics,
    pressure: Values,
    reclaimed: Values,
    granted: Values,
    conditions: Values,
    taints: Values,
    written: Values,
    evictions: Values,
    report_failing: Values,
    reports: Values,
    settings_invalid: Values,
}

/// The values that QoS directories, pods and containers have alike.
#[derive(Default)]
struct GroupMetrics {
    cpu: Values,
    throttled: Values,
    memory: Values,
    numa_memory: Values,
    pressure: Values,
}

impl Metrics {
    fn work(&self, state: &State, work: &Work) {
        let none = Vec::new();
        let lent = work.reclaimed.allocatable;
        set_amounts(&self.reclaimed, lent);
        self.written.get_or_create(&none).set(state.written as f64);
        let is_invalid = f64::from(u8::from(work.settings_error.is_some()));
        self.settings_invalid.get_or_create(&none).set(is_invalid);
        for (outcome, count) in &work.evictions {
            let labels = vec![("outcome", (*outcome).to_owned())];
            self.evictions.get_or_create(&labels).set(*count as f64);
        }
        for (kind, counts) in &work.reports {
            let labels = vec![("kind", (*kind).to_owned())];
            let is_failing = f64::from(u8::from(counts.failure.is_some()));
            self.report_failing.get_or_create(&labels).set(is_failing);
            self.reports.get_or_create(&labels).set(counts.sent as f64);
        }
    }

    fn advice(&self, advice: &Advice) {
        if let Some(grant) = &advice.suppression {
            let cores = grant.milli_cpu as f64 / 1000.0;
            self.granted.get_or_create(&Vec::new()).set(cores);
        }
        for condition in &advice.conditions {
            let labels = vec![("type", condition.kind.to_owned())];
            let status = f64::from(u8::from(condition.status));
            self.conditions.get_or_create(&labels).set(status);
        }
        for taint in &advice.taints {
            let labels = vec![("key", taint.key.to_owned())];
            self.taints.get_or_create(&labels).set(1.0);
        }
    }

    fn machine(&self, sample: &NodeSample) {
        let machine = &sample.machine;
        set_cores(&self.machine_cpu, Vec::new(), machine.cpu);
        if let Some(memory) = machine.memory {
            for (kind, size) in [("total", memory.total), ("available", memory.available)] {
                let labels = vec![("kind", kind.to_owned())];
                self.machine_memory
                    .get_or_create(&labels)
                    .set(size.0 as f64);
            }
        }
        for (minutes, load) in ["1", "5", "15"].iter().zip(machine.load.iter().flatten()) {
            let labels = vec![("minutes", (*minutes).to_owned())];
            self.machine_load.get_or_create(&labels).set(*load);
        }
        set_pressure(&self.pressure, &Vec::new(), &machine.pressure);
        for (number, numa) in &sample.numa {
            let labels = vec![("numa", number.to_string())];
            set_cores(&self.numa_cpu, labels.clone(), numa.cpu);
            for (kind, size) in [("total", numa.memory_total), ("free", numa.memory_free)] {
                if let Some(size) = size {
                    let mut labels = labels.clone();
                    labels.push(("kind", kind.to_owned()));
                    self.numa_memory.get_or_create(&labels).set(size.0 as f64);
                }
            }
        }
    }

    fn group(&self, metrics: &GroupMetrics, labels: Labels, group: &GroupUse) {
        set_cores(&metrics.cpu, labels.clone(), group.cpu);
        if let Some(throttling) = group.throttling.filter(|it| it.periods > 0) {
            let share = throttling.throttled_periods as f64 / throttling.periods as f64;
            metrics.throttled.get_or_create(&labels).set(share);
        }
        if let Some(memory) = &group.memory {
            let size = memory.working_set.0 as f64;
            metrics.memory.get_or_create(&labels).set(size);
            for (node, size) in &memory.numa {
                let mut labels = labels.clone();
                labels.push(("numa", node.to_string()));
                metrics
                    .numa_memory
                    .get_or_create(&labels)
                    .set(size.0 as f64);
            }
        }
        set_pressure(&metrics.pressure, &labels, &group.pressure);
    }

    fn register(self) -> Registry {
        let mut registry = Registry::with_prefix("tidepool_agent");
        let mut add =
            |name: &str, help: &str, values: Values| registry.register(name, help, values);
        add(
            "sample_age_seconds",
            "Age of the last sample",
            self.sample_age,
        );
        add(
            "sample_duration_seconds",
            "Time that the last sample took",
            self.sample_duration,
        );
        add(
            "unreadable_files",
            "Kinds of files that cannot be read",
            self.unreadable_files,
        );
        for (name, help, values) in [
            (
                "reclaimed",
                "What the node lends, in milli-cores and bytes",
                self.reclaimed,
            ),
            (
                "granted_cpu_cores",
                "CPU that best-effort pods of the agent may use",
                self.granted,
            ),
            (
                "condition",
                "1 while a condition of the CNR is true",
                self.conditions,
            ),
            ("taint", "1 while the agent taints the node", self.taints),
            (
                "written_files",
                "Writes of cgroup files since the start",
                self.written,
            ),
            ("evictions", "Evictions since the start", self.evictions),
            ("reports", "Reports since the start", self.reports),
            (
                "report_failing",
                "1 while an object cannot be reported",
                self.report_failing,
            ),
            (
                "settings_invalid",
                "1 while the newest settings cannot be used",
                self.settings_invalid,
            ),
        ] {
            add(name, help, values);
        }
        add(
            "machine_cpu_cores",
            "CPU use of the machine",
            self.machine_cpu,
        );
        add(
            "machine_memory_bytes",
            "Memory of the machine",
            self.machine_memory,
        );
        add(
            "machine_load",
            "Load average of the machine",
            self.machine_load,
        );
        add("machine_pressure_ratio", PRESSURE, self.pressure);
        add("numa_cpu_cores", "CPU use of a NUMA node", self.numa_cpu);
        add(
            "numa_memory_bytes",
            "Memory of a NUMA node",
            self.numa_memory,
        );
        for (kind, what, metrics) in [
            ("group", "all pods or the pods of a QoS class", self.groups),
            ("pod", "a pod", self.pods),
            ("container", "a container", self.containers),
        ] {
            let mut add =
                |name: &str, help: &str, values| add(&format!("{kind}_{name}"), help, values);
            add("cpu_cores", &format!("CPU use of {what}"), metrics.cpu);
            add(
                "throttled_ratio",
                &format!("Share of CPU periods in which {what} was throttled"),
                metrics.throttled,
            );
            add(
                "memory_working_set_bytes",
                &format!("Memory working set of {what}"),
                metrics.memory,
            );
            add(
                "numa_memory_bytes",
                &format!("Memory of {what} on a NUMA node"),
                metrics.numa_memory,
            );
            add("pressure_ratio", PRESSURE, metrics.pressure);
        }
        registry
    }
}

const PRESSURE: &str =
    "Share of the last ten seconds in which some or all tasks waited for a resource";

fn set_amounts(values: &Values, amount: CpuMemory) {
    let amounts = [("cpu", amount.milli_cpu), ("memory", amount.memory)];
    for (resource, amount) in amounts {
        let labels = vec![("resource", resource.to_owned())];
        values.get_or_create(&labels).set(amount as f64);
    }
}

fn set_cores(values: &Values, labels: Labels, cores: Option<NanoCores>) {
    if let Some(NanoCores(cores)) = cores {
        values.get_or_create(&labels).set(cores as f64 / 1e9);
    }
}

fn set_pressure(values: &Values, labels: &Labels, pressure: &Pressure) {
    let resources = [
        ("cpu", pressure.cpu),
        ("memory", pressure.memory),
        ("io", pressure.io),
    ];
    for (resource, stall) in resources {
        let Some(Stall { some, full }) = stall else {
            continue;
        };
        for (tasks, percent) in [("some", some), ("full", full)] {
            let mut labels = labels.clone();
            labels.push(("resource", resource.to_owned()));
            labels.push(("tasks", tasks.to_owned()));
            values.get_or_create(&labels).set(percent / 100.0);
        }
    }
}
