//! Evictions by agents on the real API server: the webhook refuses pods of other nodes. Without an answer of the webhook the manifest
//! decides.

use e2e::{Api, eventually};
use serde_json::{Value, json};

use crate::deployed::{self, NAMESPACE};
use crate::refused_writes::bound_token;
use crate::shared_cluster::node;
use crate::webhook_fixture::{Fixture, PATIENCE};

/// A dry run, which the webhook judges, too.
fn evict(caller: &Api, pod: &str, uid: &Value) -> Result<Value, String> {
    let path = format!("/api/v1/namespaces/default/pods/{pod}/eviction?dryRun=All");
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod},
        "deleteOptions": {"dryRun": ["All"], "preconditions": {"uid": uid}}});
    let answer = caller.post(&path, &eviction);
    answer.map_err(|error| format!("{error:#}"))
}

#[test]
fn agents_evict_pods_of_their_own_node() {
    let fixture = Fixture::start(&[], Some(5));
    let (api, control_plane) = (&fixture.api, &fixture.control_plane);
    let agent = include_str!("../../../deploy/agent.yaml");
    let mut agent: Vec<Value> = serde_saphyr::from_multiple(agent).unwrap();
    agent.retain(|it| it["kind"] != "DaemonSet");
    deployed::apply(control_plane, agent);
    for name in ["a", "b"] {
        api.create(&node(name, "zone", json!({}))).unwrap();
    }
    let create = |namespace: &str, name: &str, node: &str, account: &str| -> Value {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace},
            "spec": {"nodeName": node, "serviceAccountName": account, "containers": [{"name": "c", "image": "i"}]}});
        api.create(&pod).unwrap()["metadata"]["uid"].take()
    };
    create(NAMESPACE, "agent-a", "a", "tidepool-agent");
    let (on_a, on_b) = (
        create("default", "on-a", "a", "default"),
        create("default", "on-b", "b", "default"),
    );
    // A pod of the cluster's own namespaces is judged as any other.
    let own = bound_token(control_plane, api, "agent-a");
    let unbound = deployed::account(control_plane, NAMESPACE, "tidepool-agent");
    let unbound = Api::new(&unbound).unwrap();

    let (mut webhook, address) = fixture.webhook("webhook", &[]);
    fixture.proxy.forward_to(&[address]);
    let other_node =
        "the agent of node a may evict only pods of its node, and this pod is on node b";
    eventually(
        "the API server asks the webhook",
        PATIENCE,
        || match evict(&own, "on-b", &on_b) {
            Err(why) if why.contains(other_node) => Ok(()),
            other => Err(format!("{other:?}")),
        },
    );
    for (what, caller, pod, uid, want) in [
        ("a pod of its node", &own, "on-a", &on_a, ""),
        ("a pod of another node", &own, "on-b", &on_b, other_node),
        (
            "a pod of another node, with a uid of its node",
            &own,
            "on-b",
            &on_a,
            other_node,
        ),
        (
            "without a uid",
            &own,
            "on-a",
            &Value::Null,
            "must have the uid of the pod in its preconditions",
        ),
        ("a pod that is gone", &own, "gone", &on_a, "not found"),
        (
            "with a token without a node",
            &unbound,
            "on-a",
            &on_a,
            "not bound to a node",
        ),
        ("another user, as ever", api, "on-b", &Value::Null, ""),
    ] {
        let answer = evict(caller, pod, uid);
        let is_right = match &answer {
            Ok(_) => want.is_empty(),
            Err(why) => !want.is_empty() && why.contains(want),
        };
        assert!(is_right, "{what}: {answer:?}, not {want:?}");
    }

    // Nobody answers.
    fixture.proxy.forward_to(&[]);
    webhook.terminate().unwrap();
    eventually("it is carried out unjudged", PATIENCE, || {
        evict(&own, "on-b", &on_b)
    });
    let strict = include_str!("../../../deploy/webhook-evictions-strict.yaml");
    fixture.apply(serde_saphyr::from_multiple(strict).unwrap(), &[]);
    eventually("it is refused", PATIENCE, || {
        match evict(&own, "on-a", &on_a) {
            Err(why) if why.contains("failed calling webhook") => Ok(()),
            other => Err(format!("{other:?}")),
        }
    });
    evict(api, "on-b", &on_b).unwrap();
}
