//! The service account of a new pod, and the volume through which its containers would reach the API.

use serde_json::{Value, json};

use crate::kinds::kind::Lookup;
use crate::objects::fields::{JsonObject, at, each, fill, inside, is_empty, text};
use crate::objects::names;

const VOLUME: &str = "kube-api-access-";
const MOUNT_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// An hour, and seven seconds by which the kubelet knows such a token.
const TOKEN_SECONDS: i64 = 3607;

/// The account must exist, if the namespace has an account `default`. If it has none, no controller creates
/// accounts in this cluster, and any name is accepted.
pub(super) fn set(pod: &mut Value, others: &dyn Lookup) -> Result<(), String> {
    let namespace = text(pod, "metadata.namespace").to_owned();
    let find = |name: &str| others.get("", "serviceaccounts", &namespace, name);
    let Some(default) = find("default") else {
        return Ok(());
    };
    let named = text(pod, "spec.serviceAccountName").to_owned();
    let account = match named.as_str() {
        "" | "default" => default,
        name => find(name).ok_or_else(|| {
            format!("error looking up service account {namespace}/{name}: serviceaccount {name:?} not found")
        })?,
    };
    let Some(spec) = pod.as_object_mut().and_then(|pod| inside(pod, "spec")) else {
        return Ok(());
    };
    if named.is_empty() {
        fill(spec, "serviceAccountName", "default");
        fill(spec, "serviceAccount", "default");
    }
    let of_pod = spec.get("automountServiceAccountToken");
    let mounts = of_pod.or_else(|| account.get("automountServiceAccountToken"));
    if mounts.and_then(Value::as_bool).unwrap_or(true) {
        mount_token(spec);
    }
    let secrets = at(&account, "imagePullSecrets");
    if spec.get("imagePullSecrets").is_none_or(is_empty) && !is_empty(secrets) {
        spec.insert("imagePullSecrets".to_owned(), secrets.clone());
    }
    Ok(())
}

/// Adds the volume, unless every container has something else at its path.
fn mount_token(spec: &mut JsonObject) {
    let volumes = spec.get("volumes").and_then(Value::as_array);
    let mut names = volumes.into_iter().flatten().map(|it| text(it, "name"));
    let present = names
        .find(|name| name.starts_with(VOLUME))
        .map(str::to_owned);
    let name = present.clone().unwrap_or_else(|| names::generate(VOLUME));
    let mut mounted = false;
    for list in ["initContainers", "containers"] {
        for container in each(spec, list) {
            mounted |= mount(container, &name);
        }
    }
    if mounted && present.is_none() {
        push(spec, "volumes", volume(&name));
    }
}

/// Whether the container got the mount.
fn mount(container: &mut JsonObject, volume: &str) -> bool {
    let mounts = container.get("volumeMounts").and_then(Value::as_array);
    let mut paths = mounts.into_iter().flatten().map(|it| text(it, "mountPath"));
    if paths.any(|path| path == MOUNT_PATH) {
        return false;
    }
    let mount = json!({"name": volume, "readOnly": true, "mountPath": MOUNT_PATH});
    push(container, "volumeMounts", mount);
    true
}

fn push(object: &mut JsonObject, key: &str, item: Value) {
    match object.get_mut(key).and_then(Value::as_array_mut) {
        Some(list) => list.push(item),
        None => {
            object.insert(key.to_owned(), json!([item]));
        }
    }
}

