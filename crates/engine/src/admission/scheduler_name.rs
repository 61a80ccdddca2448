//! Which scheduler a new pod gets, and whether one of that name runs.
//!
//! The API server writes `default-scheduler` into pods that name none, before admission: so that name counts as none.

use serde_json::Value;

use super::fields::{annotation, label};
use super::keys::{KEEP_SCHEDULER, NAMESPACE_SCHEDULER, SCHEDULER_ANNOTATION, SCHEDULER_CHECK};
use super::{Mutation, Refused};
use crate::model::{Labels, Name};
use crate::policies::schedulers::{
    DEFAULT_SCHEDULER, is_scheduler_name, read_registered, unknown_scheduler,
};

/// The name of kube-scheduler before Kubernetes 1.6.
const OLD_DEFAULT: &str = "kube-scheduler";
const DAEMON_SET: &str = "DaemonSet";

/// What the ConfigMap of the registry says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KnownSchedulers {
    /// The schedulers that run; empty if that is not known.
    pub running: Vec<Name>,
    /// The scheduler of pods that name none.
    pub default: Option<Name>,
}

impl KnownSchedulers {
    /// Reads the keys `default` and `names` of the ConfigMap. A default that is no name is returned beside it.
    pub fn read<'a>(default: Option<&'a str>, names: Option<&str>) -> (Self, Option<&'a str>) {
        let default = default.filter(|it| !it.is_empty());
        let valid = default.filter(|it| is_scheduler_name(it));
        let known = Self {
            running: names.map(read_registered).unwrap_or_default(),
            default: valid.map(Name::from),
        };
        (known, default.filter(|_| valid.is_none()))
    }
}

/// Sets `spec.schedulerName` of a pod that profiles were applied to. `sent` is the pod before them.
pub(super) fn choose(
    sent: &Value,
    namespace: Option<&Labels>,
    known: &KnownSchedulers,
    change: &mut Mutation,
) {
    if needs_no_scheduler(sent) {
        return;
    }
    let named = named(sent);
    if keeps(sent) {
        // A profile may have set another one.
        set(&mut change.pod, named);
        return;
    }
    if named != DEFAULT_SCHEDULER {
        return;
    }
    let (choice, warning) = from_annotation(sent);
    change.warnings.extend(warning);
    if let Some(name) = choice {
        let reason = format!("annotation {SCHEDULER_ANNOTATION} names scheduler {name}");
        change_to(change, name, reason);
        return;
    }
    let is_set = self::named(&change.pod) != DEFAULT_SCHEDULER;
    if is_set || is_of_daemon_set(sent) {
        return;
    }
    if let Some((name, source)) = default_of(namespace, known) {
        change_to(change, name, format!("{source} is {name}"));
    }
}

/// What to tell the sender of a pod, or of a workload with a template of pods, about its scheduler.
pub fn check_scheduler(
    object: &Value,
    namespace: Option<&Labels>,
    known: &KnownSchedulers,
) -> Result<Vec<String>, Refused> {
    let (template, is_pod) = match template_of(object) {
        Some(template) => (template, false),
        None => (object, true),
    };
    if needs_no_scheduler(template) {
        return Ok(Vec::new());
    }
    let named = named(template);
    let (choice, mut warnings) = match keeps(template) {
        true => (None, Vec::new()),
        false => {
            let (choice, warning) = from_annotation(template);
            (choice, Vec::from_iter(warning))
        }
    };
    if let Some(choice) = choice.filter(|it| *it != named)
        // Admission copies it into the pods of a template.
        && (is_pod || named != DEFAULT_SCHEDULER)
    {
        warnings.push(format!(
            "annotation {SCHEDULER_ANNOTATION} is {choice:?}, but spec.schedulerName is {named:?}, which counts"
        ));
    }
    let name = match choice {
        Some(choice) if named == DEFAULT_SCHEDULER => choice,
        None if named == DEFAULT_SCHEDULER && !is_pod && gets_default(object, template) => {
            let default = default_of(namespace, known);
            default.map_or(named, |(name, _)| name)
        }
        _ => named,
    };
    let running = &known.running;
    let runs = name == DEFAULT_SCHEDULER || running.iter().any(|it| **it == *name);
    if !runs && !running.is_empty() {
        warnings.push(unknown_scheduler(name, running.iter().map(|it| &**it)));
    }
    let denies = namespace.and_then(|it| it.get(SCHEDULER_CHECK)) == Some("deny");
    match denies && !warnings.is_empty() {
        true => Err(Refused(warnings)),
        false => Ok(warnings),
    }
}

