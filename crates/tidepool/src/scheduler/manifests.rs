//! `tidepool scheduler --print-manifests`: the objects that run another scheduler in a cluster.
//!
//! They are those of `deploy/scheduler.yaml` under names of their own, so that `kubectl delete` takes nothing of others away. There
//! is no Namespace among them for the same reason.

use std::path::Path;

use anyhow::{Result, ensure};
use api::config::Configuration;
use engine::model::is_dns_label;

/// One part of the manifest and what it becomes.
type Edit<'a> = (&'a str, String);

const DEPLOYED: &str = include_str!("../../../../deploy/scheduler.yaml");
/// The name of the objects there.
const DEPLOYED_NAME: &str = "tidepool-scheduler";
/// Object names have up to 63 characters where they become labels.
const LONGEST: usize = 63 - "-tidepool-scheduler".len();

/// The manifests for a scheduler of this name. `configuration` is what a file and its text say.
pub(super) fn print(
    name: &str,
    file: Option<(&Path, &str)>,
    configuration: &Configuration,
) -> Result<String> {
    ensure!(
        is_dns_label(name) && name.len() <= LONGEST,
        "--scheduler-name: `{name}` cannot be a part of object names; use up to {LONGEST} lower case letters, digits and `-`"
    );
    let text = match file {
        Some((path, text)) => {
            check(name, path, configuration)?;
            text.to_owned()
        }
        None => format!(
            "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles:\n- schedulerName: {name}\n"
        ),
    };
    let objects = body();
    let own = format!("{name}-{DEPLOYED_NAME}");
    let flag = "        - --config=/etc/tidepool/config.yaml\n";
    let names = match file {
        Some(_) => configuration.profiles.iter(),
        None => [].iter(),
    };
    let mut names: Vec<&str> = names.map(|it| &*it.scheduler_name).collect();
    if names.is_empty() {
        names.push(name);
    }
    let edits: [Edit<'_>; 3] = [
        // It binds pods of all its profiles.
        (
            "  resourceNames: [tidepool]\n",
            format!("  resourceNames: {names:?}\n"),
        ),
        (deployed_config(objects), indented(&text)),
        (
            flag,
            // The file may have the Lease of another scheduler, and there are two replicas.
            format!(
                "{flag}        - --leader-elect=true\n        - --leader-elect-resource-name={own}\n        - --leader-elect-resource-namespace=tidepool-system\n"
            ),
        ),
    ];
    // Names first: the text of the file stays as it is.
    let mut manifests = objects.replace(DEPLOYED_NAME, &own);
    for (part, edited) in edits {
        manifests = manifests.replacen(&part.replace(DEPLOYED_NAME, &own), &edited, 1);
    }
    Ok(format!(
        "# A scheduler for pods with `schedulerName: {name}`. The namespace tidepool-system must exist (deploy/namespace.yaml).\n{manifests}"
    ))
}

/// What cannot work in a pod of the Deployment.
fn check(name: &str, path: &Path, configuration: &Configuration) -> Result<()> {
    let path = path.display();
    let names = configuration.profiles.iter().map(|it| &*it.scheduler_name);
    let names: Vec<&str> = names.collect();
    ensure!(
        names.contains(&name),
        "{path} has no profile with schedulerName `{name}`; it has {}",
        names.join(", ")
    );
    let kubeconfig = &configuration.client_connection.kubeconfig;
    ensure!(
        kubeconfig.is_empty(),
        "{path} sets clientConnection.kubeconfig to {kubeconfig}, which the pods do not have; leave it out"
    );
    Ok(())
}

/// The manifest without the comment at its head, which is about that file.
fn body() -> &'static str {
    let head = DEPLOYED.find("apiVersion:").unwrap_or(0);
    &DEPLOYED[head..]
}

/// The configuration in the ConfigMap, with its key.
fn deployed_config(objects: &str) -> &str {
    let begin = objects.find("  config.yaml: |\n").unwrap_or(objects.len());
    let length = objects[begin..].find("---\n");
    &objects[begin..begin + length.unwrap_or(0)]
}

