//! The answers that Katalyst's NodeResourceTopology can give about a machine.
//!
//! Some depend on the order of a Go map, which differs from call to call: how many zones it believes to be necessary. So there can
//! be several answers. Machines have eight zones at most, so that all sets of zones are looked at.

use std::collections::{BTreeMap, BTreeSet};

use engine::model::Quantity;
use serde_json::Value;

use super::super::{Case, list};

const LEVEL: &str = "katalyst.kubewharf.io/qos_level";
const MEMORY_ENHANCEMENT: &str = "katalyst.kubewharf.io/memory_enhancement";
/// Resources that the single zone must have, even if no zone reports them.
const NATIVE: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];

/// Thousandths of cpu, and units of everything else.
type Listed = BTreeMap<String, i64>;
/// Positions of zones, as a mask.
type Mask = u32;

/// What Katalyst says about a node.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ZoneAnswer {
    pub(super) fits: bool,
    pub(super) score: ModelScore,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum ModelScore {
    Value(i64),
    /// The scorer panics with a text that starts like this.
    Panic(&'static str),
}

const DIVISION: ModelScore = ModelScore::Panic("panic: runtime error: integer divide by zero");
const INDEX: ModelScore = ModelScore::Panic("panic: runtime error: index out of range");
/// What Go makes of a number that is none.
const NOT_A_NUMBER: i64 = i64::MIN;

/// A zone as Katalyst sees it.
#[derive(Debug, Clone)]
pub(super) struct SeenZone {
    pub(super) id: usize,
    pub(super) socket: String,
    pub(super) capacity: Listed,
    pub(super) allocatable: Listed,
    /// By the name of the pod.
    pub(super) allocations: Vec<(String, Listed)>,
    available: Listed,
}

impl SeenZone {
    fn available(&self, resource: &str) -> i64 {
        amount(&self.available, resource)
    }

    fn is_idle(&self, resource: &str) -> bool {
        self.available(resource) == amount(&self.allocatable, resource)
    }
}

/// A machine and the pod that is to be placed.
#[derive(Debug, Clone)]
pub(super) struct SeenMachine {
    /// `None` without a report.
    pub(super) policy: Option<String>,
    pub(super) zones: Vec<SeenZone>,
    pub(super) wanted: Listed,
    pub(super) is_exclusive: bool,
    aligned: Vec<String>,
    pub(super) strategy: String,
    weights: BTreeMap<String, i64>,
}

impl SeenMachine {
    pub(super) fn read(case: &Case, node: &str) -> Self {
        let args = &case.0["profile"]["pluginConfig"][0]["args"];
        let strategy = &args["scoringStrategy"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let weights = list(strategy, "resources");
        let weights = weights.map(|it| (text(&it["name"]), it["weight"].as_i64().unwrap_or(0)));
        let mut reports = list(&case.0, "customNodeResources");
        let report = reports.find(|report| report["metadata"]["name"] == node);
        let status = report.map(|report| &report["status"]);
        let sockets = status.into_iter().flat_map(|it| list(it, "topologyZone"));
        let zones = sockets.flat_map(|socket| {
            list(socket, "children").map(move |zone| SeenZone {
                id: zone["name"]
                    .as_str()
                    .map_or(0, |id| id.parse().unwrap_or(0)),
                socket: socket["name"].as_str().unwrap_or_default().to_owned(),
                capacity: listed(&zone["resources"]["capacity"]),
                allocatable: listed(&zone["resources"]["allocatable"]),
                allocations: list(zone, "allocations").map(allocation).collect(),
                available: Listed::new(),
            })
        });
        let mut machine = Self {
            policy: status.map(|status| text(&status["topologyPolicy"])),
            zones: zones.collect(),
            wanted: requests(&case.0["pod"]),
            is_exclusive: is_exclusive(&case.0["pod"]),
            aligned: list(args, "alignedResources").map(text).collect(),
            strategy: text(&strategy["type"]),
            weights: weights.collect(),
        };
        machine.charge(case, node);
        machine
    }

    /// Counts the allocations of dedicated pods; what no zone reports yet is charged to every zone.
    fn charge(&mut self, case: &Case, node: &str) {
        let pods = list(&case.0, "pods").filter(|pod| pod["spec"]["nodeName"] == node);
        let dedicated: Vec<&Value> = pods
            .filter(|pod| pod["metadata"]["annotations"][LEVEL] == "dedicated_cores")
            .collect();
        let name = |pod: &Value| {
            pod["metadata"]["name"]
                .as_str()
                .unwrap_or_default()
                .to_owned()
        };
        let names: Vec<String> = dedicated.iter().map(|pod| name(pod)).collect();
        let mut everywhere = Listed::new();
        let assumed = dedicated.iter().filter(|pod| !self.reports(&name(pod)));
        for pod in assumed {
            let mut amounts = requests(pod);
            let first = self.zones.first().filter(|_| is_exclusive(pod));
            for (resource, amount) in &mut amounts {
                let whole = first.and_then(|first| first.capacity.get(resource));
                if self.aligned.contains(resource) {
                    *amount = (*amount).max(whole.copied().unwrap_or(0));
                }
            }
            add(&mut everywhere, &amounts);
        }
        for zone in &mut self.zones {
            let mut used = everywhere.clone();
            let counted = zone.allocations.iter();
            for (_, amounts) in counted.filter(|(name, _)| names.contains(name)) {
                add(&mut used, amounts);
            }
            zone.available = zone.allocatable.clone();
            for (resource, used) in used {
                let left = zone.available.entry(resource).or_default();
                *left = (*left - used).max(0);
            }
        }
    }

    /// Whether some zone has an allocation of the pod.
    pub(super) fn reports(&self, pod: &str) -> bool {
        let mut seen = self.zones.iter().flat_map(|zone| &zone.allocations);
        seen.any(|(name, _)| name == pod)
    }

    fn is_numeric(&self) -> bool {
        self.policy.as_deref() == Some("NumericContainerLevel")
    }

    pub(super) fn is_single(&self) -> bool {
        self.policy.as_deref() == Some("SingleNUMANodeContainerLevel")
    }

    pub(super) fn is_supported(&self) -> bool {
        self.is_numeric() || self.is_single()
    }

    /// What the pod requests of the aligned resources, 0 included.
    pub(super) fn wanted_aligned(&self) -> Vec<(&str, i64)> {
        let wanted = self
            .wanted
            .iter()
            .map(|(name, amount)| (&name[..], *amount));
        let is_aligned = |(name, _): &(&str, i64)| self.aligned.iter().any(|it| it == name);
        wanted.filter(is_aligned).collect()
    }

    pub(super) fn answers(&self) -> Vec<ZoneAnswer> {
        if !self.is_supported() {
            let score = ModelScore::Value(0);
            return vec![ZoneAnswer { fits: true, score }];
        }
        let verdicts = match self.is_single() {
            true => BTreeSet::from([self.fits_one_zone()]),
            false => self.fits_several(),
        };
        let scores = self.scores();
        let pairs = verdicts.into_iter().flat_map(|fits| {
            let scores = scores.iter().cloned();
            scores.map(move |score| ZoneAnswer { fits, score })
        });
        pairs.collect()
    }

    fn fits_one_zone(&self) -> bool {
        let wanted = self.wanted.iter().filter(|(resource, amount)| {
            let is_known = self
                .zones
                .iter()
                .any(|it| it.available.contains_key(*resource));
            **amount != 0 && (is_known || NATIVE.contains(&&resource[..]))
        });
        let wanted: Vec<(&String, &i64)> = wanted.collect();
        let fits = |zone: &SeenZone| {
            wanted.iter().all(|(resource, amount)| {
                let alone = self.is_exclusive && self.aligned.contains(resource);
                zone.available.contains_key(*resource)
                    && zone.available(resource) >= **amount
                    && (!alone || zone.is_idle(resource))
            })
        };
        wanted.is_empty() || self.zones.iter().any(fits)
    }

    /// One answer for each number of zones that it may believe to be necessary.
    fn fits_several(&self) -> BTreeSet<bool> {
        let has = |resource: &str| {
            self.zones
                .iter()
                .any(|it| it.capacity.contains_key(resource))
        };
        let others = self.wanted.iter().all(|(resource, wanted)| {
            let left: i64 = self.zones.iter().map(|it| it.available(resource)).sum();
            !has(resource) || self.aligned.contains(resource) || left >= *wanted
        });
        let mut aligned = self.wanted_aligned();
        aligned.retain(|(resource, _)| has(resource));
        if aligned.is_empty() {
            return BTreeSet::from([others]);
        }
        let sets: Vec<Mask> = (1..1 << self.zones.len())
            .filter(|set| self.is_allowed(*set, &aligned))
            .collect();
        let choices = choices(
            aligned
                .iter()
                .map(|(name, wanted)| self.counts(name, *wanted)),
        );
        let verdicts = choices.iter().flat_map(|counts| {
            // With three resources, only two of them must be satisfied with the size: which, is left to chance.
            let pairs = (0..counts.len()).flat_map(|a| (a + 1..counts.len()).map(move |b| [a, b]));
            let mut preferred: Vec<Vec<usize>> = pairs.map(|pair| pair.to_vec()).collect();
            if counts.len() < 2 {
                preferred.push(vec![0]);
            }
            let least = counts.iter().copied().max().unwrap_or(1);
            let sets = &sets;
            preferred.into_iter().map(move |preferred| {
                sets.iter().any(|set| {
                    let size = set.count_ones() as usize;
                    size >= least && preferred.iter().any(|at| counts[*at] == size)
                })
            })
        });
        verdicts.map(|fits| fits && others).collect()
    }

    /// Whether these zones have enough, and are where they may be.
    fn is_allowed(&self, set: Mask, aligned: &[(&str, i64)]) -> bool {
        let chosen: Vec<&SeenZone> = self.of(set).collect();
        let sockets: BTreeSet<&String> = chosen.iter().map(|zone| &zone.socket).collect();
        let all: BTreeSet<&String> = self.zones.iter().map(|zone| &zone.socket).collect();
        let in_a_socket = self.zones.len() / all.len().max(1);
        let fits = aligned.iter().all(|(resource, wanted)| {
            let sum: i64 = chosen.iter().map(|zone| zone.available(resource)).sum();
            let idle = !self.is_exclusive || chosen.iter().all(|zone| zone.is_idle(resource));
            sum >= *wanted && idle
        });
        fits && (self.is_exclusive || chosen.len() == 1)
            && (chosen.len() > in_a_socket || sockets.len() == 1)
    }

    fn of(&self, set: Mask) -> impl Iterator<Item = &SeenZone> {
        let zones = self.zones.iter().enumerate();
        let zones = zones.filter(move |(position, _)| set & (1 << position) != 0);
        zones.map(|(_, zone)| zone)
    }

    /// How many zones it may count until their capacity suffices: it takes them in any order.
    fn counts(&self, resource: &str, wanted: i64) -> Vec<usize> {
        let capacity = |set: Mask| -> i64 {
            let zones = self.of(set);
            zones.map(|zone| amount(&zone.capacity, resource)).sum()
        };
        let all = (1 << self.zones.len()) - 1;
        if self.zones.is_empty() || capacity(all) < wanted {
            return vec![self.zones.len()];
        }
        let mut found = BTreeSet::new();
        for before in 0..=all {
            let more = (0..self.zones.len()).map(|position| before | (1 << position));
            let mut more = more.filter(|set| *set != before);
            if (before == 0 || capacity(before) < wanted) && more.any(|set| capacity(set) >= wanted)
            {
                found.insert(before.count_ones() as usize + 1);
            }
        }
        found.into_iter().collect()
    }

    /// Whether the number of zones is a matter of chance, or not that of the fewest zones.
    pub(super) fn miscounts(&self) -> bool {
        let reserves = |zone: &SeenZone| zone.capacity != zone.allocatable;
        let mut wanted = self.wanted_aligned().into_iter();
        self.is_numeric()
            && (self.zones.iter().any(reserves)
                || wanted.any(|(resource, amount)| self.counts(resource, amount).len() > 1))
    }

    fn scores(&self) -> Vec<ModelScore> {
        let wanted = self.wanted_aligned();
        if !(self.is_numeric() && self.is_exclusive) {
            let by_zone = (0..self.zones.len()).map(|position| 1 << position);
            let score = self.lowest(by_zone);
            let is_sparse = self.zones.iter().any(|zone| zone.id >= self.zones.len());
            return vec![match score {
                ModelScore::Value(_) if is_sparse => INDEX,
                score => score,
            }];
        }
        let choices = choices(
            wanted
                .iter()
                .map(|(name, wanted)| self.counts(name, *wanted)),
        );
        let sizes = choices.iter().map(|counts| counts.iter().copied().max());
        let sizes: BTreeSet<usize> = sizes.map(|size| size.unwrap_or(1).max(1)).collect();
        let scores = sizes.into_iter().map(|size| {
            let sets = 1..1 << self.zones.len();
            self.lowest(sets.filter(|set: &Mask| set.count_ones() as usize == size))
        });
        scores.collect()
    }

    /// The lowest score above 0 of some sets of zones.
    fn lowest(&self, sets: impl Iterator<Item = Mask>) -> ModelScore {
        let mut lowest = 0;
        for set in sets {
            let ModelScore::Value(score) = self.score(set) else {
                return DIVISION;
            };
            if lowest == 0 || (score != 0 && score < lowest) {
                lowest = score;
            }
        }
        ModelScore::Value(lowest)
    }

    fn score(&self, set: Mask) -> ModelScore {
        let whole = |resource: &str| -> i64 {
            let usable = self.of(set);
            let usable = usable.filter(|zone| !self.is_exclusive || zone.is_idle(resource));
            usable.map(|zone| zone.available(resource)).sum()
        };
        let wanted = self.wanted_aligned();
        let wanted = wanted
            .iter()
            .map(|(name, wanted)| (*name, *wanted, whole(name)));
        if self.strategy == "BalancedAllocation" {
            let fractions = wanted.map(|(name, wanted, whole)| match units(name, whole) {
                0 => 1.0,
                whole => units(name, wanted) as f64 / whole as f64,
            });
            return ModelScore::Value(balance(&fractions.collect::<Vec<f64>>()));
        }
        let (mut sum, mut weights) = (0, 0);
        for (name, wanted, whole) in wanted {
            let weight = self.weights.get(name).copied().unwrap_or(1).max(1);
            weights += weight;
            if whole == 0 || wanted > whole {
                continue;
            }
            let (part, all) = (units(name, wanted), units(name, whole));
            let part = match &self.strategy[..] {
                "MostAllocated" => part,
                _ => all - part,
            };
            sum += weight * (part * 100 / all);
        }
        match weights {
            0 => DIVISION,
            weights => ModelScore::Value(sum / weights),
        }
    }
}

fn balance(fractions: &[f64]) -> i64 {
    if fractions.iter().any(|fraction| *fraction > 1.0) {
        return 0;
    }
    let count = fractions.len() as f64;
    if count < 2.0 {
        return NOT_A_NUMBER;
    }
    let mean = fractions.iter().sum::<f64>() / count;
    let deviations = || fractions.iter().map(|fraction| fraction - mean);
    let squares: f64 = deviations().map(|it| it * it).sum();
    let rest: f64 = deviations().sum();
    let variance = (squares - rest * rest / count) / (count - 1.0);
    ((1.0 - variance) * 100.0) as i64
}

/// One count for each resource, in all combinations.
fn choices(of_each: impl Iterator<Item = Vec<usize>>) -> Vec<Vec<usize>> {
    of_each.fold(vec![Vec::new()], |all, counts| {
        let longer = all.iter().flat_map(|before| {
            counts.iter().map(|count| {
                let mut longer = before.clone();
                longer.push(*count);
                longer
            })
        });
        longer.collect()
    })
}

fn add(sum: &mut Listed, amounts: &Listed) {
    for (resource, amount) in amounts {
        *sum.entry(resource.clone()).or_default() += amount;
    }
}

fn amount(of: &Listed, resource: &str) -> i64 {
    of.get(resource).copied().unwrap_or(0)
}

/// As a quantity's `Value()`: cpu is rounded up to cores.
fn units(resource: &str, amount: i64) -> i64 {
    match resource {
        "cpu" => (amount + 999) / 1000,
        _ => amount,
    }
}

fn allocation(value: &Value) -> (String, Listed) {
    let consumer = value["consumer"].as_str().unwrap_or_default();
    let name = consumer.split('/').nth(1).unwrap_or_default();
    (name.to_owned(), listed(&value["requests"]))
}

pub(super) fn requests(pod: &Value) -> Listed {
    listed(&pod["spec"]["containers"][0]["resources"]["requests"])
}

fn listed(amounts: &Value) -> Listed {
    let amounts = amounts.as_object().into_iter().flatten();
    let parsed = amounts.filter_map(|(name, text)| {
        let quantity = Quantity::parse(text.as_str()?).ok()?;
        let amount = match &name[..] {
            "cpu" => quantity.milli(),
            _ => quantity.units(),
        };
        Some((name.clone(), amount))
    });
    parsed.collect()
}

pub(super) fn is_exclusive(pod: &Value) -> bool {
    let options = pod["metadata"]["annotations"][MEMORY_ENHANCEMENT].as_str();
    options.is_some_and(|options| options.contains(r#""numa_exclusive":"true""#))
}
