//! Settings from the ConfigMap and from a file, changed while the agent runs.

use agent::agent::Agent;
use agent::settings::SettingsSource;
use serde_json::json;

use crate::fake::FakeNode;
use crate::support::{TestCluster, eventually, text};

const MAP: &str = "/api/v1/namespaces/tidepool-system/configmaps";
const INVALID: &str = "tidepool_agent_settings_invalid{} 1.0";
const LENDING: &str = "tidepool_agent_condition{type=\"Lending\"} 1.0";
const NOT_LENDING: &str = "tidepool_agent_condition{type=\"Lending\"} 0.0";

fn node() -> FakeNode {
    let node = FakeNode::new();
    node.write("cgroup/cgroup.controllers", "");
    for group in ["kubepods", "kubepods/burstable", "kubepods/besteffort"] {
        node.set_group_v2(group, 1, 5000);
    }
    node
}

fn thresholds(enable: bool) -> String {
    json!({"clusterStrategy": {"enable": enable}}).to_string()
}

#[tokio::test]
async fn a_config_map_is_reloaded_and_the_last_valid_one_stays() {
    let node = node();
    let cluster = TestCluster::new().await;
    cluster.create_node("n1").await;
    let agent = Agent::start(cluster.client.clone(), node.options("n1")).unwrap();
    let shows = |line: &'static str| text(&agent).contains(line);
    eventually("the node lends without settings", || shows(LENDING)).await;
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "tidepool-colocation"},
        "data": {"resource-threshold-config": thresholds(false)},
    });
    cluster.create(MAP, &map).await;
    eventually("the settings switch lending off", || shows(NOT_LENDING)).await;
    let url = format!("{MAP}/tidepool-colocation");
    cluster
        .patch(
            &url,
            &json!({"data": {"resource-threshold-config": "{\"oops"}}),
        )
        .await;
    eventually("the settings are invalid", || shows(INVALID)).await;
    assert!(shows(NOT_LENDING), "the last valid ones stay");
    cluster.delete(&url).await;
    eventually("the node lends again", || shows(LENDING) && !shows(INVALID)).await;
}

#[tokio::test]
async fn a_file_is_reloaded_and_the_last_valid_one_stays() {
    let node = node();
    let cluster = TestCluster::new().await;
    cluster.create_node("n1").await;
    let file = |enable: bool| json!({"resource-threshold-config": thresholds(enable)}).to_string();
    node.write("settings.yaml", file(false));
    let mut options = node.options("n1");
    options.settings = SettingsSource::File(node.path("settings.yaml"));
    let agent = Agent::start(cluster.client.clone(), options).unwrap();
    let shows = |line: &'static str| text(&agent).contains(line);
    eventually("the settings switch lending off", || shows(NOT_LENDING)).await;
    node.remove("settings.yaml");
    eventually("the file is missing", || shows(INVALID)).await;
    assert!(shows(NOT_LENDING), "the last valid ones stay");
    node.write("settings.yaml", file(true));
    eventually("the node lends", || shows(LENDING) && !shows(INVALID)).await;
}
