//! One period of the agent: it samples, asks the engine, writes cgroup files, and hands over what is to be reported and evicted.
//!
//! It runs on a thread of its own, because reading a cgroup may wait for the kernel. Without API server it goes on with the pods
//! that it knows.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use engine::model::{Name, Timestamp};
use engine::node::groups;
use engine::node::health::NUMA_ZONES_DIFFER;
use engine::node::publish::{Published, PublishedReport, explain};
use engine::node::{
    Advice, Advisor, AgentCondition, Bytes, ChangedCpuset, CpuSet, EvictionOrder, GroupConflict,
    Inputs, LocalNode, LocalPod, NodeSample, PodEvent, Processor, ReclaimedReport, WriteProblems,
    advise,
};
use k8s_openapi::api::core::v1::{Node, Pod};
use reconcile::Cache;
use rustix::fs::OFlags;
use tokio::sync::watch;

use crate::agent::{Options, Shared, wall_clock};
use crate::checkpoint::{self, Corrupt};
use crate::collect::{Collector, topology};
use crate::hierarchy::{Controller, Reader, Version};
use crate::kubelet::{CpuManager, cpu_manager, has_static_memory_manager};
use crate::objects::{self, Sources};
use crate::parse;
use crate::report::Observation;
use crate::settings::SettingsStore;
use crate::write::{JournalError, KernelFiles, Mode, Report, Writer};

/// An agent that starts waits this many periods for the first rates and for the lists of the API server. Meanwhile what the one
/// before it reported and wrote stays.
const START_PERIODS: u32 = 30;
/// How soon a started container or a changed pod is noticed between two samples.
const POLL: Duration = Duration::from_millis(100);
/// Two samples are at least this share of a period apart: rates over less time are noise.
const EARLIEST: f64 = 0.25;
/// What of the kubelet changes seldom is read again after this time.
const SLOW_PERIOD: Duration = Duration::from_secs(10);

/// The objects of the node, as its watches know them.
pub(crate) struct Objects {
    pub(crate) pods: Arc<Cache<Pod>>,
    pub(crate) nodes: Arc<Cache<Node>>,
    /// Whether the first list of each is complete.
    pub(crate) listed: Arc<dyn Fn() -> [bool; 2] + Send + Sync>,
    /// Something changed since it was read last.
    pub(crate) changed: Arc<AtomicBool>,
}

/// Where the results go.
pub(crate) struct Outputs {
    pub(crate) observations: watch::Sender<Arc<Observation>>,
    pub(crate) evictions: tokio::sync::mpsc::Sender<EvictionOrder>,
    pub(crate) events: tokio::sync::mpsc::Sender<PodEvent>,
    pub(crate) shared: Arc<Shared>,
}

/// The answer to an eviction: the uid of the pod, and whether it is being deleted.
pub(crate) type EvictionAnswer = (Name, bool);

pub(crate) struct Control {
    options: Options,
    objects: Objects,
    settings: SettingsStore,
    outputs: Outputs,
    answers: mpsc::Receiver<EvictionAnswer>,
    started: Instant,
    has_started: bool,
    collector: Option<Collector>,
    /// Why there is no collector.
    missing: String,
    reader: Reader,
    writer: Option<Writer>,
    /// Why the journal cannot be relied upon, and when it was read.
    journal_damage: Option<String>,
    journal_read: Option<Instant>,
    advisor: Advisor,
    checkpoint: PathBuf,
    checkpointed: Instant,
    has_checkpoint_failed: bool,
    sample: Option<Arc<NodeSample>>,
    node: Option<LocalNode>,
    /// The Nodes are listed, and that of the agent is not among them.
    is_missing: bool,
    pods: Option<Vec<LocalPod>>,
    group_conflicts: Vec<GroupConflict>,
    processors: Arc<[Processor]>,
    cpus: CpuSet,
    distances: BTreeMap<u32, Vec<u32>>,
    cpu_manager: CpuManager,
    static_memory_manager: bool,
    cpu_manager_read: Option<Instant>,
    last_report: Report,
    /// What a dry run would write, by file.
    announced: BTreeMap<String, String>,
    reclaimed: PublishedReport,
    /// The last published report.
    published: Option<ReclaimedReport>,
    reclaimable: Published,
    /// The figures at the last publication.
    terms: Vec<engine::node::Figure>,
    conditions: Vec<(AgentCondition, Timestamp)>,
}

