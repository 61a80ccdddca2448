//! Admission beside Koordinator's webhook: its own handlers mutate and judge the same random pods with the same profiles.
//!
//! Both results are brought to a form in which intended differences of spelling are gone (a native request of 0 is none). Every
//! other difference must be in the list of `known`, with its condition. Where pods of class system are allowed is not compared:
//! Koordinator admits them everywhere, and `validate` does not decide it.

mod generate;
mod known;

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use engine::admission::{
    AdmissionRequest, AdmissionSettings, keys, mutate, pod_qos, validate, validate_update,
};
use engine::model::{Labels, Quantity, TierAccount};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::intended::ComparedCases;
use super::oracle::{self, Oracle};
use super::sample::Sample;
use generate::AdmissionCase;

/// What Koordinator's handlers answered.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Theirs {
    pod: Option<Value>,
    #[serde(default)]
    failure: String,
    allowed: bool,
    #[serde(default)]
    message: String,
    qos: Vec<String>,
}

/// What ours decided: the admitted pod, or why it was refused.
struct OurResult {
    result: Result<Value, String>,
    /// A profile could not be applied, so the pod passes as it is.
    is_unmutated: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AskedCase<'a> {
    #[serde(flatten)]
    case: &'a AdmissionCase,
    judged: Vec<&'a Value>,
}

/// The last line is `parity webhook: N cases, D differences`.
pub(super) fn agrees(sample: &Sample) -> Result<bool> {
    let mut theirs = Oracle::start(oracle::WEBHOOK)?;
    let mut compared = ComparedCases::new("parity webhook", sample, &OUTCOMES, known::KNOWN);
    let seed = sample.seed;
    for index in sample.indices() {
        let case = AdmissionCase::random(seed, index);
        let ours = judge(&case);
        let judged: Vec<&Value> = ours.result.iter().collect();
        let asked = AskedCase {
            case: &case,
            judged,
        };
        let theirs: Theirs = theirs
            .ask(&asked)
            .with_context(|| format!("case {index} of seed {seed}"))?;
        check_qos(&ours, &theirs)
            .with_context(|| format!("case {index} of seed {seed}: {}", json!(case)))?;
        let (outcome, found) = (outcome(&ours, &theirs), differences(&ours, &theirs));
        compared.add(index, (&case, &ours, &theirs), outcome, &found, || {
            println!("    case:   {}", json!(case));
            println!("    ours:   {:?}", ours.result);
        });
    }
    Ok(compared.agrees())
}

const OUTCOMES: [&str; 5] = [
    "both admit the pod, translated",
    "both admit the pod as it is",
    "both refuse it",
    "only ours refuses it",
    "only theirs refuses it",
];

fn outcome(ours: &OurResult, theirs: &Theirs) -> &'static str {
    match (&ours.result, theirs.allowed) {
        (Ok(pod), true) if accounts(pod) > 0 => OUTCOMES[0],
        (Ok(_), true) => OUTCOMES[1],
        (Err(_), false) => OUTCOMES[2],
        (Err(_), true) => OUTCOMES[3],
        (Ok(_), false) => OUTCOMES[4],
    }
}

fn accounts(pod: &Value) -> usize {
    let text = pod["spec"].to_string();
    ["mid-cpu", "mid-memory", "batch-cpu", "batch-memory"]
        .iter()
        .filter(|it| text.contains(*it))
        .count()
}

fn judge(case: &AdmissionCase) -> OurResult {
    let labels: Labels = {
        let labels = case.namespace["metadata"]["labels"]
            .as_object()
            .into_iter()
            .flatten();
        labels
            .filter_map(|(key, value)| Some((key.as_str(), value.as_str()?)))
            .collect()
    };
    let mut settings = AdmissionSettings {
        profiles: case
            .profiles
            .iter()
            .map(api::parse::colocation_profile_from)
            .collect(),
        ..AdmissionSettings::default()
    };
    settings.profiles.sort_by(|a, b| a.name.cmp(&b.name));
    for class in &case.priority_classes {
        if let Ok(class) = serde_json::from_value(class.clone()) {
            let class = api::parse::priority_class(&class);
            settings.priority_classes.insert(class.name.clone(), class);
        }
    }
    if let Some(old) = &case.old_pod {
        let result = validate_update(&request(&labels, &case.pod), old);
        return OurResult {
            result: result
                .map(|()| case.pod.clone())
                .map_err(|refused| refused.to_string()),
            is_unmutated: false,
        };
    }
    let mutated = mutate(&request(&labels, &case.pod), &settings);
    let is_unmutated = mutated
        .as_ref()
        .is_ok_and(|it| it.warnings.iter().any(|it| it.contains("as it is")));
    let result = mutated.and_then(|change| {
        validate(&request(&labels, &change.pod))?;
        Ok(change.pod)
    });
    OurResult {
        result: result.map_err(|refused| refused.to_string()),
        is_unmutated,
    }
}

