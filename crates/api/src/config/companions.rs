//! Plugins that a profile gets because it enables another one: see [`Companion`].

use engine::scheduling::framework::{Companion, Entry, Point};

use super::types::Profile;

type Names = [Vec<String>; Point::ALL.len()];

/// The companions of plugins that filter.
pub(super) fn companions<'a>(
    plugins: &[Entry],
    filters: impl Iterator<Item = &'a str> + Clone,
) -> Vec<Companion> {
    let is_on = |entry: &&Entry| filters.clone().any(|name| name == entry.name);
    let entries = plugins.iter().filter(is_on);
    entries
        .flat_map(|entry| entry.rules.companions)
        .copied()
        .collect()
}

/// Whether some plugin can enable this one.
pub(super) fn is_companion(plugins: &[Entry], name: &str) -> bool {
    let mut all = plugins.iter().flat_map(|entry| entry.rules.companions);
    all.any(|companion| companion.plugin == name)
}

/// Adds the companions to the plugins that were chosen for each point.
pub(super) fn add_companions(profile: &Profile, plugins: &[Entry], chosen: &mut Names) {
    let is_enabled = |point, name: &str| {
        plugins.iter().any(|entry| entry.name == name)
            && !profile.plugins.at(point).disables(name)
            && !profile.plugins.multi_point().disables(name)
    };
    let filters = chosen[Point::Filter as usize].iter().map(String::as_str);
    for companion in companions(plugins, filters) {
        let name = companion.plugin;
        for &point in companion.points {
            let names = &mut chosen[point as usize];
            let has_own = names.iter().any(|known| known == name);
            if !is_enabled(point, name) {
                continue;
            }
            let Some((replaced, decides)) = companion.replaces else {
                if !has_own {
                    let next = names
                        .iter()
                        .position(|known| companion.before == Some(&**known));
                    names.insert(next.unwrap_or(names.len()), name.to_owned());
                }
                continue;
            };
            if !is_enabled(decides, name) {
                continue;
            }
            match names.iter().position(|known| known == replaced) {
                Some(i) if has_own => drop(names.remove(i)),
                Some(i) => name.clone_into(&mut names[i]),
                None if has_own || profile.plugins.at(decides).disables("*") => {}
                // A profile that disables the replaced plugin does not disable this one.
                None => names.push(name.to_owned()),
            }
        }
    }
}
