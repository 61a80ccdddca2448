//! Where our admission differs from Koordinator's on purpose; docs/tiers.md lists the same.

use engine::model::TierAccount;
use serde_json::Value;

use super::generate::AdmissionCase;
use super::{OurResult, Theirs, named_accounts};
use crate::intended;

type Situation<'a> = intended::Situation<'a, AdmissionCase, OurResult, Theirs>;
type IntendedDifference = intended::IntendedDifference<AdmissionCase, OurResult, Theirs>;

impl Situation<'_> {
    /// The pod as it is judged: after the profiles.
    fn pod(&self) -> &Value {
        let after_theirs = self.theirs.pod.as_ref().unwrap_or(&self.case.pod);
        self.ours.result.as_ref().unwrap_or(after_theirs)
    }

    fn says(&self, texts: &[&str]) -> bool {
        texts.iter().any(|text| self.difference.contains(text))
    }

    fn label(&self, key: &str) -> Option<&str> {
        self.pod()["metadata"]["labels"][key].as_str()
    }

    fn class(&self) -> &str {
        self.pod()["spec"]["priorityClassName"]
            .as_str()
            .unwrap_or_default()
    }

    /// Koordinator counts a priority without any name.
    fn is_bare_number(&self) -> bool {
        let priority = self.pod()["spec"]["priority"].as_i64().unwrap_or(0);
        let is_in_band = [9, 7, 5, 3].contains(&(priority / 1000));
        is_in_band
            && !self.class().starts_with("koord-")
            && self.label("koordinator.sh/priority-class").is_none()
    }

    fn has_level(&self) -> bool {
        self.pod()["metadata"]["annotations"]["katalyst.kubewharf.io/qos_level"].is_string()
    }

    /// A profile whose selector cannot be evaluated.
    fn has_unclear_profile(&self) -> bool {
        let text = |profile: &Value| profile["spec"].to_string();
        self.case
            .profiles
            .iter()
            .any(|profile| text(profile).contains("Like"))
    }

    /// A container requests no native CPU, and names the CPU of its tier itself.
    fn has_zero_beside_tier_cpu(&self) -> bool {
        let spec = &self.case.pod["spec"];
        let containers = ["containers", "initContainers"].map(|list| spec[list].as_array());
        containers.into_iter().flatten().flatten().any(|container| {
            let requests = &container["resources"]["requests"];
            let tiers = [TierAccount::Mid, TierAccount::Batch];
            requests["cpu"] == "0" && tiers.iter().any(|it| requests[it.cpu()].is_string())
        })
    }

    fn has_profile(&self) -> bool {
        !self.pod()["metadata"]["annotations"]["tidepool.io/profiles"].is_null()
    }
}

pub(super) const KNOWN: &[IntendedDifference] = &[
    IntendedDifference {
        name: "known: a selector that cannot be evaluated matches nothing, not everything",
        starts: &[""],
        explains: |it| it.has_unclear_profile(),
    },
    IntendedDifference {
        name: "known: a PriorityClass that does not exist is a warning, not a failure",
        starts: &["only theirs refuses"],
        explains: |it| it.ours.is_unmutated && it.says(&["not found"]),
    },
    IntendedDifference {
        name: "known: a pod that names a tier is translated without a profile",
        starts: &[
            "resources of",
            "extended resources of",
            "only theirs refuses",
        ],
        explains: |it| {
            !it.has_profile() && !it.is_bare_number() && !named_accounts(it.pod()).is_empty()
        },
    },
    IntendedDifference {
        name: "known: a bare number names no tier",
        starts: &[
            "resources of",
            "extended resources of",
            "only ours refuses",
            "only theirs refuses",
            "overhead",
        ],
        explains: |it| it.is_bare_number(),
    },
    IntendedDifference {
        name: "known: a native request of 0 does not replace the amount that the pod names of its tier",
        starts: &["resources of", "extended resources of"],
        explains: |it| it.has_zero_beside_tier_cpu() && it.says(&["mid-cpu", "batch-cpu"]),
    },
    IntendedDifference {
        name: "known: Mid+LS keeps its native limits",
        starts: &["resources of"],
        explains: |it| {
            it.label("koordinator.sh/qosClass") == Some("LS")
                && named_accounts(it.pod()).contains(&TierAccount::Mid)
        },
    },
    IntendedDifference {
        name: "known: the overhead stays native",
        starts: &["overhead"],
        explains: |it| !named_accounts(it.pod()).is_empty() || it.says(&["batch-", "mid-"]),
    },
    IntendedDifference {
        name: "known: a scheduler that the pod names stays",
        starts: &["schedulerName"],
        explains: |it| it.case.pod["spec"]["schedulerName"] == "other",
    },
    IntendedDifference {
        name: "known: the annotation has mid resources, and another one is not removed",
        starts: &["extended resources of"],
        explains: |it| {
            it.says(&["mid-"]) || it.difference.starts_with("extended resources of gone")
        },
    },
    IntendedDifference {
        name: "known: the QoS level of Katalyst counts",
        starts: &[
            "resources of",
            "extended resources of",
            "only ours refuses",
            "only theirs refuses",
            "overhead",
        ],
        explains: |it| it.has_level(),
    },
    IntendedDifference {
        name: "known: BE without a priority class is batch, LSR without one is prod",
        starts: &["only theirs refuses"],
        explains: |it| it.says(&["priorityClass= cannot be used"]),
    },
    IntendedDifference {
        name: "known: resources name the class, the label BE is not needed",
        starts: &["only theirs refuses"],
        explains: |it| it.says(&["must specify koordinator QoS BE"]),
    },
    IntendedDifference {
        name: "known: updates are refused only if they change the class",
        starts: &["only theirs refuses"],
        explains: |it| it.case.old_pod.is_some() && !it.says(&["immutable"]),
    },
    IntendedDifference {
        name: "known: an update keeps the text of labels and annotations",
        starts: &["only ours refuses"],
        explains: |it| it.case.old_pod.is_some() && it.says(&["is immutable"]),
    },
    IntendedDifference {
        name: "known: the panorama allows fewer pairs, and no unknown values",
        starts: &["only ours refuses"],
        explains: |it| {
            it.says(&[
                "does not go with priority class",
                "is not a QoS class",
                "is not a priority class",
            ])
        },
    },
    IntendedDifference {
        name: "known: resources must be those of the class, whole, not mixed, and not above their limits",
        starts: &["only ours refuses"],
        explains: |it| {
            it.says(&[
                "have both",
                "use a whole number",
                "containers name",
                "is below its request",
                "has no limits.",
                "requests.cpu is",
                "requests.memory is",
            ])
        },
    },
    IntendedDifference {
        name: "known: the QoS class in Kubernetes must be the one of the panorama",
        starts: &["only ours refuses"],
        explains: |it| it.says(&["QoS class in Kubernetes is"]),
    },
];
