//! Peaks of pods, classes and the node, from decaying histograms of their use.
//!
//! Samples are collected for a training interval; then the 90th percentile of each series is added to its histogram. The peak of cpu
//! is the 95th percentile of the histogram, that of memory the 98th.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::histogram::{Buckets, Histogram, HistogramCheckpoint};
use super::settings::PredictionSettings;
use super::suppress::Written;
use super::terms::CpuMemory;
use crate::model::{Name, QosClass, Timestamp};

/// The version of [`Checkpoint`].
const VERSION: u32 = 1;
/// Models that are kept: of as many pods as the agent looks at, and of the node.
const MOST_MODELS: usize = 1008;
/// A checkpoint from further in the future than this was written with a wrong clock.
const MOST_AHEAD: i64 = 24 * 3600 * Timestamp::SECOND;
const TRAINING_SHARE: usize = 90;
const CPU_PEAK: f64 = 0.95;
const MEMORY_PEAK: f64 = 0.98;

/// What a model is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum ModelKey {
    Node,
    /// The node without its pods.
    System,
    Class(PredictedClass),
    /// By the uid in the name of its cgroup.
    Pod(Name),
}

/// Classes that are predicted together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PredictedClass {
    Production,
    Mid,
    Batch,
    Free,
}

impl PredictedClass {
    pub const ALL: [Self; 4] = [Self::Production, Self::Mid, Self::Batch, Self::Free];

    pub fn of(class: QosClass) -> Self {
        match class {
            QosClass::System | QosClass::Dedicated | QosClass::Online => Self::Production,
            QosClass::MidLatencySensitive | QosClass::MidBestEffort => Self::Mid,
            QosClass::Lent => Self::Batch,
            QosClass::Free => Self::Free,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Production => "production",
            Self::Mid => "mid",
            Self::Batch => "batch",
            Self::Free => "free",
        }
    }
}

impl ModelKey {
    /// As a checkpoint names it.
    fn text(&self) -> String {
        match self {
            Self::Node => "node".to_owned(),
            Self::System => "system".to_owned(),
            Self::Class(class) => format!("class/{}", class.name()),
            Self::Pod(uid) => format!("pod/{uid}"),
        }
    }

    fn parse(text: &str) -> Option<Self> {
        Some(match text.split_once('/') {
            None if text == "node" => Self::Node,
            None if text == "system" => Self::System,
            Some(("pod", uid)) if !uid.is_empty() => Self::Pod(uid.into()),
            Some(("class", name)) => {
                let mut classes = PredictedClass::ALL.into_iter();
                Self::Class(classes.find(|class| class.name() == name)?)
            }
            _ => return None,
        })
    }
}

#[derive(Debug, Clone, PartialEq)]
struct Model {
    cpu: Histogram,
    memory: Histogram,
    /// The time of day of its last training.
    trained: Timestamp,
}

impl Model {
    fn new() -> Self {
        Self {
            cpu: Histogram::new(Buckets::cpu()),
            memory: Histogram::new(Buckets::memory()),
            trained: Timestamp(0),
        }
    }

    fn peak(&self) -> CpuMemory {
        CpuMemory {
            milli_cpu: (self.cpu.percentile(CPU_PEAK) * 1000.0) as i64,
            memory: self.memory.percentile(MEMORY_PEAK) as i64,
        }
    }
}

/// All models of the node, and the samples since the last training.
#[derive(Debug, Default)]
pub struct Models {
    models: BTreeMap<ModelKey, Model>,
    series: BTreeMap<ModelKey, Vec<CpuMemory>>,
    /// On the clock of the samples.
    last_training: Option<Timestamp>,
}

