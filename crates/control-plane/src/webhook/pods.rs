//! The answers to reviews of pods, workloads and colocation profiles.

use std::sync::Arc;

use engine::admission::keys::MIRROR;
use engine::admission::{
    AdmissionRequest, Refused, check_scheduler, check_system, is_kubelet_of, json_patch,
    keeps_scheduler, mutate, validate, validate_profile, validate_update,
};
use futures::FutureExt;

use super::bind_permission::BindPermission;
use super::objects::AdmissionObjects;
use super::review::{NoAnswer, Review, ReviewAnswer};
use super::server::{Reviewer, immediate};
use super::settings;

pub const MUTATE_PODS: &str = "/mutate-pods";
pub const VALIDATE_PODS: &str = "/validate-pods";
pub const VALIDATE_PROFILES: &str = "/validate-profiles";
pub const VALIDATE_WORKLOADS: &str = "/validate-workloads";
/// For pods that are created on a node, without a scheduler.
pub const VALIDATE_NODE_NAMES: &str = "/validate-node-names";

/// The configurations do not send pods of these namespaces; if one is sent, it passes.
const NEVER: [&str; 2] = ["kube-system", "kube-node-lease"];

/// Answers reviews from the watched objects.
pub struct PodAdmission {
    objects: AdmissionObjects,
    own_namespace: String,
    /// The user that `tidepool controllers` runs as.
    controllers: String,
}

/// The paths that a server answers, with their reviewers.
pub fn paths(admission: &Arc<PodAdmission>) -> Vec<(&'static str, Reviewer)> {
    type Answer = fn(&PodAdmission, &Review) -> ReviewAnswer;
    let all: [(_, Answer); 5] = [
        (MUTATE_PODS, PodAdmission::mutate),
        (VALIDATE_PODS, PodAdmission::validate),
        (VALIDATE_PROFILES, PodAdmission::validate_profile),
        (settings::VALIDATE_SETTINGS, |_, review| {
            settings::validate(review)
        }),
        (VALIDATE_WORKLOADS, PodAdmission::validate_workload),
    ];
    let reviewer = |answer: Answer| -> Reviewer {
        let admission = admission.clone();
        immediate(move |review| answer(&admission, review))
    };
    all.map(|(path, answer)| (path, reviewer(answer))).into()
}

/// The path for pods that are created with `spec.nodeName`: whether their creator may bind pods of their scheduler.
pub fn node_name_path(
    admission: &Arc<PodAdmission>,
    permission: &Arc<BindPermission>,
) -> (&'static str, Reviewer) {
    let (admission, permission) = (admission.clone(), permission.clone());
    let reviewer: Reviewer = Arc::new(move |review| {
        let (admission, permission) = (admission.clone(), permission.clone());
        async move { admission.validate_node_name(&review, &permission).await }.boxed()
    });
    (VALIDATE_NODE_NAMES, reviewer)
}

impl PodAdmission {
    pub fn new(objects: AdmissionObjects, own_namespace: String, controllers: String) -> Self {
        Self {
            objects,
            own_namespace,
            controllers,
        }
    }

    /// Only a new pod is changed.
    pub fn mutate(&self, review: &Review) -> ReviewAnswer {
        if !self.is_ours(review) || review.operation != "CREATE" || review.sub_resource.is_some() {
            return ReviewAnswer::default();
        }
        self.with_request(review, |request, settings| {
            match mutate(request, settings) {
                Ok(change) => {
                    let patch = json_patch(request.pod, &change.pod);
                    for reason in change.reasons.iter().filter(|_| !patch.is_empty()) {
                        tracing::debug!(pod = %name_of(review), "{reason}");
                    }
                    ReviewAnswer {
                        patch,
                        warnings: change.warnings,
                        ..ReviewAnswer::default()
                    }
                }
                Err(refused) => refuse(review, &refused),
            }
        })
    }

    pub fn validate(&self, review: &Review) -> ReviewAnswer {
        let is_resize = review.sub_resource.as_deref() == Some("resize");
        if !self.is_ours(review) || review.sub_resource.is_some() && !is_resize {
            return ReviewAnswer::default();
        }
        self.with_request(review, |request, settings| {
            let result = match &review.operation[..] {
                "CREATE" => validate(request)
                    .and_then(|()| {
                        check_system(request.pod, &review.namespace, &settings.system_namespaces)
                    })
                    .and_then(|()| {
                        check_scheduler(request.pod, request.namespace, &settings.schedulers)
                    }),
                "UPDATE" => validate_update(request, &review.old_object).map(|()| Vec::new()),
                _ => Ok(Vec::new()),
            };
            warn_or_refuse(review, result)
        })
    }

