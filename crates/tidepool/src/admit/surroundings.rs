//! What the admission of a pod depends on, from a file or from a cluster.

use api::contracts::{DEFAULT_NAME, NAMESPACE, REGISTERED_NAMES, SCHEDULERS};
use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use api::{parse, wire};
use engine::admission::{AdmissionSettings, KnownSchedulers, LimitRange};
use engine::cluster::PriorityClass;
use engine::model::{Labels, PreemptionPolicy};
use kube::core::Request as ListRequest;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::cluster::Source;
use crate::exit::{Code, error};

/// Koordinator's classes, as deploy/webhook.yaml makes them.
const CLASSES: [(&str, i32); 4] = [
    ("koord-prod", 9000),
    ("koord-mid", 7000),
    ("koord-batch", 5000),
    ("koord-free", 3000),
];

/// Profiles, classes, namespaces, LimitRanges and the registry of schedulers.
#[derive(Default)]
pub(super) struct Surroundings {
    pub(super) settings: AdmissionSettings,
    namespaces: BTreeMap<String, Labels>,
    limit_ranges: BTreeMap<String, Vec<LimitRange>>,
}

/// The objects of a file; the items of a List count one by one.
pub(super) fn read(path: &Path) -> Result<Vec<Value>> {
    let text = crate::read_input(path).map_err(|why| error(Code::BadInput, format!("{why:#}")))?;
    let documents: Vec<Value> = serde_saphyr::from_multiple(&text).map_err(|why| {
        let why = why.to_string();
        let first = why.lines().next().unwrap_or_default().to_owned();
        error(
            Code::BadInput,
            format!("cannot read {}: {first}", path.display()),
        )
    })?;
    let mut objects = Vec::new();
    for document in documents.into_iter().filter(|it| !it.is_null()) {
        match document["items"].as_array() {
            Some(items) => objects.extend(items.iter().cloned()),
            None => objects.push(document),
        }
    }
    Ok(objects)
}

impl Surroundings {
    pub(super) fn from_file(path: &Path) -> Result<Self> {
        let mut found = Self::default();
        for object in read(path)? {
            let kind = object["kind"].as_str().unwrap_or_default().to_owned();
            found
                .add(&kind, &object)
                .map_err(|why| error(Code::BadInput, format!("{}: {why:#}", path.display())))?;
        }
        if found.settings.priority_classes.is_empty() {
            let class = |(name, value): (&str, i32)| PriorityClass {
                name: name.into(),
                value,
                global_default: false,
                preemption_policy: PreemptionPolicy::LowerPriority,
            };
            let classes = CLASSES.map(class).map(|class| (class.name.clone(), class));
            found.settings.priority_classes = classes.into();
        }
        found.sort();
        Ok(found)
    }

