//! The Lease object: reads it, and changes it without losing fields of others.

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::{Annotations, Election};
use api::contracts::SERVER;
use api::http::Leader;

/// A Lease that was read or written, with all its fields.
#[derive(Debug, Clone)]
pub(super) struct Record {
    object: Value,
    pub(super) holder: Holder,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Holder {
    /// Empty for a released Lease.
    pub(super) identity: String,
    /// `spec.leaseDurationSeconds`.
    pub(super) duration: Option<Duration>,
}

impl Record {
    pub(super) fn read(object: Value) -> Self {
        let spec = &object["spec"];
        let seconds = spec["leaseDurationSeconds"].as_u64();
        let holder = Holder {
            identity: text(&spec["holderIdentity"]),
            duration: seconds.map(Duration::from_secs),
        };
        Self { object, holder }
    }

    /// The object for a Lease that does not exist.
    pub(super) fn create(
        election: &Election,
        annotations: &Annotations,
        now: jiff::Timestamp,
    ) -> Value {
        let mut object = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": election.name, "namespace": election.namespace},
            "spec": {"leaseTransitions": 0, "acquireTime": micros(now)},
        });
        hold(&mut object, election, annotations, now);
        object
    }

    /// The object with this process as its holder.
    pub(super) fn taken(
        &self,
        election: &Election,
        annotations: &Annotations,
        now: jiff::Timestamp,
    ) -> Value {
        let mut object = self.object.clone();
        if self.holder.identity != election.identity {
            let transitions = object["spec"]["leaseTransitions"].as_i64().unwrap_or(0);
            field(&mut object, "spec").insert("leaseTransitions".into(), (transitions + 1).into());
            field(&mut object, "spec").insert("acquireTime".into(), micros(now).into());
        }
        hold(&mut object, election, annotations, now);
        object
    }

    /// The object without a holder, free to be taken at once.
    pub(super) fn released(&self, now: jiff::Timestamp) -> Value {
        let mut object = self.object.clone();
        let spec = field(&mut object, "spec");
        spec.insert("holderIdentity".into(), "".into());
        spec.insert("leaseDurationSeconds".into(), 1.into());
        spec.insert("renewTime".into(), micros(now).into());
        spec.insert("acquireTime".into(), micros(now).into());
        annotate(&mut object, &Annotations::default());
        object
    }

    /// Whether the Lease was not written between the two.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.object["spec"] == other.object["spec"] && self.uid() == other.uid()
    }

    /// Whether it has a resource version, and can be updated without reading it again.
    pub(super) fn is_current(&self) -> bool {
        self.object["metadata"]["resourceVersion"].is_string()
    }

    pub(super) fn forget_version(&mut self) {
        field(&mut self.object, "metadata").remove("resourceVersion");
    }

    pub(super) fn uid(&self) -> &str {
        self.object["metadata"]["uid"].as_str().unwrap_or_default()
    }

    pub(super) fn leader(&self) -> Option<Leader> {
        let server = self.object["metadata"]["annotations"][SERVER].as_str();
        let identity = self.holder.identity.clone();
        (!identity.is_empty()).then(|| Leader {
            identity,
            server: server.map(str::to_owned),
        })
    }
}

fn hold(object: &mut Value, election: &Election, annotations: &Annotations, now: jiff::Timestamp) {
    let spec = field(object, "spec");
    spec.insert("holderIdentity".into(), election.identity.clone().into());
    // Rounded up: other candidates must not see it expire early.
    let seconds = election.lease_duration.as_millis().div_ceil(1_000);
    let seconds = u64::try_from(seconds).unwrap_or(u64::MAX);
    spec.insert("leaseDurationSeconds".into(), seconds.into());
    spec.insert("renewTime".into(), micros(now).into());
    annotate(object, annotations);
}

fn annotate(object: &mut Value, ours: &Annotations) {
    let annotations = field(field_of(object, "metadata"), "annotations");
    for (name, value) in ours.values() {
        match value {
            Some(value) => annotations.insert(name.into(), value.into()),
            None => annotations.remove(name),
        };
    }
}

fn field_of<'a>(object: &'a mut Value, name: &str) -> &'a mut Value {
    if !object.is_object() {
        *object = json!({});
    }
    &mut object[name]
}

/// A field that is a map; another value there is replaced.
fn field<'a>(object: &'a mut Value, name: &str) -> &'a mut Map<String, Value> {
    let value = field_of(object, name);
    if !value.is_object() {
        *value = json!({});
    }
    match value {
        Value::Object(map) => map,
        // It was just made one.
        _ => unreachable!("a map was put there"),
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

pub(super) fn micros(time: jiff::Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
}

#[cfg(test)]
mod tests {
    use api::contracts::SCHEDULER_NAMES;

    use super::*;

    fn election() -> Election {
        Election {
            namespace: "kube-system".into(),
            name: "tidepool-scheduler".into(),
            identity: "me".into(),
            lease_duration: Duration::from_millis(1_500),
            renew_deadline: Duration::from_secs(1),
            retry_period: Duration::from_millis(200),
            sync_deadline: Duration::from_secs(60),
        }
    }

    fn now() -> jiff::Timestamp {
        jiff::Timestamp::from_second(1_767_323_045).unwrap()
    }

    #[test]
    fn taking_counts_transitions_and_keeps_other_fields() {
        let theirs = Record::read(json!({
            "metadata": {"resourceVersion": "7", "uid": "u", "labels": {"a": "b"}, "annotations": {"c": "d"}},
            "spec": {"holderIdentity": "them", "leaseDurationSeconds": 15, "leaseTransitions": 3, "strategy": "x"},
        }));
        assert_eq!(theirs.holder.duration, Some(Duration::from_secs(15)));
        let ours = Annotations::default().with_scheduler_names(&["x".into(), "y".into()]);
        let taken = theirs.taken(&election(), &ours, now());
        assert_eq!(taken["metadata"]["resourceVersion"], "7");
        assert_eq!(taken["metadata"]["labels"]["a"], "b");
        assert_eq!(
            taken["metadata"]["annotations"],
            json!({"c": "d", SCHEDULER_NAMES: "x,y"})
        );
        assert_eq!(taken["spec"]["holderIdentity"], "me");
        assert_eq!(taken["spec"]["leaseTransitions"], 4);
        assert_eq!(taken["spec"]["leaseDurationSeconds"], 2);
        assert_eq!(taken["spec"]["strategy"], "x");
        let ours = Record::read(taken);
        let renewed = ours.taken(&election(), &Annotations::default(), now());
        assert_eq!(renewed["spec"]["leaseTransitions"], 4);

        let released = ours.released(now());
        assert_eq!(released["spec"]["holderIdentity"], "");
        assert_eq!(released["spec"]["leaseDurationSeconds"], 1);
        assert_eq!(released["metadata"]["annotations"], json!({"c": "d"}));
        assert_eq!(Record::read(released).leader(), None);
    }

    #[test]
    fn an_invalid_lease_is_free() {
        for object in [json!(null), json!([]), json!({"spec": 1, "metadata": "x"})] {
            let record = Record::read(object);
            assert_eq!(record.holder, Holder::default());
            assert_eq!(
                record.taken(&election(), &Annotations::default(), now())["spec"]["holderIdentity"],
                "me"
            );
        }
    }
}