/// The text as a block scalar. The indentation is written, because the text may begin with a space.
fn indented(text: &str) -> String {
    let lines = text.lines().map(|line| match line.trim_end() {
        "" => "\n".to_owned(),
        line => format!("    {line}\n"),
    });
    let lines: String = lines.collect();
    format!("  config.yaml: |2\n{lines}")
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn objects(text: &str) -> Vec<Value> {
        serde_saphyr::from_multiple(text).unwrap()
    }

    fn load(text: &str) -> Configuration {
        api::config::load(text).unwrap().0
    }

    #[test]
    fn a_scheduler_has_objects_of_its_own() {
        let printed = print("batch", None, &Configuration::default()).unwrap();
        let (ours, deployed) = (objects(&printed), objects(DEPLOYED));
        assert_eq!(ours.len(), deployed.len());
        for (ours, theirs) in ours.iter().zip(&deployed) {
            assert_ne!(ours["kind"], "Namespace");
            assert_eq!(ours["kind"], theirs["kind"]);
            let name = ours["metadata"]["name"].as_str().unwrap();
            assert!(name.starts_with("batch-tidepool-scheduler"), "{name}");
            // The permissions are equal, on another Lease.
            let rules = theirs["rules"].to_string();
            let rules = rules
                .replace("\"tidepool-scheduler\"", "\"batch-tidepool-scheduler\"")
                .replace("[\"tidepool\"]", "[\"batch\"]");
            assert_eq!(ours["rules"].to_string(), rules, "{name}");
        }
        let config = ours.iter().find(|it| it["kind"] == "ConfigMap").unwrap();
        let config = load(config["data"]["config.yaml"].as_str().unwrap());
        assert_eq!(config.profiles[0].scheduler_name, "batch");
        let deployment = ours.iter().find(|it| it["kind"] == "Deployment").unwrap();
        let args = &deployment["spec"]["template"]["spec"]["containers"][0]["args"];
        let lease = "--leader-elect-resource-name=batch-tidepool-scheduler";
        assert!(args.as_array().unwrap().contains(&lease.into()), "{args}");
        assert!(!printed.contains("schedulerName: tidepool\n"), "{printed}");
    }

    #[test]
    fn a_file_is_printed_as_it_is() {
        let text = " # tidepool-scheduler ---\n apiVersion: kubescheduler.config.k8s.io/v1\n kind: KubeSchedulerConfiguration\n\n profiles:\n - schedulerName: a\n - schedulerName: b\n";
        let file = Some((Path::new("f.yaml"), text));
        let printed = objects(&print("b", file, &load(text)).unwrap());
        let config = printed.iter().find(|it| it["kind"] == "ConfigMap").unwrap();
        assert_eq!(config["data"]["config.yaml"], text);
        let role = printed.iter().find(|it| it["kind"] == "ClusterRole");
        let rules = role.unwrap()["rules"].as_array().unwrap();
        let binds = rules
            .iter()
            .find(|rule| rule["verbs"][0] == "bind")
            .unwrap();
        assert_eq!(binds["resourceNames"], serde_json::json!(["a", "b"]));
        let other = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nclientConnection: {kubeconfig: /k}\nprofiles: [{schedulerName: b}]\n";
        let long = "x".repeat(45);
        for (name, text, want) in [
            (
                "c",
                text,
                "f.yaml has no profile with schedulerName `c`; it has a, b",
            ),
            ("b", other, "f.yaml sets clientConnection.kubeconfig to /k"),
            ("B_x", text, "`B_x` cannot be a part of object names"),
            (&long, text, "use up to 44 lower case letters"),
        ] {
            let file = Some((Path::new("f.yaml"), text));
            let why = print(name, file, &load(text)).unwrap_err().to_string();
            assert!(why.contains(want), "{why}");
        }
    }
}