impl Control {
    pub(crate) fn new(
        options: Options,
        objects: Objects,
        settings: SettingsStore,
        outputs: Outputs,
        answers: mpsc::Receiver<EvictionAnswer>,
    ) -> Self {
        let checkpoint = options.state_dir.join("checkpoint.json");
        Self {
            advisor: advisor(&checkpoint, options.dry_run),
            options,
            objects,
            settings,
            outputs,
            answers,
            started: Instant::now(),
            has_started: false,
            collector: None,
            missing: String::new(),
            reader: Reader::default(),
            writer: None,
            journal_damage: None,
            journal_read: None,
            checkpoint,
            checkpointed: Instant::now(),
            has_checkpoint_failed: false,
            sample: None,
            node: None,
            is_missing: false,
            pods: None,
            group_conflicts: Vec::new(),
            processors: Arc::default(),
            cpus: CpuSet::default(),
            distances: BTreeMap::new(),
            cpu_manager: CpuManager::default(),
            static_memory_manager: false,
            cpu_manager_read: None,
            last_report: Report::default(),
            announced: BTreeMap::new(),
            reclaimed: PublishedReport::default(),
            published: None,
            reclaimable: Published::default(),
            terms: Vec::new(),
            conditions: Vec::new(),
        }
    }

    /// Runs until the other side of `stopped` is dropped. A period that took too long is not made up for.
    pub(crate) fn run(mut self, stopped: &mpsc::Receiver<()>) {
        loop {
            let sampled = Instant::now();
            self.collect(self.time(sampled));
            self.act(sampled);
            let earliest = self.options.period.mul_f64(EARLIEST);
            loop {
                let rest = self.options.period.saturating_sub(sampled.elapsed());
                if stopped.recv_timeout(rest.min(POLL)) != Err(RecvTimeoutError::Timeout) {
                    self.save_checkpoint();
                    return;
                }
                if rest <= POLL || (sampled.elapsed() >= earliest && self.has_new_groups()) {
                    break;
                }
                // A changed pod does not wait for a sample: pods leave the zone of another one at once.
                if self.objects.changed.load(Ordering::Relaxed) {
                    self.act(Instant::now());
                }
            }
        }
    }

    /// Whether a container started or ended.
    fn has_new_groups(&mut self) -> bool {
        let groups = self.collector.as_mut();
        groups.is_some_and(|collector| collector.has_changed())
    }

    /// Decides on the last sample and the objects, and carries it out.
    fn act(&mut self, began: Instant) {
        let now = self.time(began);
        self.read_slow_files(began);
        self.read_objects();
        self.settle_groups();
        while let Ok((uid, is_accepted)) = self.answers.try_recv() {
            self.advisor.eviction_result(&uid, is_accepted, now);
        }
        let problems = self.problems();
        if !self.is_ready(began) {
            let sample = self.sample.clone();
            let shared = &self.outputs.shared;
            shared.finish_round(began, Advice::default(), problems, sample, 0);
            return;
        }
        let labels = self.node.as_ref().map(|node| node.labels.clone());
        let settings = self.settings.get(&labels.unwrap_or_default());
        let burstable_memory_limit = self.burstable_memory_limit();
        self.open_writer(began);
        let changed_cpusets = self.changed_cpusets();
        let inputs = Inputs {
            sample: self.sample.as_deref(),
            node: self.node.as_ref(),
            pods: self.pods.as_deref(),
            processors: &self.processors,
            distances: Some(&self.distances),
            static_cpu_manager: self.cpu_manager.is_static,
            static_memory_manager: self.static_memory_manager,
            numa: self.options.numa,
            burstable_memory_limit,
            unreadable: &problems,
            writes: WriteProblems {
                failed: &self.last_report.failing,
                refused: &self.last_report.refused,
                given_up: &self.last_report.given_up,
                journal: self.journal_damage.as_deref(),
            },
            group_conflicts: &self.group_conflicts,
            changed_cpusets: Some(&changed_cpusets),
        };
        let advice = advise(&mut self.advisor, &inputs, &settings, now);
        for notice in &advice.notices {
            tracing::info!(node = self.options.node, "{notice}");
        }
        self.write(&advice, now);
        if let Some(collector) = &mut self.collector {
            collector.read_cpusets(advice.has_zones);
        }
        for order in &advice.evictions {
            self.order(order, now);
        }
        for event in &advice.events {
            // An event that finds the queue full is lost: nothing depends on it.
            let _ = self.outputs.events.try_send(event.clone());
        }
        self.publish(&advice, now);
        if self.checkpointed.elapsed() >= self.options.checkpoint_period {
            self.save_checkpoint();
        }
        let written = self.last_report.written.len();
        self.outputs
            .shared
            .finish_round(began, advice, problems, self.sample.clone(), written);
    }

