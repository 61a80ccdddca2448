//! Simulated nodes with NUMA zones: what their CustomNodeResources report.

use std::time::Duration;

use apiserver::{Cluster, Options};
use k8s_openapi::api::core::v1::{Event, Node, Pod, ServiceAccount};
use kube::{
    Api, Client, ResourceExt,
    api::{
        ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams,
        PostParams,
    },
};
use local::{Local, NUMA, NodeError, Shape, Timings};
use serde_json::{Value, json};

use crate::support::{NAMESPACE, eventually, object, short};

fn resource(group: &str, version: &str, kind: &str, plural: &str) -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural)
}

fn definitions(client: &Client) -> Api<DynamicObject> {
    let kind = resource(
        "apiextensions.k8s.io",
        "v1",
        "CustomResourceDefinition",
        "customresourcedefinitions",
    );
    Api::all_with(client.clone(), &kind)
}

async fn define_kinds(client: &Client) {
    let options = PostParams::default();
    for (_, definition) in api::crds::all() {
        let definition = serde_json::from_value(definition).unwrap();
        let created = definitions(client).create(&options, &definition).await;
        let exists = matches!(&created, Err(kube::Error::Api(status)) if status.code == 409);
        assert!(created.is_ok() || exists, "{created:?}");
    }
}

struct Zoned {
    client: Client,
    local: Local,
    reports: Api<DynamicObject>,
}

impl Zoned {
    /// A cluster without nodes; the kind is defined.
    async fn start() -> Self {
        Self::start_with(short()).await
    }

    async fn start_with(timings: Timings) -> Self {
        let cluster = Cluster::new(Options::default());
        let client = Client::new(cluster.service(), NAMESPACE);
        let accounts: Api<ServiceAccount> = Api::default_namespaced(client.clone());
        let account = object(json!({"metadata": {"name": "default"}}));
        let options = PostParams::default();
        accounts.create(&options, &account).await.unwrap();
        let local = local::start_nodes(client.clone(), timings);
        local.synced().await;
        let missing = local.nodes().check_zones().await;
        assert!(matches!(missing, Err(NodeError::NoZones)), "{missing:?}");
        define_kinds(&client).await;
        let group = "node.katalyst.kubewharf.io";
        let kind = resource(
            group,
            "v1alpha1",
            "CustomNodeResource",
            "customnoderesources",
        );
        let reports = Api::all_with(client.clone(), &kind);
        eventually("the kind is served", || async {
            local.nodes().check_zones().await
        })
        .await;
        Self {
            client,
            local,
            reports,
        }
    }

    async fn node(&self, numa: &str) {
        let shape = Shape {
            numa: Some(numa.parse().unwrap()),
            ..Shape::demo(0, 1)
        };
        self.local.nodes().add(&shape).await.unwrap();
    }

    async fn annotate(&self, value: Value) {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let fields = json!({"metadata": {"annotations": {NUMA: value}}});
        let patch = Patch::Merge(&fields);
        let options = PatchParams::default();
        nodes.patch("node-001", &options, &patch).await.unwrap();
    }

    /// The zones of the first node with the pods in them: `0: a/uid`.
    async fn zones(&self) -> Option<String> {
        self.zones_of("node-001").await
    }

    async fn zones_of(&self, node: &str) -> Option<String> {
        let report = self.reports.get_opt(node).await.unwrap()?;
        let sockets = report.data["status"]["topologyZone"].as_array()?.clone();
        let children = sockets.iter().flat_map(|it| it["children"].as_array());
        let zones = children.flatten().map(|zone| {
            let pods = zone["allocations"].as_array().into_iter().flatten();
            let pods = pods.map(|it| it["consumer"].as_str().unwrap().to_owned());
            let pods: Vec<String> = pods.collect();
            format!("{}:{}", zone["name"].as_str().unwrap(), pods.join("+"))
        });
        Some(zones.collect::<Vec<_>>().join(" "))
    }

    async fn reach(&self, want: Option<&str>) {
        eventually(&format!("the zones are {want:?}"), || async {
            let found = self.zones().await;
            match found.as_deref() == want {
                true => Ok(()),
                false => Err(found),
            }
        })
        .await;
    }

    /// A dedicated pod that is bound with these zones; returns its uid.
    async fn pod(&self, name: &str, zones: &str) -> String {
        let pods: Api<Pod> = Api::default_namespaced(self.client.clone());
        let pod = object(json!({
            "metadata": {"name": name, "annotations": {
                "katalyst.kubewharf.io/qos_level": "dedicated_cores",
                "katalyst.kubewharf.io/memory_enhancement": r#"{"numa_binding": "true"}"#,
            }},
            "spec": {"containers": [
                {"name": "main", "image": "app:1", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}},
            ]},
        }));
        let options = PostParams::default();
        let pod: Pod = pods.create(&options, &pod).await.unwrap();
        let binding: Value = json!({
            "apiVersion": "v1", "kind": "Binding",
            "metadata": {"name": name, "annotations": {"tidepool.io/numa-zones": zones}},
            "target": {"kind": "Node", "name": "node-001"},
        });
        let _: Value = pods
            .create_subresource("binding", name, &options, &binding)
            .await
            .unwrap();
        pod.uid().unwrap()
    }

    /// Deletes the definition with all reports, and defines the kind again.
    async fn define_anew(&self) {
        let name = "customnoderesources.node.katalyst.kubewharf.io";
        let options = DeleteParams::default();
        definitions(&self.client)
            .delete(name, &options)
            .await
            .unwrap();
        eventually("the definition is gone", || async {
            match definitions(&self.client).get_opt(name).await.unwrap() {
                None => Ok(()),
                Some(found) => Err(found),
            }
        })
        .await;
        define_kinds(&self.client).await;
        eventually("the kind is served", || async {
            self.local.nodes().check_zones().await
        })
        .await;
    }
}

