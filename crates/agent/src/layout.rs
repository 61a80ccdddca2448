//! The names of pod cgroups, as the kubelet and the container runtime make them.
//!
//! | driver | pods of one class | pod | container |
//! |---|---|---|---|
//! | cgroupfs | `kubepods/burstable` | `podUID` | `ID` |
//! | systemd | `kubepods.slice/kubepods-burstable.slice` | `kubepods-burstable-podUID.slice`, with `_` for `-` | `cri-containerd-ID.scope` |
//!
//! Names are only recognised, never built from what the API says: a uid that no directory has leads nowhere.

use engine::node::PodQos;

/// How the kubelet and the runtime manage cgroups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Driver {
    Cgroupfs,
    Systemd,
}

impl Driver {
    /// Whether this is the directory of all pods, and who made it. With systemd the kubelet's `cgroupRoot` precedes its name.
    pub fn of_kubepods(name: &str) -> Option<Self> {
        if name == "kubepods" {
            return Some(Self::Cgroupfs);
        }
        let prefix = name.strip_suffix("kubepods.slice")?;
        (prefix.is_empty() || prefix.ends_with('-')).then_some(Self::Systemd)
    }

    /// The class of pods of a directory below that of all pods.
    pub fn qos(self, name: &str) -> Option<PodQos> {
        let name = match self {
            Self::Cgroupfs => name,
            Self::Systemd => {
                let (_, class) = name.strip_suffix(".slice")?.rsplit_once("kubepods-")?;
                class
            }
        };
        match name {
            "burstable" => Some(PodQos::Burstable),
            "besteffort" => Some(PodQos::BestEffort),
            _ => None,
        }
    }

    /// The uid in the name of a pod's directory, in the form of the API.
    pub fn pod_uid(self, name: &str) -> Option<String> {
        let uid = match self {
            Self::Cgroupfs => name.strip_prefix("pod")?.to_owned(),
            Self::Systemd => {
                let name = name.strip_suffix(".slice")?;
                let (_, uid) = name.rsplit_once("-pod")?;
                uid.replace('_', "-")
            }
        };
        is_uid(&uid).then_some(uid)
    }

    /// The id in the name of a container's directory.
    pub fn container_id(self, name: &str) -> Option<&str> {
        let id = match self {
            Self::Cgroupfs => name,
            Self::Systemd => {
                let (runtime, id) = name.strip_suffix(".scope")?.rsplit_once('-')?;
                // The monitor of a container is not the container.
                (!runtime.ends_with("conmon")).then_some(id)?
            }
        };
        let is_allowed = |byte: u8| byte.is_ascii_digit() || byte.is_ascii_lowercase();
        ((12..=64).contains(&id.len()) && id.bytes().all(is_allowed)).then_some(id)
    }
}

/// A UUID, or for static pods the hash of their file: 32 hexadecimal digits without dashes.
pub(crate) fn is_uid(text: &str) -> bool {
    let is_hex = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
    match text.len() {
        32 => is_hex(text),
        36 => {
            let lengths = text.split('-').map(str::len);
            lengths.eq([8, 4, 4, 4, 12]) && text.split('-').all(is_hex)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "92b291c2-47f5-41dc-b3fb-a7379534fd30";

    #[test]
    fn only_directories_of_pods_are_recognised() {
        let hash = "0123456789abcdef0123456789abcdef";
        let (cgroupfs, systemd) = (Driver::Cgroupfs, Driver::Systemd);
        for (driver, name, want) in [
            (cgroupfs, format!("pod{UID}"), Some(UID)),
            (cgroupfs, format!("pod{hash}"), Some(hash)),
            (cgroupfs, UID.to_owned(), None),
            (cgroupfs, "pod..".to_owned(), None),
            (cgroupfs, format!("pod{}", UID.replace('-', "_")), None),
            (cgroupfs, format!("pod{UID}/x"), None),
            (
                systemd,
                format!("kubepods-pod{}.slice", UID.replace('-', "_")),
                Some(UID),
            ),
            (
                systemd,
                format!("kubepods-besteffort-pod{}.slice", UID.replace('-', "_")),
                Some(UID),
            ),
            (
                systemd,
                format!("kubepods-burstable-pod{hash}.slice"),
                Some(hash),
            ),
            (systemd, format!("pod{UID}"), None),
            (systemd, "kubepods-burstable.slice".to_owned(), None),
        ] {
            assert_eq!(driver.pod_uid(&name).as_deref(), want, "{driver:?} {name}");
        }
    }

    #[test]
    fn only_directories_of_containers_are_recognised() {
        let id = "e".repeat(64);
        for (driver, name, want) in [
            (Driver::Cgroupfs, id.clone(), true),
            (Driver::Cgroupfs, "e".repeat(65), false),
            (Driver::Cgroupfs, "..".to_owned(), false),
            (Driver::Systemd, format!("cri-containerd-{id}.scope"), true),
            (Driver::Systemd, format!("crio-{id}.scope"), true),
            (Driver::Systemd, format!("crio-conmon-{id}.scope"), false),
            (Driver::Systemd, id.clone(), false),
        ] {
            assert_eq!(
                driver.container_id(&name).is_some(),
                want,
                "{driver:?} {name}"
            );
        }
    }

    #[test]
    fn the_directories_of_classes_are_recognised() {
        for (name, want) in [
            ("kubepods", Some(Driver::Cgroupfs)),
            ("kubepods.slice", Some(Driver::Systemd)),
            ("test-kubepods.slice", Some(Driver::Systemd)),
            ("mykubepods.slice", None),
            ("kubelet", None),
        ] {
            assert_eq!(Driver::of_kubepods(name), want, "{name}");
        }
        assert_eq!(Driver::Cgroupfs.qos("burstable"), Some(PodQos::Burstable));
        let name = "kubepods-besteffort.slice";
        assert_eq!(Driver::Systemd.qos(name), Some(PodQos::BestEffort));
        assert_eq!(Driver::Cgroupfs.qos("podx"), None);
    }
}
