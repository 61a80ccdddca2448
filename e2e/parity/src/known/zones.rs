//! What Katalyst's NodeResourceTopology does and ours does not.
//!
//! A difference is explained only if `model` says that Katalyst can give its answer about this machine. The rules name what is
//! special about the machine.

mod model;

use std::collections::BTreeMap;

use serde_json::Value;

use self::model::{ModelScore, SeenMachine};
use super::{Case, Example, Known, list};
use crate::generate::{GPU, ZonedMachine};

const GIB: i64 = 1 << 30;
const LEVEL: &str = "katalyst.kubewharf.io/qos_level";
const PLUGIN: &str = "NodeResourceTopology";

pub(crate) const ZONES: &[Known] = &[
    Known {
        // A pod that needs zones cannot run where the agent knows of none.
        name: "a machine without zones takes every pod",
        case: Example::Built(|| asks(four(), 1).with(|it| it.is_reported = false).case()),
        matches: |case, lines| is_explained(case, lines, |it| it.zones.is_empty()),
    },
    Known {
        // Only SingleNUMANodeContainerLevel and NumericContainerLevel have a handler; the zones of the others are as real.
        name: "under other policies every machine takes every pod",
        case: Example::Built(|| asks(four(), 9).with(|it| it.policy = "None").case()),
        matches: |case, lines| is_explained(case, lines, |it| !it.is_supported()),
    },
    Known {
        // The scores are in a list that is as long as there are zones, by id.
        name: "the scorer panics on ids that are not consecutive",
        case: Example::Built(|| {
            let machine = asks(four(), 1).with(|it| it.is_exclusive = false);
            machine.with(|it| it.zones[3].id = 9).case()
        }),
        matches: |case, lines| {
            let is_sparse = |it: &SeenMachine| it.zones.iter().any(|z| z.id >= it.zones.len());
            is_explained(case, lines, is_sparse)
        },
    },
    Known {
        // It divides by the sum of the weights of the resources that the container requests.
        name: "the scorer panics on a container that requests none of the scored resources",
        case: Example::Built(|| four().requests(&[(GPU, 1)]).case()),
        matches: |case, lines| is_explained(case, lines, |it| it.wanted_aligned().is_empty()),
    },
    Known {
        // The variance of one number is not a number.
        name: "the balance of one resource is not a number",
        case: Example::Built(|| {
            let machine = four().requests(&[("cpu", 1000)]);
            machine.with(|it| it.strategy = "BalancedAllocation").case()
        }),
        matches: |case, lines| {
            let is_one = |it: &SeenMachine| {
                it.strategy == "BalancedAllocation" && it.wanted_aligned().len() == 1
            };
            is_explained(case, lines, is_one)
        },
    },
    Known {
        // It does not choose zones, so it cannot know in which one an assumed pod will be.
        name: "a pod that is not reported yet is charged to every zone",
        case: Example::Built(|| asks(four(), 1).assumed(0, true).case()),
        matches: |case, lines| {
            let is_assumed = |it: &SeenMachine| {
                let mut pods = dedicated_pods(case);
                pods.any(|pod| !it.reports(pod["metadata"]["name"].as_str().unwrap_or_default()))
            };
            is_explained(case, lines, is_assumed)
        },
    },
    Known {
        // Pods of other levels may be bound to zones as well: the agent reports them.
        name: "allocations of pods that are not dedicated do not count",
        case: Example::Built(|| {
            let amounts = vec![("cpu", 1000), ("memory", GIB)];
            let machine = asks(ZonedMachine::new(1, 1, ZONE), 1);
            let mut machine = machine.online("online", Some("shared_cores"), &amounts);
            machine.zones[0]
                .allocations
                .push(("online".into(), amounts));
            machine.case()
        }),
        matches: |case, lines| {
            let is_online = |it: &SeenMachine| {
                let dedicated: Vec<&Value> = dedicated_pods(case).collect();
                let mut seen = it.zones.iter().flat_map(|zone| &zone.allocations);
                seen.any(|(name, _)| {
                    dedicated
                        .iter()
                        .all(|pod| pod["metadata"]["name"] != **name)
                })
            };
            is_explained(case, lines, is_online)
        },
    },
    Known {
        // An exclusive pod has its zone alone, whatever the agent reports that it uses.
        name: "what an exclusive pod does not use of its zone is given to others",
        case: Example::Built(|| {
            let machine = asks(ZonedMachine::new(1, 1, ZONE), 1);
            let machine = machine.used(0, true, vec![("cpu", 1000), ("memory", GIB)]);
            machine.with(|it| it.is_exclusive = false).case()
        }),
        matches: |case, lines| {
            let is_partial = |it: &SeenMachine| {
                any_allocation(it, |allocatable, used| used != allocatable)
                    && dedicated_pods(case).any(model::is_exclusive)
            };
            is_explained(case, lines, is_partial)
        },
    },
    Known {
        // A zone with a pod in it is not idle, whichever resources the agent reports.
        name: "a zone is idle for the resources that an allocation does not name",
        case: Example::Built(|| {
            let machine = ZonedMachine::new(1, 1, ZONE).requests(&[("memory", GIB)]);
            machine.used(0, false, vec![("cpu", 1000)]).case()
        }),
        matches: |case, lines| {
            let is_partial = |it: &SeenMachine| {
                any_allocation(it, |allocatable, used| used.len() < allocatable.len())
            };
            is_explained(case, lines, is_partial)
        },
    },
    Known {
        // Ours never refuses a request of 0.
        name: "a request of 0 needs an idle zone",
        case: Example::Built(|| {
            let machine = ZonedMachine::new(1, 1, ZONE).requests(&[("cpu", 0)]);
            machine.used(0, false, ZONE.to_vec()).case()
        }),
        matches: |case, lines| {
            let is_zero = |it: &SeenMachine| it.wanted.values().any(|amount| *amount == 0);
            is_explained(case, lines, is_zero)
        },
    },
    Known {
        // A node's ephemeral storage is in no zone.
        name: "no zone is enough for a native resource that zones do not report",
        case: Example::Built(|| {
            let machine = four().requests(&[("cpu", 1000), ("ephemeral-storage", GIB)]);
            let single = "SingleNUMANodeContainerLevel";
            machine.with(|it| it.policy = single).case()
        }),
        matches: |case, lines| {
            let is_elsewhere = |it: &SeenMachine| it.wanted.contains_key("ephemeral-storage");
            is_explained(case, lines, is_elsewhere)
        },
    },
    Known {
        // The pods of the machine would be left with cores that none of them may use.
        name: "an exclusive pod takes zones that other pods need",
        case: Example::Built(|| {
            let machine = asks(ZonedMachine::new(2, 1, ZONE), 1);
            let amounts = vec![("cpu", 3000), ("memory", GIB)];
            machine.online("plain", None, &amounts).case()
        }),
        matches: |case, lines| {
            is_explained(case, lines, |it| {
                it.is_exclusive && pods(case).any(|pod| !may_hold_zones(it, pod))
            })
        },
    },
    Known {
        // It divides the number of zones by the number of sockets; ours asks whether a socket is large enough.
        name: "sockets with different numbers of zones count as if they were equal",
        case: Example::Built(|| {
            let machine = asks(ZonedMachine::new(3, 2, ZONE), 3);
            machine.used(0, true, ZONE.to_vec()).case()
        }),
        matches: |case, lines| is_explained(case, lines, has_unequal_sockets),
    },
    Known {
        // It adds the capacity of zones in the order of a map, and the pod must get just as many. Capacity is not what a pod gets,
        // and on a machine of unequal zones the number is a matter of chance. Of three aligned resources, the last two in the
        // order of another map decide.
        name: "the number of zones goes by their capacity, in the order of a map",
        case: Example::Built(|| {
            let machine = asks(ZonedMachine::new(3, 1, ZONE), 4);
            let reserve = |it: &mut ZonedMachine| {
                it.zones
                    .iter_mut()
                    .for_each(|zone| zone.allocatable[0].1 -= 500);
            };
            machine.with(reserve).case()
        }),
        matches: |case, lines| {
            is_explained(case, lines, |it| {
                it.miscounts() || it.wanted_aligned().len() > 2
            })
        },
    },
];

