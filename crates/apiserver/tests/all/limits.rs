//! A LimitRange takes effect with its creation, and every change of it at once.

use serde_json::{Value, json};

use crate::client::{Client, PODS};

const RANGES: &str = "/api/v1/namespaces/default/limitranges";

fn pod(name: &str, resources: &Value) -> Value {
    json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i", "resources": resources}]}})
}

fn amounts(cpu: &str, memory: &str) -> Value {
    json!({"cpu": cpu, "memory": memory})
}

fn range(min: &Value, max: &Value) -> Value {
    let limits = json!([{
        "type": "Container", "min": min, "max": max,
        "default": amounts("500m", "500Mi"), "defaultRequest": amounts("100m", "200Mi"),
    }]);
    json!({"metadata": {"name": "l"}, "spec": {"limits": limits}})
}

#[tokio::test]
async fn limits_hold_from_creation_to_deletion() {
    let client = Client::new();
    let max = amounts("500m", "500Mi");
    let created = range(&amounts("50m", "100Mi"), &max);
    client.post(RANGES, created).await.expect(201);
    // (the pod's resources, what is stored)
    for (name, given, want) in [
        (
            "none",
            json!({}),
            json!({"limits": amounts("500m", "500Mi"), "requests": amounts("100m", "200Mi")}),
        ),
        (
            // A limit is also the request.
            "partial",
            json!({"requests": {"memory": "150Mi"}, "limits": {"cpu": "300m"}}),
            json!({"limits": amounts("300m", "500Mi"), "requests": {"memory": "150Mi", "cpu": "300m"}}),
        ),
    ] {
        let made = client.post(PODS, pod(name, &given)).await.expect(201);
        assert_eq!(made.body["spec"]["containers"][0]["resources"], want);
        assert_eq!(made.body["status"]["qosClass"], "Burstable");
    }
    let small = json!({"requests": amounts("10m", "150Mi")});
    let large = json!({"requests": amounts("600m", "150Mi"), "limits": amounts("600m", "150Mi")});
    let refused = client.post(PODS, pod("small", &small)).await.expect(403);
    assert_eq!(
        refused.message(),
        "pods \"small\" is forbidden: minimum cpu usage per Container is 50m, but request is 10m"
    );
    client.post(PODS, pod("large", &large)).await.expect(403);

    let lower = range(&amounts("9m", "49Mi"), &max);
    let changed = client.put(&format!("{RANGES}/l"), lower).await;
    changed.expect(200);
    client.post(PODS, pod("small", &small)).await.expect(201);
    client.post(PODS, pod("large", &large)).await.expect(403);

    let path = format!("{RANGES}/l");
    client.delete(&path, Value::Null).await.expect(200);
    client.post(PODS, pod("large", &large)).await.expect(201);
}