fn volume(name: &str) -> Value {
    let namespace = json!({"apiVersion": "v1", "fieldPath": "metadata.namespace"});
    json!({"name": name, "projected": {
        "sources": [
            {"serviceAccountToken": {"expirationSeconds": TOKEN_SECONDS, "path": "token"}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": namespace}]}},
        ],
        "defaultMode": 0o644,
    }})
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::objects::fields::items;

    struct Accounts(Vec<(&'static str, Value)>);

    impl Lookup for Accounts {
        fn get(&self, _: &str, _: &str, _: &str, name: &str) -> Option<Arc<Value>> {
            let found = self.0.iter().find(|(known, _)| *known == name);
            found.map(|(_, account)| Arc::new(account.clone()))
        }
        fn list(&self, _: &str, _: &str, _: &str) -> Vec<Arc<Value>> {
            Vec::new()
        }
    }

    fn pod(change: Value) -> Value {
        let mut pod = json!({"metadata": {"name": "p", "namespace": "d"}, "spec": {"containers": [{"name": "a"}, {"name": "b"}]}});
        for (key, value) in change.as_object().unwrap() {
            pod["spec"][key] = value.clone();
        }
        pod
    }

    #[test]
    fn a_named_account_must_exist_where_accounts_are_kept() {
        let kept = Accounts(vec![("default", json!({})), ("builder", json!({}))]);
        let none = Accounts(Vec::new());
        let refused = "error looking up service account d/nope: serviceaccount \"nope\" not found";
        for (case, name, cluster, want) in [
            ("none is the default", json!(null), &kept, Ok("default")),
            ("one that exists", json!("builder"), &kept, Ok("builder")),
            ("one that does not", json!("nope"), &kept, Err(refused)),
            ("no accounts at all", json!(null), &none, Ok("")),
            ("any, without accounts", json!("nope"), &none, Ok("nope")),
        ] {
            let mut pod = pod(json!({"serviceAccountName": name}));
            let got = set(&mut pod, cluster);
            let got = got.map(|()| text(&pod, "spec.serviceAccountName").to_owned());
            let want = want.map(str::to_owned).map_err(str::to_owned);
            assert_eq!(got, want, "{case}");
        }
    }

    #[test]
    fn containers_get_the_token_unless_they_are_not_to() {
        let own = json!([{"name": "mine", "mountPath": MOUNT_PATH}]);
        let off = json!({"automountServiceAccountToken": false});
        for (case, account, change, mounts, volumes) in [
            ("usual", json!({}), json!({}), 2, 1),
            ("not for this pod", json!({}), off.clone(), 0, 0),
            ("not for this account", off.clone(), json!({}), 0, 0),
            (
                "the pod decides",
                off,
                json!({"automountServiceAccountToken": true}),
                2,
                1,
            ),
            (
                "one has its own",
                json!({}),
                json!({"containers": [{"name": "a", "volumeMounts": own}, {"name": "b"}]}),
                1,
                1,
            ),
            (
                "all have their own",
                json!({}),
                json!({"containers": [{"name": "a", "volumeMounts": own}]}),
                0,
                0,
            ),
            (
                "the volume is there",
                json!({}),
                json!({"volumes": [{"name": "kube-api-access-x"}]}),
                2,
                1,
            ),
        ] {
            let mut pod = pod(change);
            set(&mut pod, &Accounts(vec![("default", account)])).unwrap();
            let of_server = |it: &&Value| text(it, "name").starts_with(VOLUME);
            let volumes_got = items(&pod, "spec.volumes").iter().filter(of_server).count();
            let containers = items(&pod, "spec.containers").iter();
            let mounts_got = containers
                .flat_map(|container| items(container, "volumeMounts"))
                .filter(of_server)
                .count();
            assert_eq!((mounts_got, volumes_got), (mounts, volumes), "{case}");
        }
    }

    #[test]
    fn a_pod_pulls_images_with_the_secrets_of_its_account() {
        let account = json!({"imagePullSecrets": [{"name": "s"}]});
        let cluster = Accounts(vec![("default", account)]);
        let mut usual = pod(json!({}));
        set(&mut usual, &cluster).unwrap();
        assert_eq!(usual["spec"]["imagePullSecrets"], json!([{"name": "s"}]));
        let mut own = pod(json!({"imagePullSecrets": [{"name": "t"}]}));
        set(&mut own, &cluster).unwrap();
        assert_eq!(own["spec"]["imagePullSecrets"], json!([{"name": "t"}]));
    }
}