fn request<'a>(labels: &'a Labels, pod: &'a Value) -> AdmissionRequest<'a> {
    AdmissionRequest {
        uid: "uid",
        user: "alice",
        controllers: "",
        namespace: Some(labels),
        limit_ranges: &[],
        pod,
    }
}

/// Kubernetes gives our result the QoS class that we expect.
fn check_qos(ours: &OurResult, theirs: &Theirs) -> Result<()> {
    if let Ok(pod) = &ours.result {
        let computed = format!("{:?}", pod_qos(pod));
        ensure!(
            theirs.qos == [computed.clone()],
            "we compute {computed}, Kubernetes {:?}",
            theirs.qos
        );
    }
    Ok(())
}

/// What differs: the verdict, or parts of the admitted pods.
fn differences(ours: &OurResult, theirs: &Theirs) -> Vec<String> {
    match (&ours.result, theirs.allowed) {
        (Err(_), false) => Vec::new(),
        (Err(why), true) => vec![format!("only ours refuses: {why}")],
        (Ok(_), false) => vec![format!(
            "only theirs refuses: {}{}",
            theirs.failure, theirs.message
        )],
        (Ok(ours), true) => {
            let (ours, theirs) = (
                parts(ours),
                parts(theirs.pod.as_ref().unwrap_or(&Value::Null)),
            );
            let names: std::collections::BTreeSet<&String> =
                ours.keys().chain(theirs.keys()).collect();
            names
                .into_iter()
                .filter(|name| ours.get(*name) != theirs.get(*name))
                .map(|name| {
                    let show = |parts: &BTreeMap<String, Value>| {
                        parts.get(name).cloned().unwrap_or_default()
                    };
                    format!("{name}: ours {}, theirs {}", show(&ours), show(&theirs))
                })
                .collect()
        }
    }
}

/// A pod in parts that can be compared.
fn parts(pod: &Value) -> BTreeMap<String, Value> {
    let mut parts = BTreeMap::new();
    let strings =
        |value: &Value| -> Map<String, Value> { value.as_object().cloned().unwrap_or_default() };
    let mut annotations = strings(&pod["metadata"]["annotations"]);
    annotations.remove(keys::PROFILES);
    let extended = annotations.remove(keys::EXTENDED_RESOURCES);
    let extended = extended.and_then(|text| serde_json::from_str::<Value>(text.as_str()?).ok());
    let extended = extended.unwrap_or_default();
    let exists = |name: &str| {
        let containers = pod["spec"]["containers"].as_array();
        let mut containers = containers.into_iter().flatten();
        containers.any(|container| container["name"] == name)
    };
    let of_containers = extended["containers"].as_object().into_iter().flatten();
    // Koordinator leaves what the author of a pod without tier resources wrote; ours removes it.
    for (name, container) in of_containers.filter(|(name, _)| exists(name)) {
        parts.insert(format!("extended resources of {name}"), amounts(container));
    }
    parts.insert(
        "labels".to_owned(),
        strings(&pod["metadata"]["labels"]).into(),
    );
    parts.insert("annotations".to_owned(), annotations.into());
    let mut spec = strings(&pod["spec"]);
    parts.insert(
        "overhead".to_owned(),
        amounts(&json!({"overhead": spec.remove("overhead")})),
    );
    for list in ["containers", "initContainers"] {
        let containers = spec.remove(list).unwrap_or_default();
        for container in containers.as_array().into_iter().flatten() {
            let name = container["name"].as_str().unwrap_or_default();
            parts.insert(
                format!("resources of {name}"),
                amounts(&container["resources"]),
            );
            let mut rest = strings(container);
            rest.remove("resources");
            parts.insert(format!("container {name}"), rest.into());
        }
    }
    for field in [
        "schedulerName",
        "priorityClassName",
        "priority",
        "preemptionPolicy",
    ] {
        parts.insert(field.to_owned(), spec.remove(field).unwrap_or_default());
    }
    parts.insert("spec".to_owned(), spec.into());
    parts
}

/// Exact amounts of several lists, without those that are 0.
fn amounts(lists: &Value) -> Value {
    let mut found = Map::new();
    for (list, amounts) in lists.as_object().into_iter().flatten() {
        for (resource, text) in amounts.as_object().into_iter().flatten() {
            let quantity = text.as_str().and_then(|text| Quantity::parse(text).ok());
            // Thousandths tell all amounts of the cases apart.
            let milli = quantity.map_or(-1, Quantity::milli);
            if milli != 0 {
                found.insert(format!("{list} {resource}"), json!(milli));
            }
        }
    }
    found.sort_keys();
    found.into()
}

/// The accounts that a pod's containers name.
fn named_accounts(pod: &Value) -> Vec<TierAccount> {
    let mut found = Vec::new();
    for list in ["containers", "initContainers"] {
        for container in pod["spec"][list].as_array().into_iter().flatten() {
            for kind in ["requests", "limits"] {
                let names = container["resources"][kind]
                    .as_object()
                    .into_iter()
                    .flatten();
                found.extend(names.filter_map(|(name, _)| TierAccount::of(name)));
            }
        }
    }
    found
}
