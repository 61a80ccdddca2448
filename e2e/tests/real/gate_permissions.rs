//! The gate uses every permission of `deploy/gate.yaml` on a real API server, and needs no other.

use std::collections::BTreeSet;

use e2e::audit::Request;
use e2e::eventually;
use serde_json::{Value, json};

use crate::deployed;
use crate::gate::{CONFIGURATION, Failure, GATE, Gated, SLICE, USER};
use crate::shared_cluster::{node, text};
use crate::webhook_fixture::PATIENCE;

/// Namespace, group, resource, name and verb. The namespace is empty for all, the name for any.
type Permission = [String; 5];

/// What the roles of the manifest grant to the gate. The verb `bind` is for callers of the gate.
fn granted() -> BTreeSet<Permission> {
    let objects: Vec<Value> = serde_saphyr::from_multiple(GATE).unwrap();
    let texts = |list: &Value| -> Vec<String> {
        let all = list.as_array().into_iter().flatten();
        all.map(text).collect()
    };
    let mut permissions = BTreeSet::new();
    for role in &objects {
        let is_role = role["kind"] == "ClusterRole" || role["kind"] == "Role";
        if !is_role || role["metadata"]["name"] != "tidepool-gate" {
            continue;
        }
        let namespace = text(&role["metadata"]["namespace"]);
        for rule in role["rules"].as_array().unwrap() {
            let mut names = texts(&rule["resourceNames"]);
            if names.is_empty() {
                names.push(String::new());
            }
            for group in texts(&rule["apiGroups"]) {
                for resource in texts(&rule["resources"]) {
                    for name in &names {
                        permissions.extend(texts(&rule["verbs"]).into_iter().map(|verb| {
                            [&namespace, &group, &resource, name, &verb].map(String::clone)
                        }));
                    }
                }
            }
        }
    }
    permissions
}

/// Binds that are judged, a certificate that is renewed, a leader with another kind of address, and a user that reads the metrics.
#[test]
fn the_gate_uses_every_permission_of_its_manifest() {
    // Such an API server does not stream lists, so that the gate lists, too.
    let flags = ["--feature-gates=WatchList=false"];
    let gated = Gated::start_with(Failure::Fail, Some(10), "system:serviceaccounts", &flags);
    let (api, control_plane) = (&gated.api, &gated.control_plane);
    api.create(&node("n1", "zone", json!({}))).unwrap();
    let renewal = "--certificate-renewal=2s";
    let first = ["--secure-port=0", renewal, "--advertise-address=192.0.2.7"];
    let (mut gate, address) = gated.replica("gate", &first);
    gated.lead(&gate, address);
    // Without a uid the gate reads the pod.
    gated.create("a", "cpu", "1");
    gated.bind(api, "a", "n1", "").unwrap();
    eventually("the address is in the EndpointSlice", PATIENCE, || {
        api.get(SLICE).map_err(|error| format!("{error:#}"))
    });
    deployed::wait_for_leader_event(api, "tidepool-gate");
    gate.terminate().unwrap();
    // The second replica has an address of another family: the type of an EndpointSlice cannot change. The third has one of the
    // same family.
    for (name, advertised) in [("second", "2001:db8::7"), ("third", "2001:db8::8")] {
        let advertise = format!("--advertise-address={advertised}");
        // Health and metrics for other machines need authentication.
        let flags = ["--bind-address=0.0.0.0", renewal, &advertise];
        let (next, address) = gated.replica(name, &flags);
        gated.lead(&next, address);
        eventually("the EndpointSlice has the leader", PATIENCE, || {
            let slice = api.get(SLICE).map_err(|error| format!("{error:#}"))?;
            let found = text(&slice["endpoints"][0]["addresses"][0]);
            if found == advertised {
                Ok(())
            } else {
                Err(found)
            }
        });
        let server = deployed::server(&next).unwrap();
        let token = control_plane.admin().token;
        assert_eq!(deployed::ask(&server, "/metrics", Some(&token)).0, 200);
        gate = next;
        if name == "second" {
            gate.terminate().unwrap();
        }
    }
    let bundle = api.get(CONFIGURATION).unwrap()["webhooks"][0].take();
    assert_eq!(bundle["failurePolicy"], "Fail");
    assert!(bundle["clientConfig"]["caBundle"].is_string(), "{bundle}");

    let granted = granted();
    // What is left, and what was used beyond the manifest.
    let compare = || -> (Vec<Permission>, Vec<Permission>) {
        let mut requests = deployed::requests_of(control_plane, USER);
        requests.retain(Request::succeeded);
        let is_of = |it: &Request, [namespace, group, resource, name, verb]: &Permission| {
            (namespace.is_empty() || *namespace == it.namespace)
                && (name.is_empty() || *name == it.name)
                && (group, resource, verb) == (&it.group, &it.resource, &it.verb)
        };
        let is_used = |permission: &&Permission| requests.iter().any(|it| is_of(it, permission));
        let left = granted.iter().filter(|it| !is_used(it)).cloned();
        let beyond = requests.iter().filter(|it| {
            // Such as /version; and the client CA, for which the API server has a Role.
            let is_ours = !it.resource.is_empty() && it.namespace != "kube-system";
            is_ours && !granted.iter().any(|permission| is_of(it, permission))
        });
        let beyond = beyond.map(|it| {
            [&it.namespace, &it.group, &it.resource, &it.name, &it.verb].map(String::clone)
        });
        (left.collect(), beyond.collect())
    };
    // A watch is in the log when it has ended.
    eventually("all but watches are used", PATIENCE, || {
        let (mut left, _) = compare();
        left.retain(|[.., verb]| verb != "watch");
        match left.is_empty() {
            true => Ok(()),
            false => Err(format!("{left:?}: {}", gate.last_words())),
        }
    });
    gate.stop();
    eventually("every permission is used", PATIENCE, || match compare() {
        (left, _) if left.is_empty() => Ok(()),
        (left, _) => Err(format!("{left:?}")),
    });
    assert_eq!(compare().1, Vec::<Permission>::new());
    deployed::check_permissions_of(control_plane, USER);
}