/// The zone of most examples.
const ZONE: &[(&str, i64)] = &[("cpu", 2000), ("memory", 4 * GIB)];

fn four() -> ZonedMachine {
    ZonedMachine::new(4, 2, ZONE)
}

fn asks(machine: ZonedMachine, cores: i64) -> ZonedMachine {
    machine.requests(&[("cpu", cores * 1000), ("memory", cores * GIB)])
}

fn pods(case: &Case) -> impl Iterator<Item = &Value> {
    list(&case.0, "pods").filter(|pod| pod["spec"]["nodeName"] == "n0")
}

fn dedicated_pods(case: &Case) -> impl Iterator<Item = &Value> {
    pods(case).filter(|pod| pod["metadata"]["annotations"][LEVEL] == "dedicated_cores")
}

fn any_allocation(
    machine: &SeenMachine,
    holds: impl Fn(&BTreeMap<String, i64>, &BTreeMap<String, i64>) -> bool,
) -> bool {
    machine.zones.iter().any(|zone| {
        let mut allocations = zone.allocations.iter();
        allocations.any(|(_, used)| holds(&zone.allocatable, used))
    })
}

/// Whether a pod of the machine has a zone alone.
fn may_hold_zones(machine: &SeenMachine, pod: &Value) -> bool {
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    model::is_exclusive(pod) && machine.reports(name)
}

