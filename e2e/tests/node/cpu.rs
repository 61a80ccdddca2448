//! CPU of reclaimed pods goes back to online pods that wake.

use std::time::Duration;

use e2e::node::HostNode;
use e2e::{Api, eventually};
use serde_json::json;

use crate::groups::{Groups, burner, calm, cpus, measure, mid_ls, mid_ls_labels, wake};
use crate::real_node::{LIMIT, uid, wait_until_running};

/// (a) and (f): a reclaimed pod uses what is left; online and Mid+LS pods that wake get their CPU back within two seconds; a
/// BestEffort pod that is not the agent's keeps its CPU.
pub(crate) fn cpu_goes_to_online_pods(api: &Api, node: &HostNode, groups: &Groups) {
    let reclaimed = json!({
        "resource.katalyst.kubewharf.io/reclaimed_millicpu": "4000",
        "resource.katalyst.kubewharf.io/reclaimed_memory": "64Mi",
    });
    let mut pods = [
        burner(
            node,
            "lent",
            4,
            json!({"requests": reclaimed, "limits": reclaimed}),
        ),
        burner(node, "online", 4, json!({"requests": {"cpu": "500m"}})),
        burner(node, "midls", 1, mid_ls(1000)),
        burner(node, "kube-proxy", 1, json!({})),
    ];
    pods[2]["metadata"]["labels"] = mid_ls_labels();
    for pod in &pods {
        api.create(pod).unwrap();
    }
    for pod in &pods {
        wait_until_running(api, "default", pod["metadata"]["name"].as_str().unwrap());
    }
    let group = |directory: &str, name: &str| format!("kubepods/{directory}/pod{}", uid(api, name));
    let lent = group("besteffort", "lent");
    let (online, midls) = (group("burstable", "online"), group("burstable", "midls"));
    let proxy = group("besteffort", "kube-proxy");

    wake(node, "lent");
    eventually(
        "the reclaimed pod uses what the threshold leaves",
        LIMIT,
        || {
            let names = [&*lent, "kubepods", "kubepods/besteffort"];
            let (used, machine) = measure(groups, &names, Duration::from_secs(3));
            let (lent, others) = (used[0], machine - used[2]);
            let left = 0.65 * cpus() - others;
            let found = format!("it uses {lent:.2} of {left:.2} cores, others {others:.2}");
            (lent >= 0.9 * left && lent > 0.05)
                .then_some(())
                .ok_or(found)
        },
    );

    let shares = groups.values("kubepods/burstable").unwrap().0;
    let (besteffort, ..) = groups.values("kubepods/besteffort").unwrap();
    for (name, group, wants, weight, kept) in [
        ("online", &online, cpus(), shares, 0.0),
        // Both directories weigh the same, as on a node without native requests of Burstable pods. Best-effort pods keep one CPU.
        ("midls", &midls, 1.0, besteffort, 1.0),
    ] {
        let mut found = Vec::new();
        // Another process of the machine may disturb one measurement.
        let has_its_cpu = (0..5).any(|_| {
            // The kubelet writes its own value at times.
            groups.set_shares("kubepods/burstable", weight);
            wake(node, name);
            std::thread::sleep(Duration::from_secs(2));
            let (used, machine) = measure(groups, &[group, &lent], Duration::from_secs(2));
            calm(node, name);
            let rest = machine - used[0] - used[1];
            let possible = wants.min(cpus() - rest - used[1].min(kept));
            found.push(format!(
                "{:.2} of {possible:.2} cores, lent {:.2}",
                used[0], used[1]
            ));
            used[0] >= 0.9 * possible
        });
        assert!(has_its_cpu, "{name}: {found:?}");
    }
    groups.set_shares("kubepods/burstable", shares);

    others_keep_their_cpu(node, groups, &lent, &proxy);
    for name in ["lent", "kube-proxy"] {
        calm(node, name);
    }
}

/// While an online pod needs all CPUs, reclaimed pods are confined to one; a BestEffort pod that is not the agent's is not.
fn others_keep_their_cpu(node: &HostNode, groups: &Groups, lent: &str, proxy: &str) {
    wake(node, "kube-proxy");
    let mut found = Vec::new();
    // Another process of the machine may disturb one measurement.
    let keeps_its_cpu = (0..5).any(|_| {
        wake(node, "online");
        eventually("the reclaimed pod is confined to one CPU", LIMIT, || {
            let set = groups.cpus(lent).unwrap_or_default();
            (set.parse::<u32>().is_ok()).then_some(()).ok_or(set)
        });
        let all = groups.cpus("kubepods");
        assert_eq!(groups.cpus(proxy), all);
        assert_eq!(groups.cpus("kubepods/besteffort"), all);
        let (_, quota, _) = groups.values("kubepods/besteffort").unwrap();
        assert_eq!(quota, None);
        calm(node, "online");
        let (used, _) = measure(groups, &[proxy, lent], Duration::from_secs(3));
        found.push(format!(
            "kube-proxy uses {:.2}, lent {:.2} cores",
            used[0], used[1]
        ));
        // Reclaimed pods weigh more, but each of the two has a CPU: half of what both get, or a whole CPU.
        used[0] >= (0.4 * (used[0] + used[1])).min(0.9)
    });
    assert!(keeps_its_cpu, "{found:?}");
}
