//! Where pods of class system may run: these are never suppressed nor evicted, so that not every user may name the class.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde_json::Value;

use super::Refused;
use super::fields::{describe, qos_labels};
use crate::model::{QosClass, is_dns_label};

/// Namespaces of the cluster's own components.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SystemNamespaces(BTreeSet<String>);

impl Default for SystemNamespaces {
    fn default() -> Self {
        Self(BTreeSet::from(["kube-system".to_owned()]))
    }
}

impl FromStr for SystemNamespaces {
    type Err = String;

    /// Names with commas between them.
    fn from_str(text: &str) -> Result<Self, String> {
        let names = text.split(',').map(str::trim);
        match names.clone().find(|name| !is_dns_label(name)) {
            None => Ok(Self(names.map(str::to_owned).collect())),
            Some(wrong) => Err(format!(
                "`{wrong}` is not the name of a namespace: use names with commas between them"
            )),
        }
    }
}

impl fmt::Display for SystemNamespaces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.0.iter().map(String::as_str).collect();
        f.write_str(&names.join(","))
    }
}

/// Whether a new pod may be of its class in this namespace. The namespace is to be believed: it is that of the request, which the
/// API server has authorized.
pub fn check_system(
    pod: &Value,
    namespace: &str,
    allowed: &SystemNamespaces,
) -> Result<(), Refused> {
    let labels = qos_labels(pod);
    // Contradictions are found elsewhere.
    if labels.strict() != Ok(QosClass::System) || allowed.0.contains(namespace) {
        return Ok(());
    }
    Err(Refused::one(format!(
        "{}: pods of class system are allowed in these namespaces only: {allowed}; found namespace {namespace}. An administrator \
         can add it to --system-namespaces of the webhook",
        describe(&labels)
    )))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_class_system_is_for_system_namespaces() {
        let class = |class: &str| json!({"labels": {"koordinator.sh/qosClass": class}});
        let level =
            |level: &str| json!({"annotations": {"katalyst.kubewharf.io/qos_level": level}});
        let (default, more) = ("kube-system", "kube-system, storage");
        for (case, metadata, namespace, allowed, is_allowed) in [
            ("SYSTEM of a user", class("SYSTEM"), "shop", default, false),
            (
                "system_cores of a user",
                level("system_cores"),
                "shop",
                default,
                false,
            ),
            (
                "SYSTEM of the cluster",
                class("SYSTEM"),
                "kube-system",
                default,
                true,
            ),
            (
                "a namespace of the flag",
                level("system_cores"),
                "storage",
                more,
                true,
            ),
            ("a longer name", class("SYSTEM"), "storage2", more, false),
            ("another class", class("LSR"), "shop", default, true),
            (
                "another level",
                level("shared_cores"),
                "shop",
                default,
                true,
            ),
            ("no class", json!({}), "shop", default, true),
        ] {
            let pod = json!({"metadata": metadata, "spec": {"containers": [{"name": "c"}]}});
            let found = check_system(&pod, namespace, &allowed.parse().unwrap());
            assert_eq!(found.is_ok(), is_allowed, "{case}: {found:?}");
        }
        let pod = json!({"metadata": class("SYSTEM"), "spec": {}});
        let found = check_system(&pod, "shop", &more.parse().unwrap()).unwrap_err();
        assert_eq!(
            found.to_string(),
            "label koordinator.sh/qosClass is `SYSTEM`: pods of class system are allowed in these namespaces only: \
             kube-system,storage; found namespace shop. An administrator can add it to --system-namespaces of the webhook"
        );
    }

    #[test]
    fn names_of_namespaces() {
        assert_eq!(SystemNamespaces::default().to_string(), "kube-system");
        for wrong in ["", "a,,b", "A", "a/b"] {
            let error = wrong.parse::<SystemNamespaces>().unwrap_err();
            assert!(error.contains("is not the name of a namespace"), "{error}");
        }
    }
}