impl Models {
    /// Adds one sample of each series. After a training interval it trains; `wall` is the time of day.
    pub fn observe(
        &mut self,
        samples: impl IntoIterator<Item = (ModelKey, CpuMemory)>,
        settings: &PredictionSettings,
        now: Timestamp,
        wall: Timestamp,
    ) {
        for (key, sample) in samples {
            if self.series.len() < MOST_MODELS || self.series.contains_key(&key) {
                self.series.entry(key).or_default().push(sample.positive());
            }
        }
        let last = *self.last_training.get_or_insert(now);
        if now < last.plus(settings.training_interval) {
            return;
        }
        self.last_training = Some(now);
        for (key, series) in std::mem::take(&mut self.series) {
            let Some(sample) = high_share(series) else {
                continue;
            };
            let model = self.models.entry(key).or_insert_with(Model::new);
            model.cpu.add(sample.milli_cpu as f64 / 1000.0, wall);
            model.memory.add(sample.memory as f64, wall);
            model.trained = wall;
        }
        self.models
            .retain(|_, model| model.trained.plus(settings.expiration) >= wall);
    }

    /// The peak without a margin; none if there is no model yet.
    pub fn peak(&self, key: &ModelKey) -> Option<CpuMemory> {
        self.models.get(key).map(Model::peak)
    }

    pub fn checkpoint(&self, wall: Timestamp) -> Checkpoint {
        let models = self.models.iter().map(|(key, model)| {
            let saved = ModelCheckpoint {
                trained: model.trained.0,
                cpu: model.cpu.checkpoint(),
                memory: model.memory.checkpoint(),
            };
            (key.text(), saved)
        });
        Checkpoint {
            version: VERSION,
            saved: wall.0,
            models: models.collect(),
            reported: None,
            written: Written::default(),
            narrowed: Vec::new(),
        }
    }

    pub fn restore(saved: &Checkpoint, wall: Timestamp) -> Result<Self, CheckpointError> {
        if saved.version != VERSION {
            return Err(CheckpointError::Version(saved.version));
        }
        let latest = wall.0.saturating_add(MOST_AHEAD);
        if saved.saved > latest {
            return Err(CheckpointError::Future(Timestamp(saved.saved), wall));
        }
        let invalid = |name: &str, why: String| CheckpointError::Model {
            name: name.to_owned(),
            why,
        };
        let mut models = BTreeMap::new();
        for (name, model) in &saved.models {
            let key = ModelKey::parse(name)
                .ok_or_else(|| invalid(name, "the name is not known".to_owned()))?;
            if model.trained > latest {
                return Err(invalid(name, "its time is in the future".to_owned()));
            }
            let cpu = Histogram::restore(Buckets::cpu(), &model.cpu);
            let memory = Histogram::restore(Buckets::memory(), &model.memory);
            let model = Model {
                cpu: cpu.map_err(|why| invalid(name, format!("cpu: {why}")))?,
                memory: memory.map_err(|why| invalid(name, format!("memory: {why}")))?,
                trained: Timestamp(model.trained),
            };
            models.insert(key, model);
        }
        if models.len() > MOST_MODELS {
            return Err(CheckpointError::Many(models.len()));
        }
        Ok(Self {
            models,
            ..Self::default()
        })
    }
}

/// The 90th percentile of each resource by nearest rank.
fn high_share(mut series: Vec<CpuMemory>) -> Option<CpuMemory> {
    let rank = (series.len() * TRAINING_SHARE)
        .div_ceil(100)
        .checked_sub(1)?;
    series.sort_unstable_by_key(|sample| sample.milli_cpu);
    let milli_cpu = series[rank].milli_cpu;
    series.sort_unstable_by_key(|sample| sample.memory);
    let memory = series[rank].memory;
    Some(CpuMemory { milli_cpu, memory })
}

