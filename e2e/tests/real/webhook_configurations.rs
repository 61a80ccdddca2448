//! The webhook and the gate may change only the CA of their webhook configurations: another rule or address would send them the
//! objects of the whole cluster.

use e2e::{Api, ControlPlane, eventually};
use serde_json::{Value, json};

use crate::deployed::{self, NAMESPACE};
use crate::gate::GATE;
use crate::shared_cluster::SHORT;
use crate::webhook_fixture::manifests;

const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";

type ChangeWebhook = fn(&mut Value);
type ChangeList = fn(&mut Vec<Value>);

/// What is tried with the first webhook of a configuration.
const CHANGES: [(&str, ChangeWebhook); 9] = [
    ("another server", |webhook| {
        webhook["clientConfig"] = json!({"url": "https://192.0.2.1/"});
    }),
    ("another Service", |webhook| {
        webhook["clientConfig"]["service"]["name"] = json!("other");
    }),
    ("another path", |webhook| {
        webhook["clientConfig"]["service"]["path"] = json!("/other");
    }),
    ("all resources", |webhook| {
        let all = json!({"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*/*"]});
        webhook["rules"] = json!([all]);
    }),
    ("other namespaces", |webhook| {
        webhook["namespaceSelector"] = json!({"matchLabels": {"a": "b"}});
    }),
    ("some objects", |webhook| {
        webhook["objectSelector"] = json!({"matchLabels": {"a": "b"}});
    }),
    ("another failure policy", |webhook| {
        let is_strict = webhook["failurePolicy"] == "Fail";
        webhook["failurePolicy"] = json!(if is_strict { "Ignore" } else { "Fail" });
    }),
    ("a longer wait", |webhook| {
        webhook["timeoutSeconds"] = json!(30);
    }),
    ("a condition", |webhook| {
        webhook["matchConditions"] = json!([{"name": "never", "expression": "false"}]);
    }),
];

/// What is tried with the list of webhooks.
const LISTS: [(&str, ChangeList); 2] = [
    ("one webhook less", |webhooks| {
        webhooks.pop();
    }),
    ("one webhook more", |webhooks| {
        let mut more = webhooks[0].clone();
        more["name"] = json!("more.example.com");
        webhooks.push(more);
    }),
];

/// What is tried with the metadata.
fn metadata() -> [(&'static str, Value); 4] {
    let owner = json!({"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "1"});
    [
        ("a label", json!({"labels": {"a": "b"}})),
        ("an annotation", json!({"annotations": {"a": "b"}})),
        ("a finalizer", json!({"finalizers": ["example.com/a"]})),
        ("an owner", json!({"ownerReferences": [owner]})),
    ]
}

struct Configuration {
    path: String,
    /// Who may write its CA.
    account: &'static str,
}

fn configurations() -> Vec<Configuration> {
    let all = [
        ("mutating", "tidepool-webhook", "tidepool-webhook"),
        ("validating", "tidepool-webhook", "tidepool-webhook"),
        (
            "validating",
            "tidepool-webhook-evictions",
            "tidepool-webhook",
        ),
        (
            "validating",
            "tidepool-webhook-node-names",
            "tidepool-webhook",
        ),
        ("validating", "tidepool-gate", "tidepool-gate"),
    ];
    all.map(|(kind, name, account)| Configuration {
        path: format!("{GROUP}/{kind}webhookconfigurations/{name}"),
        account,
    })
    .into()
}

fn start() -> (ControlPlane, Api) {
    let control_plane = deployed::start(&[]);
    let gate: Vec<Value> = serde_saphyr::from_multiple(GATE).unwrap();
    deployed::apply(&control_plane, [manifests(), gate].concat());
    let api = Api::new(&control_plane.admin()).unwrap();
    (control_plane, api)
}

#[test]
fn components_change_only_the_ca_of_their_webhook_configurations() {
    let (control_plane, api) = start();
    let authority = rcgen::generate_simple_self_signed(vec!["ca".to_owned()]).unwrap();
    let bundle = k8s_openapi::ByteString(authority.cert.pem().into_bytes());
    let bundle = serde_json::to_value(bundle).unwrap();
    let mut wrong = Vec::new();
    for Configuration { path, account } in configurations() {
        let user = deployed::account(&control_plane, NAMESPACE, account);
        let caller = Api::new(&user).unwrap();
        let refusal = |patch: &Value| {
            let answer = caller.patch(&path, patch).err();
            answer.map(|error| error.root_cause().to_string())
        };
        let words = "may change only caBundle of configuration";
        let is_refused = |patch: &Value| refusal(patch).is_some_and(|found| found.contains(words));
        // The API server reads policies a moment after they were created.
        let probe = json!({"metadata": {"annotations": {"probe": "x"}}});
        let dry_run = format!("{path}?dryRun=All");
        eventually("the policy is in force", SHORT, || {
            match caller.patch(&dry_run, &probe) {
                Err(error) if format!("{error:#}").contains(words) => Ok(()),
                other => Err(format!("{path}: {other:?}")),
            }
        });
        let before = api.get(&path).unwrap();
        let webhooks = before["webhooks"].as_array().unwrap();
        let mut patches: Vec<(&str, Value)> = Vec::new();
        for (case, change) in CHANGES {
            let mut changed = webhooks.clone();
            change(&mut changed[0]);
            patches.push((case, json!({"webhooks": changed})));
        }
        for (case, change) in LISTS {
            let mut changed = webhooks.clone();
            change(&mut changed);
            patches.push((case, json!({"webhooks": changed})));
        }
        patches.extend(metadata().map(|(case, fields)| (case, json!({"metadata": fields}))));
        for (case, patch) in &patches {
            if !is_refused(patch) {
                wrong.push(format!("{path}, {case}: {:?}", refusal(patch)));
            }
        }
        let mut trusted = webhooks.clone();
        for webhook in &mut trusted {
            webhook["clientConfig"]["caBundle"] = bundle.clone();
        }
        let refused = refusal(&json!({"webhooks": trusted}));
        wrong.extend(refused.map(|it| format!("{path}, the CA: {it}")));
        let after = api.get(&path).unwrap();
        assert_eq!(after["webhooks"], Value::from(trusted), "{path}");
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
