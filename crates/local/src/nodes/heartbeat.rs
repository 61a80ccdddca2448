//! How a node shows that it lives: it renews its lease often, and repeats its status now and then.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::{
    api::{coordination::v1::Lease, core::v1::Node},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
};
use kube::Resource;
use serde_json::json;
use tokio::time::Instant;

use super::{Kubelets, is_silent, pod_cidr, shape};
use crate::{
    cache::Key,
    hash::fnv1a,
    queue::Next,
    requests::{Failure, Part, already_exists},
    world::NODE_LEASES,
};

impl Kubelets {
    pub(super) async fn update_node(&self, key: Key) -> Result<Next, Failure> {
        let Some(node) = self.world.nodes.get(&key) else {
            let mut memory = self.memory();
            memory.addresses.forget_node(&key.name);
            memory.renewed.remove(&key.name);
            return Ok(Next::Idle);
        };
        if is_silent(&node) || node.metadata.deletion_timestamp.is_some() {
            return Ok(Next::Idle);
        }
        // The lease first: a status that says ready, next to an old lease, would be doubted at once.
        let wait = self.renew_lease(&node, &key.name).await?;
        self.report(&node, &key.name).await?;
        Ok(Next::After(wait))
    }

    /// Renews the node's lease if it is time, and returns how long it then has.
    async fn renew_lease(&self, node: &Node, name: &str) -> Result<Duration, Failure> {
        let interval = self.world.timings.lease_renewal;
        let last = self.memory().renewed.get(name).copied();
        if let Some(last) = last
            && let left = interval.saturating_sub(last.elapsed())
            && !left.is_zero()
        {
            return Ok(left);
        }
        let now = MicroTime(Timestamp::now());
        let lease = ObjectMeta {
            namespace: Some(NODE_LEASES.into()),
            name: Some(name.into()),
            ..ObjectMeta::default()
        };
        let fields = json!({"spec": {"renewTime": now}});
        if self
            .world
            .requests
            .merge::<Lease>(&lease, Part::Object, fields)
            .await?
            .is_none()
        {
            self.create_lease(node, name, now).await?;
        }
        // Nodes that appeared together are spread over the interval from the second renewal on.
        let head_start = match last {
            None => interval.mul_f64(fraction(name)),
            Some(_) => Duration::ZERO,
        };
        let renewed = Instant::now()
            .checked_sub(head_start)
            .unwrap_or_else(Instant::now);
        self.memory().renewed.insert(name.to_owned(), renewed);
        Ok(interval.saturating_sub(head_start))
    }

    async fn create_lease(&self, node: &Node, name: &str, now: MicroTime) -> Result<(), Failure> {
        let lease = json!({
            "metadata": {"name": name, "ownerReferences": [node.owner_ref(&())]},
            "spec": {
                "holderIdentity": name,
                "leaseDurationSeconds": self.world.timings.node_grace.as_secs().max(1),
                "renewTime": now,
            },
        });
        match self
            .world
            .requests
            .create::<Lease>(Some(NODE_LEASES), &lease)
            .await
        {
            Err(error) if already_exists(&error) => Ok(()),
            result => Ok(result.map(drop)?),
        }
    }

    /// Writes what the node has to say that is not written yet, and now and then all of it.
    async fn report(&self, node: &Node, name: &str) -> Result<(), Failure> {
        let now = Timestamp::now();
        let place = self.memory().addresses.place(name);
        let mut wanted = shape::completed(node, &place, now);
        let requests = &self.world.requests;
        let cidr = pod_cidr(&wanted);
        if cidr != pod_cidr(node) {
            let fields = json!({"spec": {"podCIDR": cidr, "podCIDRs": [cidr]}});
            requests
                .strategic::<Node>(&node.metadata, Part::Object, fields)
                .await?;
        }
        let last = shape::last_report(node);
        let silent_for = last.and_then(|last| Duration::try_from(now.duration_since(last)).ok());
        if silent_for.is_none_or(|silence| silence >= self.world.timings.node_status) {
            wanted = shape::with_heartbeat(wanted, now);
        }
        if wanted.status != node.status {
            let fields = json!({"status": wanted.status});
            requests
                .strategic::<Node>(&node.metadata, Part::Status, fields)
                .await?;
        }
        Ok(())
    }
}

/// A number from 0 to 1 that belongs to the name.
fn fraction(name: &str) -> f64 {
    const PARTS: u32 = 1000;
    let part = fnv1a(name.as_bytes()) % u64::from(PARTS);
    f64::from(u32::try_from(part).unwrap_or(0)) / f64::from(PARTS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renewals_are_spread() {
        let parts: Vec<f64> = (0..1000)
            .map(|i| fraction(&format!("node-{i:04}")))
            .collect();
        for tenth in 0..10 {
            let range = f64::from(tenth) / 10.0..f64::from(tenth + 1) / 10.0;
            let count = parts.iter().filter(|part| range.contains(part)).count();
            assert!(
                (50..200).contains(&count),
                "{count} of 1000 nodes in {range:?}"
            );
        }
    }
}