/// What a restarted agent continues from. The agent keeps it in a file.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Checkpoint {
    pub version: u32,
    /// The time of day, in nanoseconds since 1970.
    pub saved: i64,
    pub models: BTreeMap<String, ModelCheckpoint>,
    /// The pool that was reported last.
    pub reported: Option<CpuMemory>,
    pub written: Written,
    /// The uids of pods that got the event about their narrow cpusets.
    #[serde(default)]
    pub narrowed: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ModelCheckpoint {
    pub trained: i64,
    pub cpu: HistogramCheckpoint,
    pub memory: HistogramCheckpoint,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CheckpointError {
    #[error("the checkpoint has version {0}; this agent reads version {VERSION}")]
    Version(u32),
    #[error("the checkpoint was saved at {0}, which is in the future: it is {1}")]
    Future(Timestamp, Timestamp),
    #[error("model {name} of the checkpoint is invalid: {why}")]
    Model { name: String, why: String },
    #[error("the checkpoint has {0} models; at most {MOST_MODELS} are allowed")]
    Many(usize),
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn train(models: &mut Models, minutes: i64, sample: CpuMemory) {
        let settings = PredictionSettings::default();
        for second in 0..=minutes * 60 {
            let now = Timestamp::from_secs(second);
            let wall = Timestamp::from_secs(1_800_000_000 + second);
            models.observe([(ModelKey::Node, sample)], &settings, now, wall);
        }
    }

    #[test]
    fn an_idle_model_predicts_the_first_bucket() {
        let mut models = Models::default();
        assert_eq!(models.peak(&ModelKey::Node), None);
        train(&mut models, 2, CpuMemory::ZERO);
        let idle = models.peak(&ModelKey::Node);
        assert_eq!(idle, Some(CpuMemory::new(25, 5 << 20)));
    }

    #[test]
    fn training_takes_the_90th_percentile_of_an_interval() {
        let series = |values: &[i64]| {
            let series = values.iter().map(|value| CpuMemory::new(*value, -*value));
            high_share(series.collect())
        };
        assert_eq!(series(&[]), None);
        assert_eq!(series(&[7]), Some(CpuMemory::new(7, -7)));
        let ten: Vec<i64> = (1..=10).collect();
        assert_eq!(series(&ten), Some(CpuMemory::new(9, -2)));
    }

    #[test]
    fn models_without_updates_end() {
        let mut models = Models::default();
        train(&mut models, 1, CpuMemory::new(1000, 1 << 30));
        let settings = PredictionSettings::default();
        let pod = ModelKey::Pod("u".into());
        for minute in 2..40_i64 {
            let wall = Timestamp::from_secs(1_800_000_000 + minute * 60);
            let now = Timestamp::from_secs(minute * 60);
            models.observe([(pod.clone(), CpuMemory::ZERO)], &settings, now, wall);
        }
        assert_eq!(models.peak(&ModelKey::Node), None);
        assert!(models.peak(&pod).is_some());
        assert_eq!(settings.expiration, Duration::from_secs(1800));
    }

    #[test]
    fn checkpoints_survive_json_and_corrupt_ones_are_refused() {
        let mut models = Models::default();
        train(&mut models, 5, CpuMemory::new(1000, 1 << 30));
        let wall = Timestamp::from_secs(1_800_000_400);
        let saved = models.checkpoint(wall);
        let json = serde_json::to_string(&saved).unwrap();
        let read: Checkpoint = serde_json::from_str(&json).unwrap();
        assert_eq!(read, saved);
        let restored = Models::restore(&read, wall).unwrap();
        assert_eq!(restored.peak(&ModelKey::Node), models.peak(&ModelKey::Node));
        let error = |change: &dyn Fn(&mut Checkpoint)| {
            let mut changed = saved.clone();
            change(&mut changed);
            Models::restore(&changed, wall).unwrap_err().to_string()
        };
        for (found, want) in [
            (
                error(&|it| it.version = 7),
                "the checkpoint has version 7; this agent reads version 1",
            ),
            (
                error(&|it| it.saved += 48 * 3600 * Timestamp::SECOND),
                "the checkpoint was saved at 2027-01-17T08:06:40Z, which is in the future: it is 2027-01-15T08:06:40Z",
            ),
            (
                error(&|it| drop(it.models.insert("nodes".to_owned(), Default::default()))),
                "model nodes of the checkpoint is invalid: the name is not known",
            ),
            (
                error(&|it| it.models.get_mut("node").unwrap().cpu.total = -1.0),
                "model node of the checkpoint is invalid: cpu: the total weight is -1, which is not a positive number",
            ),
        ] {
            assert_eq!(found, want);
        }
    }
}