    /// Whether there is enough to decide on, or the time to wait for it is over.
    fn is_ready(&mut self, now: Instant) -> bool {
        let sample = self.sample.as_ref();
        let has_rates = sample.is_some_and(|sample| sample.machine.cpu.is_some());
        let is_complete = has_rates && self.node.is_some() && self.pods.is_some();
        let waited = now.saturating_duration_since(self.started);
        self.has_started |= is_complete || waited >= self.options.period * START_PERIODS;
        self.has_started
    }

    fn time(&self, at: Instant) -> Timestamp {
        let passed = at.saturating_duration_since(self.started);
        Timestamp(i64::try_from(passed.as_nanos()).unwrap_or(i64::MAX))
    }

    fn collect(&mut self, now: Timestamp) {
        if self.collector.is_none() {
            let periods =
                self.options.detail_period.as_nanos() / self.options.period.as_nanos().max(1);
            let rounds_of_details = u64::try_from(periods).unwrap_or(u64::MAX);
            match Collector::new(&self.options.paths, rounds_of_details) {
                Ok(collector) => {
                    let version = collector.hierarchies().version();
                    tracing::info!(node = self.options.node, ?version, "found cgroups");
                    self.missing.clear();
                    self.collector = Some(collector);
                }
                Err(error) => {
                    let cause = std::error::Error::source(&error);
                    let cause = cause.map(|cause| format!(": {cause}")).unwrap_or_default();
                    let why = format!("{error}{cause}");
                    if why != self.missing {
                        tracing::warn!(why, "cannot find cgroups");
                        self.missing = why;
                    }
                }
            }
        }
        let Some(collector) = &mut self.collector else {
            return;
        };
        let sample = collector.sample(now);
        let (cpus, numa) = (&sample.machine.cpus, &sample.numa);
        let sys = &self.options.paths.sys;
        if *cpus != self.cpus {
            self.processors = topology::processors(sys, cpus, numa).into();
            self.cpus = cpus.clone();
        }
        if !self.distances.keys().eq(numa.keys()) {
            self.distances = topology::distances(sys, numa.keys());
        }
        self.sample = Some(Arc::new(sample));
    }

    fn problems(&self) -> Vec<(String, String)> {
        match &self.collector {
            Some(collector) => {
                let problems = collector.problems();
                let owned = |(file, why): (&str, &str)| (file.to_owned(), why.to_owned());
                problems.map(owned).collect()
            }
            None => vec![("cgroups".to_owned(), self.missing.clone())],
        }
    }

    /// Converts objects only after a change: there may be hundreds.
    fn read_objects(&mut self) {
        // The end of the first list is no change of an object.
        let is_complete = self.pods.is_some() && (self.node.is_some() || self.is_missing);
        if !self.objects.changed.swap(false, Ordering::Relaxed) && is_complete {
            return;
        }
        let [has_pods, has_node] = (self.objects.listed)();
        if has_pods {
            let pods = self.objects.pods.all();
            let sources = Sources {
                static_cpus: self.cpu_manager.bound.clone(),
                pod_logs: self.options.pod_logs.clone(),
                koordinator_cpus: self.options.koordinator_cpus,
            };
            let pods = pods.iter().filter_map(|pod| objects::pod(pod, &sources));
            self.pods = Some(pods.collect());
        }
        if has_node {
            let node = self.objects.nodes.all();
            let is_known = self.node.is_some() || self.is_missing;
            self.node = node.first().map(|node| objects::node(node));
            self.is_missing = self.node.is_none();
            if self.is_missing && !is_known {
                let name = &self.options.node;
                tracing::warn!("there is no Node {name}: pass its name with --node-name");
            }
        }
    }

    /// Again in each period: the group of a pod may have appeared since.
    fn settle_groups(&mut self) {
        let Some(pods) = &mut self.pods else {
            return;
        };
        let tree = self.collector.as_ref().map(Collector::tree);
        let exists = |uid: &Name| tree.is_some_and(|tree| tree.pods().contains_key(uid));
        self.group_conflicts = groups::settle(pods, exists);
        let others = pods.iter().filter(|pod| pod.group != pod.uid);
        let groups = others.map(|pod| (pod.uid.clone(), pod.group.clone()));
        self.outputs.shared.lock().groups = groups.collect();
    }

    fn read_slow_files(&mut self, now: Instant) {
        let is_fresh = |at: Instant| now.saturating_duration_since(at) < SLOW_PERIOD;
        if self.cpu_manager_read.is_some_and(is_fresh) {
            return;
        }
        self.cpu_manager_read = Some(now);
        self.static_memory_manager = has_static_memory_manager(&self.options.kubelet_root);
        let manager = cpu_manager(&self.options.kubelet_root);
        if manager != self.cpu_manager {
            self.cpu_manager = manager;
            // The CPUs of pods are part of the pods.
            self.objects.changed.store(true, Ordering::Relaxed);
        }
    }