    /// A pod that has a node when it is created passes every scheduler, and the gate.
    async fn validate_node_name(
        &self,
        review: &Review,
        permission: &BindPermission,
    ) -> Result<ReviewAnswer, NoAnswer> {
        let (spec, metadata) = (&review.object["spec"], &review.object["metadata"]);
        let has_node = spec["nodeName"].as_str().is_some_and(|it| !it.is_empty());
        let is_new = review.operation == "CREATE" && review.sub_resource.is_none();
        // Any user can write the annotation, but only the kubelet of the node has its name.
        let is_mirror = metadata["annotations"].get(MIRROR).is_some()
            && is_kubelet_of(&review.object, &review.user_info.username);
        if !self.is_ours(review) || !is_new || !has_node || is_mirror {
            return Ok(ReviewAnswer::default());
        }
        let scheduler = spec["schedulerName"].as_str().unwrap_or_default();
        let name = name_of(review);
        let name = name.rsplit('/').next().unwrap_or_default();
        let refused = permission.check(review, name, scheduler).await?;
        Ok(refused.unwrap_or_default())
    }

    /// Whether the pods of a workload name a scheduler that runs. Warnings about the pods themselves reach only their controller.
    pub fn validate_workload(&self, review: &Review) -> ReviewAnswer {
        let is_template_new = match &review.operation[..] {
            "CREATE" => true,
            "UPDATE" => !keeps_scheduler(&review.old_object, &review.object),
            _ => false,
        };
        if !self.is_judged(&review.namespace) || review.sub_resource.is_some() || !is_template_new {
            return ReviewAnswer::default();
        }
        let labels = self.objects.namespace_labels(&review.namespace);
        let known = &self.objects.snapshot().settings.schedulers;
        let result = check_scheduler(&review.object, labels.as_ref(), known);
        warn_or_refuse(review, result)
    }

    pub fn validate_profile(&self, review: &Review) -> ReviewAnswer {
        let is_write = matches!(&review.operation[..], "CREATE" | "UPDATE");
        if review.resource.resource != "clustercolocationprofiles" || !is_write {
            return ReviewAnswer::default();
        }
        let profile = api::parse::colocation_profile_from(&review.object);
        let faults = validate_profile(&profile);
        if !faults.is_empty() {
            return refuse(review, &Refused(faults));
        }
        let class = profile.priority_class_name.as_deref();
        let snapshot = self.objects.snapshot();
        let gone = class.filter(|class| !snapshot.settings.priority_classes.contains_key(*class));
        let warning = gone.map(|class| {
            format!("PriorityClass {class} does not exist: until it does, matching pods are admitted as they are")
        });
        ReviewAnswer {
            warnings: warning.into_iter().collect(),
            ..ReviewAnswer::default()
        }
    }

    fn is_ours(&self, review: &Review) -> bool {
        review.resource.group.is_empty()
            && review.resource.resource == "pods"
            && self.is_judged(&review.namespace)
    }

    fn is_judged(&self, namespace: &str) -> bool {
        !NEVER.contains(&namespace) && namespace != self.own_namespace
    }

    fn with_request(
        &self,
        review: &Review,
        answer: impl FnOnce(
            &AdmissionRequest<'_>,
            &engine::admission::AdmissionSettings,
        ) -> ReviewAnswer,
    ) -> ReviewAnswer {
        let snapshot = self.objects.snapshot();
        let labels = self.objects.namespace_labels(&review.namespace);
        let request = AdmissionRequest {
            uid: &review.uid,
            user: &review.user_info.username,
            controllers: &self.controllers,
            namespace: labels.as_ref(),
            limit_ranges: snapshot.limit_ranges(&review.namespace),
            pod: &review.object,
        };
        answer(&request, &snapshot.settings)
    }
}

fn warn_or_refuse(review: &Review, result: Result<Vec<String>, Refused>) -> ReviewAnswer {
    match result {
        Ok(warnings) => ReviewAnswer {
            warnings,
            ..ReviewAnswer::default()
        },
        Err(refused) => refuse(review, &refused),
    }
}

fn refuse(review: &Review, refused: &Refused) -> ReviewAnswer {
    tracing::info!(object = %name_of(review), "refused: {refused}");
    ReviewAnswer::refuse(refused.to_string())
}

/// NAMESPACE/NAME, for logs; a pod of a controller has only the beginning of its name yet.
fn name_of(review: &Review) -> String {
    let metadata = &review.object["metadata"];
    let name = metadata["name"]
        .as_str()
        .or(metadata["generateName"].as_str());
    match (&review.namespace[..], name.unwrap_or_default()) {
        ("", name) => name.to_owned(),
        (namespace, name) => format!("{namespace}/{name}"),
    }
}