/// Whether an update leaves the scheduler of the template as it was.
pub fn keeps_scheduler(old: &Value, new: &Value) -> bool {
    let (Some(old), Some(new)) = (template_of(old), template_of(new)) else {
        return false;
    };
    let facts = |template| {
        let written = annotation(template, SCHEDULER_ANNOTATION).map(str::to_owned);
        (named(template).to_owned(), written, keeps(template))
    };
    facts(old) == facts(new)
}

/// The pod template of a workload; none for a pod.
fn template_of(object: &Value) -> Option<&Value> {
    let spec = &object["spec"];
    let places = [&spec["template"], &spec["jobTemplate"]["spec"]["template"]];
    places.into_iter().find(|template| template.is_object())
}

/// One that is bound already. That a kubelet made it needs no question: then it has a node, and any user can write the annotation.
fn needs_no_scheduler(pod: &Value) -> bool {
    let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
    !node.is_empty()
}

fn named(pod: &Value) -> &str {
    let name = pod["spec"]["schedulerName"].as_str();
    name.filter(|it| !it.is_empty())
        .unwrap_or(DEFAULT_SCHEDULER)
}

fn keeps(pod: &Value) -> bool {
    label(pod, KEEP_SCHEDULER) == Some("true")
}

/// Whether the pods of a workload get the default of their namespace or cluster, as in [`choose`].
fn gets_default(workload: &Value, template: &Value) -> bool {
    workload["kind"] != DAEMON_SET && !keeps(template)
}

/// The scheduler that the annotation names, or why it names none.
fn from_annotation(pod: &Value) -> (Option<&str>, Option<String>) {
    match annotation(pod, SCHEDULER_ANNOTATION) {
        None | Some("") => (None, None),
        Some(OLD_DEFAULT) => (Some(DEFAULT_SCHEDULER), None),
        Some(name) if is_scheduler_name(name) => (Some(name), None),
        Some(other) => {
            let shown: String = other.chars().take(63).collect();
            let warning = format!(
                "annotation {SCHEDULER_ANNOTATION} is {shown:?}, which is not a valid scheduler name: it is ignored"
            );
            (None, Some(warning))
        }
    }
}

/// A DaemonSet's pods belong to their nodes: only their own template names a scheduler.
fn is_of_daemon_set(pod: &Value) -> bool {
    let owners = pod["metadata"]["ownerReferences"].as_array();
    let mut owners = owners.into_iter().flatten();
    owners.any(|owner| owner["kind"] == DAEMON_SET && owner["controller"] == true)
}

/// The scheduler of pods that name none, and what says so.
fn default_of<'a>(
    namespace: Option<&'a Labels>,
    known: &'a KnownSchedulers,
) -> Option<(&'a str, String)> {
    let label = namespace.and_then(|labels| labels.get(NAMESPACE_SCHEDULER));
    if let Some(name) = label.filter(|name| is_scheduler_name(name)) {
        return Some((name, format!("the namespace's label {NAMESPACE_SCHEDULER}")));
    }
    let source = "the cluster's default scheduler";
    known
        .default
        .as_deref()
        .map(|name| (name, source.to_owned()))
}

fn change_to(change: &mut Mutation, name: &str, reason: String) {
    if named(&change.pod) != name {
        change.reasons.push(reason);
    }
    set(&mut change.pod, name);
}

