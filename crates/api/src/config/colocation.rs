//! Plugins that go together: whoever schedules on reclaimed resources wants QoS taints kept and online pods safe, too.

use engine::framework::{Entry, Point};

use super::types::Profile;

const FIT: &str = "QoSAwareNodeResourcesFit";
const TAINTS: &str = "QoSAwareTaintToleration";
const PREEMPTION: &str = "QoSAwarePreemption";

/// On by themselves whenever QoSAwareNodeResourcesFit filters, unless they are disabled by name.
pub(super) const COMPANIONS: [&str; 2] = [TAINTS, PREEMPTION];

type Names = [Vec<String>; Point::ALL.len()];

/// Whether a profile with these filters schedules on reclaimed resources.
pub(super) fn is_on<'a>(mut filters: impl Iterator<Item = &'a str>) -> bool {
    filters.any(|name| name == FIT)
}

/// Where a companion comes by itself.
pub(super) fn comes_to(companion: &str) -> [Point; 2] {
    match companion {
        TAINTS => [Point::Filter, Point::Score],
        _ => [Point::PreEnqueue, Point::PostFilter],
    }
}

/// Adds the companions: the one for taints, and the one for preemption, in the place of DefaultPreemption if that is
/// there.
pub(super) fn accompany(profile: &Profile, plugins: &[Entry], chosen: &mut Names) {
    if !has(&chosen[Point::Filter as usize], FIT) {
        return;
    }
    let is_known = |name: &str| plugins.iter().any(|entry| entry.name == name);
    let is_wanted = |point, name: &str| {
        is_known(name)
            && !profile.plugins.at(point).disables(name)
            && !profile.plugins.multi_point.disables(name)
    };
    for point in comes_to(TAINTS) {
        let names = &mut chosen[point as usize];
        if is_wanted(point, TAINTS) && !has(names, TAINTS) {
            names.push(TAINTS.to_owned());
        }
    }
    for point in comes_to(PREEMPTION) {
        let names = &mut chosen[point as usize];
        // Who makes room also keeps pods back that wait for it: both or none.
        if !is_wanted(point, PREEMPTION) || !is_wanted(Point::PostFilter, PREEMPTION) {
            continue;
        }
        let own = has(names, PREEMPTION);
        match names.iter().position(|name| name == "DefaultPreemption") {
            Some(i) if own => drop(names.remove(i)),
            Some(i) => names[i] = PREEMPTION.to_owned(),
            None if own || profile.plugins.at(Point::PostFilter).disables("*") => {}
            // That DefaultPreemption is unwanted does not say so of this one.
            None => names.push(PREEMPTION.to_owned()),
        }
    }
}

fn has(names: &[String], name: &str) -> bool {
    names.iter().any(|known| known == name)
}
