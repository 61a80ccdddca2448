//! `cargo xtask gen`: derives the embedded cluster's schema table from Kubernetes itself, and writes the definitions of
//! custom kinds.
//!
//! Names, types and merge rules come from the OpenAPI documents that `k8s.io/kubernetes` ships (what
//! a real server answers under `/openapi/v3`). What JSON alone does not show, protobuf field numbers
//! and whether an empty field is written, comes from the tags of the Go types. No descriptions, no code.

mod go_types;
mod openapi;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::process;

/// Where the table lives, from the root of the repository.
const TABLE: &str = "crates/apiserver/src/objects/schema/table.txt";

/// The kinds whose bodies the embedded cluster reads; everything that they reach follows.
const KINDS: &[(&str, &[&str])] = &[
    (
        "v1",
        &[
            "Binding",
            "ComponentStatus",
            "ConfigMap",
            "DeleteOptions",
            "Endpoints",
            "Event",
            "LimitRange",
            "Namespace",
            "Node",
            "PersistentVolume",
            "PersistentVolumeClaim",
            "Pod",
            "PodTemplate",
            "ReplicationController",
            "ResourceQuota",
            "Secret",
            "Service",
            "ServiceAccount",
            "Status",
        ],
    ),
    (
        "admissionregistration.k8s.io/v1",
        &[
            "MutatingAdmissionPolicy",
            "MutatingAdmissionPolicyBinding",
            "MutatingWebhookConfiguration",
            "ValidatingAdmissionPolicy",
            "ValidatingAdmissionPolicyBinding",
            "ValidatingWebhookConfiguration",
        ],
    ),
    ("apiextensions.k8s.io/v1", &["CustomResourceDefinition"]),
    ("apiregistration.k8s.io/v1", &["APIService"]),
    (
        "apps/v1",
        &[
            "ControllerRevision",
            "DaemonSet",
            "Deployment",
            "ReplicaSet",
            "StatefulSet",
        ],
    ),
    (
        "authentication.k8s.io/v1",
        &["SelfSubjectReview", "TokenRequest", "TokenReview"],
    ),
    (
        "authorization.k8s.io/v1",
        &[
            "LocalSubjectAccessReview",
            "SelfSubjectAccessReview",
            "SelfSubjectRulesReview",
            "SubjectAccessReview",
        ],
    ),
    ("autoscaling/v1", &["HorizontalPodAutoscaler", "Scale"]),
    ("autoscaling/v2", &["HorizontalPodAutoscaler"]),
    ("batch/v1", &["CronJob", "Job"]),
    ("certificates.k8s.io/v1", &["CertificateSigningRequest"]),
    ("coordination.k8s.io/v1", &["Lease"]),
    ("discovery.k8s.io/v1", &["EndpointSlice"]),
    ("events.k8s.io/v1", &["Event"]),
    (
        "flowcontrol.apiserver.k8s.io/v1",
        &["FlowSchema", "PriorityLevelConfiguration"],
    ),
    (
        "networking.k8s.io/v1",
        &[
            "Ingress",
            "IngressClass",
            "IPAddress",
            "NetworkPolicy",
            "ServiceCIDR",
        ],
    ),
    ("node.k8s.io/v1", &["RuntimeClass"]),
    ("policy/v1", &["Eviction", "PodDisruptionBudget"]),
    (
        "rbac.authorization.k8s.io/v1",
        &["ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"],
    ),
    (
        "resource.k8s.io/v1",
        &[
            "DeviceClass",
            "ResourceClaim",
            "ResourceClaimTemplate",
            "ResourceSlice",
        ],
    ),
    ("scheduling.k8s.io/v1", &["PriorityClass"]),
    (
        "storage.k8s.io/v1",
        &[
            "CSIDriver",
            "CSINode",
            "CSIStorageCapacity",
            "StorageClass",
            "VolumeAttachment",
            "VolumeAttributesClass",
        ],
    ),
];

/// Writes all of it, or with `check` fails when the table in the repository is stale. A test of `api` does so for the definitions.
pub(crate) fn run(check: bool) -> Result<()> {
    let root = process::root();
    if !check {
        write_crds(&root.join("deploy/crds"))?;
    }
    let modules = Modules::locate(&root.join("e2e"))?;
    let table = openapi::table(&modules, KINDS)?;
    let path = root.join(TABLE);
    if !check {
        fs::create_dir_all(path.parent().context("the table has a directory")?)?;
        fs::write(&path, table).with_context(|| format!("cannot write {}", path.display()))?;
        return Ok(());
    }
    let present = fs::read_to_string(&path).unwrap_or_default();
    if present != table {
        bail!("{TABLE} is stale: run `cargo xtask gen` and commit the result");
    }
    Ok(())
}

/// Writes the definitions of custom kinds in the `api` crate to the files that users apply.
fn write_crds(folder: &Path) -> Result<()> {
    let mut example = process::cargo();
    example.args(["run", "--quiet", "--locked", "--package", "api"]);
    process::run(example.args(["--example", "write-crds", "--"]).arg(folder))
}

/// Directories of the Go modules that are read, in the versions of `e2e/go.mod`.
pub(crate) struct Modules {
    pub(crate) kubernetes: PathBuf,
    pub(crate) api: PathBuf,
    pub(crate) apimachinery: PathBuf,
    pub(crate) apiextensions: PathBuf,
    pub(crate) aggregator: PathBuf,
}

impl Modules {
    fn locate(e2e: &Path) -> Result<Self> {
        Ok(Self {
            kubernetes: module(e2e, "k8s.io/kubernetes")?,
            api: module(e2e, "k8s.io/api")?,
            apimachinery: module(e2e, "k8s.io/apimachinery")?,
            apiextensions: module(e2e, "k8s.io/apiextensions-apiserver")?,
            aggregator: module(e2e, "k8s.io/kube-aggregator")?,
        })
    }
}

fn module(e2e: &Path, name: &str) -> Result<PathBuf> {
    // Downloads the module when it is not in the cache yet.
    let output = Command::new("go")
        .args(["mod", "download", name])
        .current_dir(e2e)
        .env("GOTOOLCHAIN", "local")
        .output()
        .context("cannot run `go`: the table is derived from Go modules")?;
    if !output.status.success() {
        bail!(
            "`go mod download {name}` failed: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    let output = Command::new("go")
        .args(["list", "-m", "-f", "{{.Dir}}", name])
        .current_dir(e2e)
        .env("GOTOOLCHAIN", "local")
        .output()?;
    let directory = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
    if !directory.is_dir() {
        bail!("`go list -m {name}` gave no directory");
    }
    Ok(directory)
}