fn has_unequal_sockets(machine: &SeenMachine) -> bool {
    let mut zones: BTreeMap<&str, usize> = BTreeMap::new();
    for zone in &machine.zones {
        *zones.entry(&zone.socket).or_default() += 1;
    }
    let mut counts = zones.values();
    let first = counts.next();
    counts.any(|count| Some(count) != first)
}

/// Whether the machine is of the kind, and Katalyst can say what it says.
fn is_explained(case: &Case, lines: &[String], is_kind: impl Fn(&SeenMachine) -> bool) -> bool {
    let machine = SeenMachine::read(case, "n0");
    let is_expected = |line: &String| {
        let place = line.split(": ").next().unwrap_or_default();
        let about_machine = ["filter[0]", "cycle.rejected[n0]"];
        let about_both = [
            "cycle.feasible",
            "cycle.scores",
            "cycle.totals",
            "cycle.failure",
        ];
        let mut places = about_machine.iter().chain(&about_both);
        places.any(|expected| place.starts_with(expected))
    };
    if !is_kind(&machine) || !lines.iter().all(is_expected) {
        return false;
    }
    let theirs = TheirAnswer::read(lines);
    let other = SeenMachine::read(case, "n1").answers();
    machine.answers().iter().any(|answer| {
        let panic = |it: &ModelScore| matches!(it, ModelScore::Panic(_)).then(|| it.clone());
        // A panic about either node ends the cycle.
        let of_other = other.iter().find_map(|other| panic(&other.score));
        let score = panic(&answer.score).or(of_other);
        let score = score.unwrap_or_else(|| answer.score.clone());
        let is_of_other = |score: &i64| {
            let mut other = other.iter();
            other.any(|answer| answer.score == ModelScore::Value(*score))
        };
        theirs.fits.is_none_or(|fits| fits == answer.fits)
            && theirs.other_score.iter().all(is_of_other)
            && match (&theirs.failure, &theirs.score, &score) {
                _ if theirs.fits == Some(false) => true,
                (Some(text), _, ModelScore::Panic(start)) => text.starts_with(start),
                (None, Some(found), ModelScore::Value(score)) => found == score,
                // Only the other machine has another score.
                (None, None, ModelScore::Value(_)) => theirs.other_score.is_some(),
                _ => false,
            }
    })
}

/// Katalyst's side of the differences.
#[derive(Default)]
struct TheirAnswer {
    fits: Option<bool>,
    failure: Option<String>,
    score: Option<i64>,
    other_score: Option<i64>,
}

impl TheirAnswer {
    fn read(lines: &[String]) -> Self {
        let mut theirs = Self::default();
        for line in lines {
            let Some((place, values)) = line.split_once(": ours ") else {
                continue;
            };
            let value = values
                .rsplit_once(", theirs ")
                .map_or("", |(_, value)| value);
            let value: Value = serde_json::from_str(value).unwrap_or_default();
            let of_plugin = |field: &str| place == format!("cycle.scores[{PLUGIN}]{field}");
            if place == format!("filter[0][{PLUGIN}]") {
                theirs.fits = Some(value.is_null());
            } else if place.starts_with(&format!("filter[0][{PLUGIN}].")) {
                // Both reject it, with other words.
                theirs.fits = Some(false);
            } else if place == "cycle.failure" {
                theirs.failure = value.as_str().map(str::to_owned);
            } else if of_plugin(".raw[0]") {
                theirs.score = value.as_i64();
            } else if of_plugin(".raw[1]") {
                theirs.other_score = value.as_i64();
            } else if of_plugin("") {
                theirs.score = value["raw"][0].as_i64();
                theirs.other_score = value["raw"][1].as_i64();
            }
        }
        theirs
    }
}
