//! `tidepool admit`: what the admission webhook makes of a pod, without creating it.

mod surroundings;

use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::Args;
use engine::admission::{AdmissionRequest, Mutation, admit, json_patch, pod_qos};
use serde_json::{Value, json};

use crate::exit::{Code, error};
use surroundings::Surroundings;

/// Show what the admission webhook makes of a pod
///
/// Prints the changes, one field per line, and their reasons; or why the pod is refused, with exit code 3. Nothing is created.
/// Profiles, PriorityClasses, LimitRanges, the namespace and the ConfigMap `schedulers` are those of the cluster, or of a file.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Flags {
    /// The pod, or an object with a pod template such as a Deployment or a Job; - for standard input
    #[arg(short, long, value_name = "FILE")]
    filename: PathBuf,
    /// The namespace of the pod [default: that of the pod, or `default`]
    #[arg(short, long, value_name = "NAME")]
    namespace: Option<String>,
    /// A file with ClusterColocationProfiles, and also PriorityClasses, Namespaces, LimitRanges and the ConfigMap
    /// tidepool-system/schedulers; then no cluster is read. Without PriorityClasses in it, those of deploy/webhook.yaml exist
    #[arg(long, value_name = "FILE")]
    profiles: Option<PathBuf>,
    /// Kubeconfig of the cluster [default: as kubectl finds it]
    #[arg(long, value_name = "PATH", conflicts_with = "profiles")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig [default: the current one]
    #[arg(long, value_name = "NAME", conflicts_with = "profiles")]
    context: Option<String>,
    /// Output format: `diff`, or the admitted pod as `yaml` or `json`
    #[arg(short, long, value_enum, default_value_t = AdmitFormat::Diff)]
    output: AdmitFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum AdmitFormat {
    Diff,
    Yaml,
    Json,
}

const EXAMPLES: &str = "\
Examples:
  tidepool admit -f pod.yaml                               with the profiles of your cluster
  tidepool admit -f pod.yaml --profiles profiles.yaml      with those of a file, without a cluster
  tidepool admit -f deployment.yaml --namespace shop       the pods of a Deployment in a namespace
  tidepool admit -f pod.yaml -o yaml | kubectl apply -f -  create the pod as the webhook would";

pub(crate) fn run(flags: &Flags) -> Result<()> {
    let objects = surroundings::read(&flags.filename)?;
    let [object] = &objects[..] else {
        let text = format!(
            "{} has {} objects: pass one pod",
            flags.filename.display(),
            objects.len()
        );
        return Err(error(Code::BadInput, text));
    };
    let mut pod = pod_of(object).map_err(|why| {
        error(
            Code::BadInput,
            format!("{}: {why:#}", flags.filename.display()),
        )
    })?;
    let named = pod["metadata"]["namespace"].as_str().map(str::to_owned);
    let namespace = flags
        .namespace
        .clone()
        .or(named)
        .unwrap_or_else(|| "default".to_owned());
    pod["metadata"]["namespace"] = json!(namespace);
    let surroundings = match &flags.profiles {
        Some(file) => Surroundings::from_file(file)?,
        None => Surroundings::from_cluster(
            flags.kubeconfig.as_deref(),
            flags.context.as_deref(),
            &namespace,
        )?,
    };
    let labels = surroundings.namespace_labels(&namespace);
    let request = AdmissionRequest {
        // Profiles with a probability decide by it; a name gives the same answer each time.
        uid: pod["metadata"]["name"].as_str().unwrap_or_default(),
        // A user that may not write the annotations of components.
        user: "",
        controllers: "",
        namespace: Some(&labels),
        limit_ranges: surroundings.limit_ranges(&namespace),
        pod: &pod,
    };
    match admit(&request, &surroundings.settings) {
        Ok(admitted) => {
            for warning in &admitted.warnings {
                tracing::warn!("{warning}");
            }
            crate::say(&match flags.output {
                AdmitFormat::Diff => diff(&pod, &admitted),
                AdmitFormat::Yaml => {
                    serde_saphyr::to_string(&admitted.pod).context("cannot write YAML")?
                }
                AdmitFormat::Json => serde_json::to_string_pretty(&admitted.pod)? + "\n",
            })
        }
        Err(refused) => {
            let faults: Vec<String> = refused
                .0
                .iter()
                .map(|fault| format!("  {fault}\n"))
                .collect();
            let text = format!(
                "the webhook refuses {}:\n{}",
                name_of(&pod),
                faults.concat()
            );
            Err(error(Code::Problem, text.trim_end()))
        }
    }
}

