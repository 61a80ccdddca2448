//! Plugins that go together: whoever schedules on reclaimed resources wants QoS taints kept and online pods safe, too.

use engine::framework::{Entry, Point};

use super::types::Profile;

const FIT: &str = "QoSAwareNodeResourcesFit";
const TAINTS: &str = "QoSAwareTaintToleration";
const PREEMPTION: &str = "QoSAwarePreemption";

/// On by themselves whenever QoSAwareNodeResourcesFit filters, unless they are disabled by name.
pub(super) const COMPANIONS: [&str; 2] = [TAINTS, PREEMPTION];

type Names = [Vec<String>; Point::ALL.len()];

/// Whether the profile schedules on reclaimed resources.
pub(super) fn is_on(chosen: &Names) -> bool {
    has(&chosen[Point::Filter as usize], FIT)
}

/// Adds the companions: the one for taints, and the one for preemption in the place of DefaultPreemption.
pub(super) fn accompany(profile: &Profile, plugins: &[Entry], chosen: &mut Names) {
    if !is_on(chosen) {
        return;
    }
    let is_known = |name: &str| plugins.iter().any(|entry| entry.name == name);
    let is_wanted = |point, name: &str| {
        is_known(name)
            && !profile.plugins.at(point).disables(name)
            && !profile.plugins.multi_point.disables(name)
    };
    for point in [Point::Filter, Point::Score] {
        let names = &mut chosen[point as usize];
        if is_wanted(point, TAINTS) && !has(names, TAINTS) {
            names.push(TAINTS.to_owned());
        }
    }
    for point in [Point::PreEnqueue, Point::PostFilter] {
        let names = &mut chosen[point as usize];
        if !is_wanted(point, PREEMPTION) {
            continue;
        }
        let own = has(names, PREEMPTION);
        if let Some(i) = names.iter().position(|name| name == "DefaultPreemption") {
            if own {
                names.remove(i);
            } else {
                names[i] = PREEMPTION.to_owned();
            }
        }
    }
}

fn has(names: &[String], name: &str) -> bool {
    names.iter().any(|known| known == name)
}
