//! The pod cgroups that exist, by listing directories.
//!
//! The kernel announces new and removed directories, so that they are listed only after a change. A pod's directory is listed
//! again only when its count of links changed, which it does when a container starts or ends.

mod watch;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use engine::model::Name;
use engine::node::PodQos;

use crate::hierarchy::{Controller, Hierarchies};
use crate::layout::Driver;
use watch::Watch;

/// Pod groups of one kubelet. Paths are relative to the kubelet's root group, the same in all hierarchies.
#[derive(Debug, Default)]
pub struct Tree {
    kubepods: Option<(Driver, Name)>,
    burstable: Option<Name>,
    besteffort: Option<Name>,
    pods: BTreeMap<Name, PodGroup>,
    /// How many pods there are beyond [`MOST_PODS`].
    beyond: usize,
    watch: Watch,
}

#[derive(Debug)]
pub struct PodGroup {
    pub path: Name,
    pub qos: PodQos,
    /// By container id; the sandbox is one of them.
    pub containers: BTreeMap<Name, Name>,
    /// The link count at the last listing; none after an error.
    links: Option<u64>,
}

/// The largest number of pods that are looked at: nine times the kubelet's default limit.
pub const MOST_PODS: usize = 1000;

impl Tree {
    /// Whether a directory was made or removed since the last scan; true if that is not known.
    pub fn has_changed(&mut self) -> bool {
        self.watch.has_changed()
    }

    /// Lists what exists now.
    pub fn scan(&mut self, hierarchies: &Hierarchies) -> io::Result<()> {
        let result = self.list(hierarchies);
        self.watch.finish_scan(result.is_ok());
        result
    }

    fn list(&mut self, hierarchies: &Hierarchies) -> io::Result<()> {
        let Some(root) = hierarchies.path(Controller::Cpu) else {
            return Ok(());
        };
        (self.burstable, self.besteffort) = (None, None);
        self.watch.start_scan();
        self.watch.add(root);
        self.kubepods = find_kubepods(root, self.kubepods.take())?;
        let Some((driver, kubepods)) = &self.kubepods else {
            self.pods.clear();
            self.beyond = 0;
            return Ok(());
        };
        let mut found = BTreeMap::new();
        let mut classes = vec![(PodQos::Guaranteed, kubepods.clone())];
        while let Some((qos, directory)) = classes.pop() {
            let place = root.join(&*directory);
            self.watch.add(&place);
            for name in directories(&place)? {
                let path = Name::from(format!("{directory}/{name}"));
                if let Some(uid) = driver.pod_uid(&name) {
                    found.insert(Name::from(uid), (qos, path));
                } else if qos == PodQos::Guaranteed {
                    match driver.qos(&name) {
                        Some(PodQos::Burstable) => self.burstable = Some(path.clone()),
                        Some(PodQos::BestEffort) => self.besteffort = Some(path.clone()),
                        _ => continue,
                    }
                    classes.extend(driver.qos(&name).map(|qos| (qos, path)));
                }
            }
        }
        self.beyond = found.len().saturating_sub(MOST_PODS);
        while found.len() > MOST_PODS {
            found.pop_last();
        }
        self.pods
            .retain(|uid, pod| found.get(uid).is_some_and(|(_, path)| *path == pod.path));
        for (uid, (qos, path)) in found {
            let pod = self.pods.entry(uid).or_insert_with(|| PodGroup {
                path,
                qos,
                containers: BTreeMap::new(),
                links: None,
            });
            let place = root.join(&*pod.path);
            self.watch.add(&place);
            pod.list_containers(*driver, &place);
        }
        Ok(())
    }

    /// The group of all pods.
    pub fn kubepods(&self) -> Option<&Name> {
        self.kubepods.as_ref().map(|(_, path)| path)
    }

    pub fn driver(&self) -> Option<Driver> {
        self.kubepods.as_ref().map(|(driver, _)| *driver)
    }

    pub fn burstable(&self) -> Option<&Name> {
        self.burstable.as_ref()
    }

    pub fn besteffort(&self) -> Option<&Name> {
        self.besteffort.as_ref()
    }

    pub fn pods(&self) -> &BTreeMap<Name, PodGroup> {
        &self.pods
    }

    /// How many pods are not looked at because there are more than [`MOST_PODS`].
    pub fn beyond(&self) -> usize {
        self.beyond
    }
}

impl PodGroup {
    /// A pod that ends while it is listed has no containers.
    fn list_containers(&mut self, driver: Driver, directory: &Path) {
        let links = fs::metadata(directory).map(|it| it.nlink()).ok();
        // Some file systems count no links of directories.
        if links.is_some_and(|links| links > 1) && links == self.links {
            return;
        }
        self.links = links;
        let names = directories(directory).unwrap_or_default();
        self.containers = names
            .iter()
            .filter_map(|name| {
                let id = driver.container_id(name)?;
                Some((Name::from(id), format!("{}/{name}", self.path).into()))
            })
            .collect();
    }
}

/// The directory of all pods; the one of the last time if it still exists.
fn find_kubepods(root: &Path, last: Option<(Driver, Name)>) -> io::Result<Option<(Driver, Name)>> {
    if let Some((driver, path)) = last
        && root.join(&*path).is_dir()
    {
        return Ok(Some((driver, path)));
    }
    let names = directories(root)?;
    let found = names
        .iter()
        .find_map(|name| Some((Driver::of_kubepods(name)?, Name::from(&**name))));
    Ok(found)
}

/// The names of directories that are text; the kernel and the kubelet make no others.
fn directories(path: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            names.extend(entry.file_name().into_string());
        }
    }
    Ok(names)
}