#[tokio::test]
async fn zones_are_reported_with_their_pods() {
    let cluster = Zoned::start().await;
    cluster.node("1x2").await;
    cluster.reach(Some("0: 1:")).await;
    let report = cluster.reports.get("node-001").await.unwrap();
    let owners = report.owner_references();
    assert_eq!((&*owners[0].kind, &*owners[0].name), ("Node", "node-001"));
    let zone = &report.data["status"]["topologyZone"][0]["children"][1];
    assert_eq!(
        zone["resources"]["allocatable"],
        json!({"cpu": "7800m", "memory": "32256Mi"})
    );

    let uid = cluster.pod("search", "1").await;
    cluster
        .reach(Some(&format!("0: 1:default/search/{uid}")))
        .await;
    // A younger pod does not get the zone of an older one.
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    cluster.pod("late", "1").await;
    let other = cluster.pod("other", "0").await;
    cluster
        .reach(Some(&format!(
            "0:default/other/{other} 1:default/search/{uid}"
        )))
        .await;
    let pods: Api<Pod> = Api::default_namespaced(cluster.client.clone());
    let now = DeleteParams::default().grace_period(0);
    for name in ["search", "late"] {
        pods.delete(name, &now).await.unwrap();
    }
    cluster
        .reach(Some(&format!("0:default/other/{other} 1:")))
        .await;
    // A report that was deleted comes back.
    let options = DeleteParams::default();
    cluster.reports.delete("node-001", &options).await.unwrap();
    cluster
        .reach(Some(&format!("0:default/other/{other} 1:")))
        .await;
    cluster.local.stop().await;
}

#[tokio::test]
async fn zones_follow_the_annotation_of_the_node() {
    let cluster = Zoned::start().await;
    cluster.node("1x1").await;
    cluster.reach(Some("0:")).await;
    cluster.annotate(json!("2x1")).await;
    cluster.reach(Some("0: 1:")).await;
    cluster.annotate(json!("two")).await;
    let events: Api<Event> = Api::all(cluster.client.clone());
    eventually("the invalid annotation is reported", || async {
        let all = events.list(&ListParams::default()).await.unwrap();
        let messages = all.items.into_iter().filter_map(|event| event.message);
        let messages: Vec<String> = messages.collect();
        let want = "ignoring invalid annotation tidepool.io/numa: `two` is not SOCKETSxZONES, such as 2x2, with at most 64 zones";
        match messages.iter().any(|message| message == want) {
            true => Ok(()),
            false => Err(messages),
        }
    })
    .await;
    assert_eq!(cluster.zones().await.as_deref(), Some("0: 1:"));
    cluster.annotate(Value::Null).await;
    cluster.reach(None).await;
    cluster.local.stop().await;
}

#[tokio::test]
async fn zones_are_reported_again_after_the_kind_was_defined_anew() {
    // An unchanged report is written no sooner.
    let timings = Timings {
        node_status: Duration::from_secs(60),
        ..short()
    };
    let zoned = Zoned::start_with(timings).await;
    zoned.node("1x2").await;
    zoned.reach(Some("0: 1:")).await;
    zoned.define_anew().await;
    zoned.reach(Some("0: 1:")).await;
}

/// The controllers make a report without zones for every node.
#[tokio::test]
async fn zones_are_reported_again_where_other_reports_came_first() {
    let nodes = ["node-001", "node-002", "node-003"];
    for (case, with_zones) in [
        ("no report has zones", &[][..]),
        ("one node was faster", &nodes[..1]),
        ("two were", &nodes[1..]),
    ] {
        // An unchanged report is written no sooner.
        let timings = Timings {
            node_status: Duration::from_secs(60),
            ..short()
        };
        let zoned = Zoned::start_with(timings).await;
        for number in 0..nodes.len() {
            let shape = Shape {
                numa: Some("1x2".parse().unwrap()),
                ..Shape::demo(number, nodes.len())
            };
            zoned.local.nodes().add(&shape).await.unwrap();
        }
        let all_have_zones = || async {
            for node in nodes {
                let found = zoned.zones_of(node).await;
                if found.as_deref() != Some("0: 1:") {
                    return Err((case, node, found));
                }
            }
            Ok(())
        };
        eventually("all nodes have zones", all_have_zones).await;
        let status = zoned.reports.get("node-001").await.unwrap().data["status"].take();
        zoned.define_anew().await;
        for node in nodes {
            let report = object(json!({
                "apiVersion": "node.katalyst.kubewharf.io/v1alpha1", "kind": "CustomNodeResource",
                "metadata": {"name": node}, "spec": {},
            }));
            let options = PostParams::default();
            match zoned.reports.create(&options, &report).await {
                // The node itself was even faster.
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                created => drop(created.unwrap()),
            }
            if with_zones.contains(&node) {
                let patch = Patch::Merge(json!({"status": status}));
                let options = PatchParams::default();
                let patched = zoned.reports.patch_status(node, &options, &patch).await;
                patched.unwrap();
            }
        }
        eventually("all nodes have zones again", all_have_zones).await;
    }
}