    fn burstable_memory_limit(&mut self) -> Option<Bytes> {
        let collector = self.collector.as_ref()?;
        let path = collector.tree().burstable()?;
        let hierarchies = collector.hierarchies();
        let name = match hierarchies.version() {
            Version::V2 => "memory.max",
            _ => "memory.limit_in_bytes",
        };
        let file = format!("{path}/{name}");
        let file = hierarchies.open(Controller::Memory, &file, OFlags::RDONLY);
        let limit = parse::number(self.reader.read(&file.ok()?).ok()?)?;
        crate::write::file::memory_limit(limit).map(Bytes)
    }

    /// Opens the journal; what it lists are the agent's changes. A damaged one is read again until `--restore` has run.
    fn open_writer(&mut self, now: Instant) {
        let is_fresh = |at: Instant| now.saturating_duration_since(at) < SLOW_PERIOD;
        let waits = self.journal_damage.is_some() && self.journal_read.is_some_and(is_fresh);
        if self.writer.is_some() || waits {
            return;
        }
        self.journal_read = Some(now);
        let mode = match self.options.dry_run {
            true => Mode::DryRun,
            false => Mode::Apply,
        };
        if mode == Mode::Apply
            && let Err(error) = std::fs::create_dir_all(&self.options.state_dir)
        {
            self.fail_to_write(&error.to_string());
            return;
        }
        match Writer::new(mode, self.options.state_dir.join("journal")) {
            Ok(mut writer) => {
                if let Some(number) = self.options.kill_before_write {
                    writer.kill_before_write(number);
                }
                self.writer = Some(writer);
                self.journal_damage = None;
            }
            Err(error @ JournalError::Damaged { .. }) => {
                self.journal_damage = Some(error.to_string());
            }
            Err(error) => self.fail_to_write(&error.to_string()),
        }
    }

    fn changed_cpusets(&mut self) -> BTreeMap<Name, ChangedCpuset> {
        match (&mut self.writer, &self.collector) {
            (Some(writer), Some(collector)) => writer.changed_cpusets(collector.tree()),
            _ => BTreeMap::new(),
        }
    }

    fn write(&mut self, advice: &Advice, now: Timestamp) {
        let Some(collector) = &self.collector else {
            return;
        };
        if let Some(writer) = &mut self.writer {
            let mut files = KernelFiles {
                hierarchies: collector.hierarchies(),
                reader: &mut self.reader,
            };
            let report = writer.apply(&mut files, collector.tree(), &advice.settings, now);
            match self.options.dry_run {
                true => self.announce(&report.written),
                false => {
                    for (file, value) in &report.written {
                        tracing::debug!(file, value, "wrote cgroup file");
                    }
                }
            }
            self.last_report = report;
        }
    }

    /// Logs what a dry run would write. It finds the same writes in every period, and logs each once.
    fn announce(&mut self, writes: &[(String, String)]) {
        let writes: BTreeMap<String, String> = writes.iter().cloned().collect();
        for (file, value) in &writes {
            if self.announced.get(file) != Some(value) {
                tracing::info!(file, value, "would write cgroup file");
            }
        }
        self.announced = writes;
    }

    fn fail_to_write(&mut self, why: &str) {
        let directory = self.options.state_dir.display().to_string();
        self.last_report = Report {
            failing: vec![(directory, why.to_owned())],
            ..Report::default()
        };
    }

    /// An order that finds the queue full is lost: the engine gives it again.
    fn order(&mut self, order: &EvictionOrder, now: Timestamp) {
        if self.outputs.evictions.try_send(order.clone()).is_err() {
            self.advisor.eviction_result(&order.uid, false, now);
        }
    }