/// A pod, or the pod that a template makes.
fn pod_of(object: &Value) -> Result<Value> {
    let kind = object["kind"].as_str().unwrap_or_default();
    let template = match kind {
        "Pod" => return Ok(object.clone()),
        "CronJob" => &object["spec"]["jobTemplate"]["spec"]["template"],
        _ => &object["spec"]["template"],
    };
    if !template["spec"].is_object() {
        bail!("found `{kind}`: use a Pod, or an object with a pod template");
    }
    let mut pod =
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {}, "spec": template["spec"]});
    for map in ["labels", "annotations"] {
        if template["metadata"][map].is_object() {
            pod["metadata"][map] = template["metadata"][map].clone();
        }
    }
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    pod["metadata"]["generateName"] = json!(format!("{name}-"));
    if object["metadata"]["namespace"].is_string() {
        pod["metadata"]["namespace"] = object["metadata"]["namespace"].clone();
    }
    Ok(pod)
}

fn name_of(pod: &Value) -> String {
    let metadata = &pod["metadata"];
    let name = metadata["name"]
        .as_str()
        .or(metadata["generateName"].as_str());
    let namespace = metadata["namespace"].as_str().unwrap_or_default();
    format!("pod {namespace}/{}", name.unwrap_or_default())
}

/// The changes with their reasons.
fn diff(before: &Value, admitted: &Mutation) -> String {
    let mut text = String::new();
    let changes = json_patch(before, &admitted.pod);
    let verdict = match changes.is_empty() {
        true => "admitted as it is",
        false => "admitted with these changes",
    };
    let _ = writeln!(
        text,
        "{} is {verdict}; its QoS class is {:?}",
        name_of(before),
        pod_qos(&admitted.pod)
    );
    for change in &changes {
        let pointer = change["path"].as_str().unwrap_or_default();
        let field = field_of(pointer);
        if change["op"] != "add"
            && let Some(old) = before.pointer(pointer)
        {
            write_lines(&mut text, '-', &field, old);
        }
        if change["op"] != "remove" {
            write_lines(&mut text, '+', &field, &change["value"]);
        }
    }
    for reason in &admitted.reasons {
        let _ = writeln!(text, "  because {reason}");
    }
    text
}

/// One line per value, so that a new map reads like a changed one.
fn write_lines(text: &mut String, sign: char, field: &str, value: &Value) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            for (key, value) in map {
                write_lines(text, sign, &format!("{field}.{key}"), value);
            }
        }
        Value::String(value) => {
            let _ = writeln!(text, "{sign} {field}: {value}");
        }
        other => {
            let _ = writeln!(text, "{sign} {field}: {other}");
        }
    }
}

/// A JSON pointer as a path: `/spec/containers/0/image` is `spec.containers[0].image`.
fn field_of(pointer: &str) -> String {
    let mut field = String::new();
    for step in pointer.split('/').skip(1) {
        let step = step.replace("~1", "/").replace("~0", "~");
        if step.parse::<usize>().is_ok() {
            let _ = write!(field, "[{step}]");
        } else {
            let dot = if field.is_empty() { "" } else { "." };
            let _ = write!(field, "{dot}{step}");
        }
    }
    field
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_of_templates() {
        let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": []}});
        for (kind, spec) in [
            ("Deployment", json!({"template": template})),
            (
                "CronJob",
                json!({"jobTemplate": {"spec": {"template": template}}}),
            ),
        ] {
            let object = json!({"kind": kind, "metadata": {"name": "web", "namespace": "shop"}, "spec": spec});
            let pod = pod_of(&object).unwrap();
            assert_eq!(
                pod["metadata"],
                json!({"labels": {"a": "b"}, "generateName": "web-", "namespace": "shop"})
            );
        }
        assert!(
            pod_of(&json!({"kind": "Service", "spec": {}}))
                .unwrap_err()
                .to_string()
                .contains("found `Service`")
        );
    }

    #[test]
    fn fields() {
        assert_eq!(
            field_of("/spec/containers/0/resources/limits/example.com~1gpu"),
            "spec.containers[0].resources.limits.example.com/gpu"
        );
    }
}
