//! The heartbeats of a node: the kubelet renews its lease often and writes its status now and then.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::{
    api::{coordination::v1::Lease, core::v1::Node},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
};
use kube::Resource;
use reconcile::{Error, Key, Part, Requeue, fnv1a, is_already_exists};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{Kubelets, is_silent, pod_cidr, shape};
use crate::context::NODE_LEASES;

impl Kubelets {
    pub(super) async fn update_node(&self, key: Key) -> Result<Requeue, Error> {
        let Some(node) = self.context.nodes.get(&key).filter(|node| self.owns(node)) else {
            let mut memory = self.memory();
            memory.addresses.forget_node(&key.name);
            memory.renewed.remove(&key.name);
            memory.extended.remove(&key.name);
            return Ok(Requeue::OnChange);
        };
        if is_silent(&node) || node.metadata.deletion_timestamp.is_some() {
            return Ok(Requeue::OnChange);
        }
        // The lease first: next to an old lease, the node would become not ready again at once.
        let wait = self.renew_lease(&node, &key.name).await?;
        self.report(&node, &key.name).await?;
        Ok(Requeue::After(wait))
    }

    /// Renews the node's lease if it is due, and returns the time until the next renewal.
    async fn renew_lease(&self, node: &Node, name: &str) -> Result<Duration, Error> {
        let interval = self.context.timings.lease_renewal;
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
            .context
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

    async fn create_lease(&self, node: &Node, name: &str, now: MicroTime) -> Result<(), Error> {
        let lease = json!({
            "metadata": {"name": name, "ownerReferences": [node.owner_ref(&())]},
            "spec": {
                "holderIdentity": name,
                "leaseDurationSeconds": self.context.timings.node_grace.as_secs().max(1),
                "renewTime": now,
            },
        });
        match self
            .context
            .requests
            .create::<Lease>(Some(NODE_LEASES), &lease)
            .await
        {
            Err(error) if is_already_exists(&error) => Ok(()),
            result => Ok(result.map(drop)?),
        }
    }

    /// Writes what is missing in the status of the node, and now and then all of it.
    async fn report(&self, node: &Node, name: &str) -> Result<(), Error> {
        let now = Timestamp::now();
        let mut wanted = shape::completed(node, &self.network(name), now);
        let requests = &self.context.requests;
        let cidr = pod_cidr(&wanted);
        if cidr != pod_cidr(node) {
            let fields = json!({"spec": {"podCIDR": cidr, "podCIDRs": [cidr]}});
            requests
                .strategic::<Node>(&node.metadata, Part::Object, fields)
                .await?;
        }
        let last = shape::last_report(node);
        let silent_for = last.and_then(|last| Duration::try_from(now.duration_since(last)).ok());
        if silent_for.is_none_or(|silence| silence >= self.context.timings.node_status) {
            wanted = shape::with_heartbeat(wanted, now);
        }
        let extended = shape::extended(node);
        let before = self.memory().extended.get(name).cloned();
        let before = before.as_ref().unwrap_or(&extended);
        let removed = shape::follow_capacity(&mut wanted, before);
        if wanted.status != node.status {
            let mut fields = json!({"status": wanted.status});
            for resource in removed {
                fields["status"]["allocatable"][resource] = Value::Null;
            }
            requests
                .strategic::<Node>(&node.metadata, Part::Status, fields)
                .await?;
        }
        self.memory().extended.insert(name.to_owned(), extended);
        Ok(())
    }
}

/// A number from 0 to 1, derived from the name.
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