    pub(super) fn from_cluster(
        kubeconfig: Option<&Path>,
        context: Option<&str>,
        namespace: &str,
    ) -> Result<Self> {
        let source = Source::find(kubeconfig, |name| std::env::var_os(name)).ok_or_else(|| {
            let text =
                "no kubeconfig found: pass --kubeconfig PATH, or --profiles FILE to ask no cluster";
            error(Code::BadInput, text)
        })?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        runtime.block_on(async {
            let (config, _) = source.read(context).await?;
            let server = config.cluster_url.clone();
            let client = kube::Client::try_from(config)?;
            let ranges = format!("/api/v1/namespaces/{namespace}/limitranges");
            let mut found = Self::default();
            for (kind, path) in [
                (
                    "ClusterColocationProfile",
                    "/apis/config.koordinator.sh/v1alpha1/clustercolocationprofiles",
                ),
                (
                    "PriorityClass",
                    "/apis/scheduling.k8s.io/v1/priorityclasses",
                ),
                ("Namespace", "/api/v1/namespaces"),
                ("LimitRange", &ranges),
            ] {
                let request = ListRequest::new(path)
                    .list(&Default::default())
                    .context("cannot make a request")?;
                let list = match client.request::<Value>(request.map(|_| Vec::new())).await {
                    Ok(list) => list,
                    // Without the definition there are no profiles.
                    Err(kube::Error::Api(status)) if status.code == 404 => continue,
                    Err(kube::Error::Api(status)) if status.code == 403 => {
                        return Err(error(Code::Refused, status.message));
                    }
                    Err(why) => {
                        return Err(error(
                            Code::Unreachable,
                            format!("{server} does not answer: {why}"),
                        ));
                    }
                };
                for object in list["items"].as_array().into_iter().flatten() {
                    found.add(kind, object)?;
                }
            }
            let name = SCHEDULERS;
            let path = format!("/api/v1/namespaces/{NAMESPACE}/configmaps/{name}");
            let request = http::Request::get(path)
                .body(Vec::new())
                .context("cannot make a request")?;
            match client.request::<Value>(request).await {
                Ok(registry) => found.add("ConfigMap", &registry)?,
                // Then the webhook checks no names either.
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                // Users of other namespaces may not read it.
                Err(kube::Error::Api(status)) if status.code == 403 => tracing::warn!(
                    "the result may have another scheduler, because ConfigMap {NAMESPACE}/{name} cannot be read: {}",
                    status.message
                ),
                Err(why) => {
                    return Err(error(
                        Code::Unreachable,
                        format!("{server} does not answer: {why}"),
                    ));
                }
            }
            found.sort();
            Ok(found)
        })
    }

    fn add(&mut self, kind: &str, object: &Value) -> Result<()> {
        let name = object["metadata"]["name"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        fn typed<T: DeserializeOwned>(object: &Value) -> Result<T> {
            Ok(serde_json::from_value(object.clone())?)
        }
        match kind {
            "ClusterColocationProfile" => {
                let profile = parse::colocation_profile_from(object);
                for fault in &profile.faults {
                    tracing::warn!("profile {name} matches no pods: {fault}");
                }
                self.settings.profiles.push(profile);
            }
            "PriorityClass" => {
                let class = parse::priority_class(&typed::<wire::workload::PriorityClass>(object)?);
                self.settings
                    .priority_classes
                    .insert(class.name.clone(), class);
            }
            "Namespace" => {
                let namespace = parse::namespace(&typed::<wire::core::Namespace>(object)?);
                self.namespaces.insert(name, namespace.labels);
            }
            "LimitRange" => {
                let range = parse::limit_range(&typed::<wire::colocation::LimitRange>(object)?);
                let namespace = object["metadata"]["namespace"]
                    .as_str()
                    .unwrap_or("default");
                self.limit_ranges
                    .entry(namespace.to_owned())
                    .or_default()
                    .push(range);
            }
            "ConfigMap" if name == SCHEDULERS && object["metadata"]["namespace"] == NAMESPACE => {
                let value = |key: &str| object["data"][key].as_str();
                let (default, names) = (value(DEFAULT_NAME), value(REGISTERED_NAMES));
                let (known, invalid) = KnownSchedulers::read(default, names);
                if let Some(invalid) = invalid {
                    tracing::warn!(
                        "ConfigMap {NAMESPACE}/{name}: ignoring key `default`: {invalid:?} is not a valid scheduler name"
                    );
                }
                self.settings.schedulers = known;
            }
            other => tracing::warn!("ignoring `{other}` {name}: it has no effect on admission"),
        }
        Ok(())
    }

    fn sort(&mut self) {
        self.settings.profiles.sort_by(|a, b| a.name.cmp(&b.name));
    }

    /// A namespace that is not known has the label with its name only.
    pub(super) fn namespace_labels(&self, name: &str) -> Labels {
        let known = self.namespaces.get(name).cloned();
        known.unwrap_or_else(|| {
            [("kubernetes.io/metadata.name", name)]
                .into_iter()
                .collect()
        })
    }

    pub(super) fn limit_ranges(&self, namespace: &str) -> &[LimitRange] {
        self.limit_ranges.get(namespace).map_or(&[], Vec::as_slice)
    }
}