    fn publish(&mut self, advice: &Advice, now: Timestamp) {
        let at = wall_clock();
        let reclaimed = self.reclaimed.update(&advice.reclaimed, now).clone();
        // The sums are those of the published amounts, which do not change with every sample.
        if self.published.as_ref() != Some(&reclaimed) {
            self.terms = terms(advice, &reclaimed);
            self.published = Some(reclaimed.clone());
            if self.options.dry_run {
                let amount = reclaimed.allocatable;
                let (milli_cpu, memory) = (amount.milli_cpu, amount.memory);
                tracing::info!(milli_cpu, memory, "would report reclaimed resources");
            }
        }
        let mut metric = advice.metric.clone();
        if let Some(amount) = metric.prod_reclaimable {
            metric.prod_reclaimable = Some(self.reclaimable.update(amount, now));
        }
        self.conditions = advice
            .conditions
            .iter()
            .map(|condition| {
                let mut known = self.conditions.iter();
                let known = known.find(|(known, _)| {
                    let is_same = (known.kind, known.status, known.reason)
                        == (condition.kind, condition.status, condition.reason);
                    // The figures in other messages change with every sample.
                    let has_figures = known.kind != NUMA_ZONES_DIFFER;
                    is_same && (has_figures || known.message == condition.message)
                });
                known.cloned().unwrap_or_else(|| (condition.clone(), at))
            })
            .collect();
        self.outputs
            .observations
            .send_replace(Arc::new(Observation {
                at,
                sample: self.sample.clone(),
                zones: advice.zones.clone(),
                reclaimed,
                terms: self.terms.clone(),
                metric,
                taints: advice.taints.clone(),
                conditions: self.conditions.clone(),
            }));
    }

    fn save_checkpoint(&mut self) {
        self.checkpointed = Instant::now();
        if self.options.dry_run {
            return;
        }
        let checkpoint = self.advisor.checkpoint(self.time(Instant::now()));
        let result = std::fs::create_dir_all(&self.options.state_dir)
            .and_then(|()| checkpoint::save(&self.checkpoint, &checkpoint));
        if let Err(error) = &result
            && !self.has_checkpoint_failed
        {
            let file = self.checkpoint.display().to_string();
            tracing::warn!(file, %error, "cannot write checkpoint");
        }
        self.has_checkpoint_failed = result.is_err();
    }
}

/// Continues from the checkpoint, if there is a usable one.
fn advisor(path: &std::path::Path, dry_run: bool) -> Advisor {
    let wall = wall_clock();
    let corrupt = match dry_run {
        true => Corrupt::Leave,
        false => Corrupt::SetAside,
    };
    let resumed = checkpoint::load(path, corrupt).and_then(|checkpoint| {
        let Some(checkpoint) = checkpoint else {
            return Ok(None);
        };
        let advisor = Advisor::resume(&checkpoint, Timestamp(0), wall);
        advisor
            .map(Some)
            .map_err(|error| checkpoint::set_aside(path, error.to_string(), corrupt))
    });
    match resumed {
        Ok(Some(advisor)) => return advisor,
        Ok(None) => {}
        Err(error) => {
            let why = std::error::Error::source(&error).map(ToString::to_string);
            tracing::warn!(why, "{error}; predictions start anew");
        }
    }
    Advisor::new(Timestamp(0), wall)
}

/// The figures of published amounts.
fn terms(advice: &Advice, published: &ReclaimedReport) -> Vec<engine::node::Figure> {
    let figures = advice.terms.iter().cloned();
    let figures = figures.map(|figure| match &*figure.name {
        "reclaimed cpu" => explain(figure, published.capacity.milli_cpu),
        "reclaimed memory" => explain(figure, published.capacity.memory),
        "reclaimed cpu allocatable" => explain(figure, published.allocatable.milli_cpu),
        "reclaimed memory allocatable" => explain(figure, published.allocatable.memory),
        _ => figure,
    });
    figures.collect()
}

#[cfg(test)]
mod tests {
    use engine::node::{CpuMemory, Figure};

    use super::*;

    #[test]
    fn figures_are_those_of_the_published_pool_and_of_what_batch_pods_leave_of_it() {
        let figure = |name: &str, value: i64| Figure {
            name: name.to_owned(),
            unit: "milli-cores".to_owned(),
            value,
            terms: Vec::new(),
        };
        let advice = Advice {
            terms: vec![
                figure("reclaimed cpu", 10_000),
                figure("reclaimed cpu allocatable", 6_000),
            ],
            ..Advice::default()
        };
        for (case, capacity, allocatable) in [
            ("nothing waits", 10_000, 6_000),
            ("an increase waits", 9_000, 5_000),
        ] {
            let published = ReclaimedReport {
                capacity: CpuMemory::new(capacity, 0),
                allocatable: CpuMemory::new(allocatable, 0),
                ..ReclaimedReport::default()
            };
            let found = terms(&advice, &published);
            let values: Vec<i64> = found.iter().map(|it| it.value).collect();
            assert_eq!(values, [capacity, allocatable], "{case}");
            let counts: Vec<usize> = found.iter().map(|it| it.terms.len()).collect();
            let want = if capacity == 10_000 { 0 } else { 1 };
            assert_eq!(counts, [want; 2], "{case}");
        }
    }
}