fn set(pod: &mut Value, name: &str) {
    // A pod that names none, and should not, stays as it is.
    if named(pod) != name {
        pod["spec"]["schedulerName"] = name.into();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::admission::keys::MIRROR;
    use crate::admission::{AdmissionRequest, AdmissionSettings, ColocationProfile, mutate};

    fn known() -> KnownSchedulers {
        KnownSchedulers {
            running: ["batch", "default-scheduler", "my-scheduler"]
                .map(Name::from)
                .to_vec(),
            default: Some("cluster".into()),
        }
    }

    /// spec.schedulerName, annotation, and whatever else is to be merged.
    fn pod(spec: &str, written: &str, more: Value) -> Value {
        // As the API server sends it: with a record of the fields of the request.
        let mut pod = json!({"kind": "Pod", "metadata": {"name": "p", "labels": {}, "annotations": {}, "managedFields": [{}]},
            "spec": {"schedulerName": spec, "containers": [{"name": "c"}]}});
        if !written.is_empty() {
            pod["metadata"]["annotations"][SCHEDULER_ANNOTATION] = written.into();
        }
        for (field, value) in more.as_object().into_iter().flatten() {
            pod[field]
                .as_object_mut()
                .unwrap()
                .extend(value.as_object().unwrap().clone());
        }
        pod
    }

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        pairs.iter().copied().collect()
    }

    #[test]
    fn the_scheduler_of_a_pod() {
        let default = "default-scheduler";
        let keep = json!({"metadata": {"labels": {KEEP_SCHEDULER: "true"}}});
        let daemon =
            json!({"metadata": {"ownerReferences": [{"kind": "DaemonSet", "controller": true}]}});
        let bound = json!({"spec": {"nodeName": "n"}});
        let mirror = json!({"metadata": {"annotations": {MIRROR: "x"}}, "spec": {"nodeName": "n"}});
        // Any user can write it.
        let called_mirror = json!({"metadata": {"annotations": {MIRROR: "x"}}});
        let team = [(NAMESPACE_SCHEDULER, "team")];
        for (case, pod, profile, namespace, cluster, want) in [
            (
                "an annotation alone",
                pod(default, "my-scheduler", json!({})),
                None,
                &[][..],
                false,
                "my-scheduler",
            ),
            (
                "a name in the spec stays",
                pod("own", "my-scheduler", json!({})),
                Some("p"),
                &team,
                true,
                "own",
            ),
            (
                "the annotation before a profile",
                pod(default, "my-scheduler", json!({})),
                Some("p"),
                &team,
                true,
                "my-scheduler",
            ),
            (
                "the old name of kube-scheduler",
                pod(default, "kube-scheduler", json!({})),
                Some("p"),
                &team,
                true,
                default,
            ),
            (
                "a profile before the namespace",
                pod(default, "", json!({})),
                Some("p"),
                &team,
                true,
                "p",
            ),
            (
                "the namespace before the cluster",
                pod(default, "", json!({})),
                None,
                &team,
                true,
                "team",
            ),
            (
                "the cluster's default",
                pod(default, "", json!({})),
                None,
                &[],
                true,
                "cluster",
            ),
            (
                "nothing",
                pod(default, "", json!({})),
                None,
                &[],
                false,
                default,
            ),
            (
                "an annotation that is no name",
                pod(default, "no name", json!({})),
                None,
                &team,
                true,
                "team",
            ),
            (
                "a label that is no name",
                pod(default, "", json!({})),
                None,
                &[(NAMESPACE_SCHEDULER, "")],
                true,
                "cluster",
            ),
            (
                "a pod that keeps its scheduler",
                pod(default, "my-scheduler", keep),
                Some("p"),
                &team,
                true,
                default,
            ),
            (
                "a pod of a DaemonSet",
                pod(default, "", daemon.clone()),
                None,
                &team,
                true,
                default,
            ),
            (
                "one with an annotation",
                pod(default, "x", daemon),
                None,
                &team,
                true,
                "x",
            ),
            (
                "a bound pod",
                pod(default, "x", bound),
                None,
                &team,
                true,
                default,
            ),
            (
                "a mirror pod",
                pod(default, "", mirror),
                None,
                &team,
                true,
                default,
            ),
            (
                "a pod that is only called one",
                pod(default, "", called_mirror),
                None,
                &team,
                true,
                "team",
            ),
        ] {
            let profiles = profile.into_iter().map(|name| ColocationProfile {
                scheduler_name: Some(name.into()),
                ..ColocationProfile::new("profile")
            });
            let settings = AdmissionSettings {
                profiles: profiles.collect(),
                schedulers: KnownSchedulers {
                    default: known().default.filter(|_| cluster),
                    ..known()
                },
                ..AdmissionSettings::default()
            };
            let namespace = labels(namespace);
            let request = AdmissionRequest {
                uid: "u",
                user: "alice",
                controllers: "",
                namespace: Some(&namespace),
                limit_ranges: &[],
                pod: &pod,
            };
            let first = mutate(&request, &settings).unwrap();
            assert_eq!(first.pod["spec"]["schedulerName"], want, "{case}");
            let again = mutate(
                &AdmissionRequest {
                    pod: &first.pod,
                    ..request
                },
                &settings,
            )
            .unwrap();
            assert_eq!(again.pod, first.pod, "{case}: again");
        }
    }

    #[test]
    fn senders_are_warned() {
        let default = "default-scheduler";
        let disagree = "annotation scheduler.alpha.kubernetes.io/name is \"batch\", but spec.schedulerName is \"my-scheduler\", which counts";
        let unknown = "no scheduler \"my-schedular\" is running; did you mean \"my-scheduler\"?";
        let no_name = "annotation scheduler.alpha.kubernetes.io/name is \"a b\", which is not a valid scheduler name: it is ignored";
        let keep = json!({"metadata": {"labels": {KEEP_SCHEDULER: "true"}}});
        for (case, pod, want) in [
            ("known", pod("batch", "", json!({})), vec![]),
            ("agreeing", pod("batch", "batch", json!({})), vec![]),
            (
                "the old name",
                pod(default, "kube-scheduler", json!({})),
                vec![],
            ),
            (
                "disagreeing",
                pod("my-scheduler", "batch", json!({})),
                vec![disagree],
            ),
            ("unknown", pod("my-schedular", "", json!({})), vec![unknown]),
            ("no name", pod("batch", "a b", json!({})), vec![no_name]),
            ("kept", pod("my-scheduler", "batch", keep), vec![]),
            (
                "bound",
                pod("my-schedular", "", json!({"spec": {"nodeName": "n"}})),
                vec![],
            ),
        ] {
            assert_eq!(
                check_scheduler(&pod, None, &known()).unwrap(),
                want,
                "{case}"
            );
            let deny = labels(&[(SCHEDULER_CHECK, "deny")]);
            let denied = check_scheduler(&pod, Some(&deny), &known());
            assert_eq!(denied.is_err(), !want.is_empty(), "{case}");
            let other = labels(&[(SCHEDULER_CHECK, "off")]);
            assert_eq!(
                check_scheduler(&pod, Some(&other), &known()).unwrap(),
                want,
                "{case}"
            );
        }
        let nothing_known = KnownSchedulers::default();
        let deny = labels(&[(SCHEDULER_CHECK, "deny")]);
        let any = pod("anything", "", json!({}));
        assert!(check_scheduler(&any, Some(&deny), &nothing_known).is_ok());
    }

    #[test]
    fn templates_are_checked_as_their_pods_will_be() {
        let deployment =
            |template: Value| json!({"kind": "Deployment", "spec": {"template": template}});
        let cron_job = |template: Value| json!({"kind": "CronJob", "spec": {"jobTemplate": {"spec": {"template": template}}}});
        let team = labels(&[(NAMESPACE_SCHEDULER, "batsh")]);
        let unknown = |name: &str, hint: &str| {
            vec![format!(
                "no scheduler {name:?} is running; did you mean {hint:?}?"
            )]
        };
        for (case, template, namespace, want) in [
            (
                "annotation",
                pod("", "my-schedular", json!({})),
                None,
                unknown("my-schedular", "my-scheduler"),
            ),
            (
                "namespace",
                pod("", "", json!({})),
                Some(&team),
                unknown("batsh", "batch"),
            ),
            ("spec", pod("batch", "", json!({})), Some(&team), vec![]),
        ] {
            for object in [deployment(template.clone()), cron_job(template)] {
                let known = KnownSchedulers {
                    default: None,
                    ..known()
                };
                assert_eq!(
                    check_scheduler(&object, namespace, &known).unwrap(),
                    want,
                    "{case}"
                );
                assert!(keeps_scheduler(&object, &object), "{case}");
            }
        }
        // Its pods keep kube-scheduler whatever the namespace says.
        let daemon_set = json!({"kind": "DaemonSet", "spec": {"template": pod("", "", json!({}))}});
        let warnings = check_scheduler(&daemon_set, Some(&team), &known());
        assert_eq!(warnings.unwrap(), [""; 0]);
        let (old, new) = (
            deployment(pod("a", "", json!({}))),
            deployment(pod("b", "", json!({}))),
        );
        assert!(!keeps_scheduler(&old, &new));
        for odd in [
            json!(null),
            json!({"spec": 1}),
            json!({"spec": {"template": {"spec": [], "metadata": 7}}}),
        ] {
            assert!(
                check_scheduler(&odd, None, &KnownSchedulers::default()).is_ok(),
                "{odd}"
            );
        }
    }
}
