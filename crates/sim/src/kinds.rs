//! Lists of objects by kind. Nodes and pods have a form of their own; every other kind of the engine can be in a scenario
//! without being named here.

use std::fmt;
use std::marker::PhantomData;
use std::sync::LazyLock;

use api::parse::Manifest;
use api::wire::koordinator::NodeMetric;
use engine::cluster::kinds::{Key, Kind};
use serde::Deserialize;
use serde::de::{
    self, DeserializeOwned, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor,
};

use crate::simulation::key;

#[derive(Debug, Clone)]
pub(crate) struct Lists<N, P, O: Entry> {
    pub(crate) nodes: Vec<N>,
    pub(crate) pods: Vec<P>,
    /// The scheduler does not read them.
    pub(crate) node_metrics: Vec<O::Metric>,
    /// In the order of the engine's list of kinds.
    pub(crate) others: Vec<(Kind, Vec<O>)>,
}

impl<N, P, O: Entry> Default for Lists<N, P, O> {
    fn default() -> Self {
        Self {
            nodes: Vec::new(),
            pods: Vec::new(),
            node_metrics: Vec::new(),
            others: Vec::new(),
        }
    }
}

/// What a list has for each object.
pub(crate) trait Entry: Sized {
    /// Whether `pod` and `node` stand for lists of one.
    const HAS_SINGULAR: bool;
    /// What a list of NodeMetrics has.
    type Metric: fmt::Debug + Clone + DeserializeOwned;

    fn read<'de, D: Deserializer<'de>>(kind: Kind, from: D) -> Result<Self, D::Error>;
}

impl Entry for Manifest {
    const HAS_SINGULAR: bool = false;
    type Metric = NodeMetric;

    fn read<'de, D: Deserializer<'de>>(kind: Kind, from: D) -> Result<Self, D::Error> {
        Self::read(kind, from)
    }
}

/// The name of the object.
impl Entry for String {
    const HAS_SINGULAR: bool = true;
    type Metric = String;

    fn read<'de, D: Deserializer<'de>>(_: Kind, from: D) -> Result<Self, D::Error> {
        Self::deserialize(from)
    }
}

/// What the list of NodeMetrics is called in a scenario.
const NODE_METRICS: &str = "nodeMetrics";

static FIELDS: LazyLock<Vec<&str>> = LazyLock::new(|| {
    let kinds = Kind::ALL.iter().map(|kind| field(*kind));
    kinds.chain([NODE_METRICS]).collect()
});

/// What the list of a kind is called in a scenario. Some names are shorter than the API's.
pub(crate) fn field(kind: Kind) -> &'static str {
    match kind {
        Kind::PodDisruptionBudget => "disruptionBudgets",
        Kind::PersistentVolume => "volumes",
        Kind::PersistentVolumeClaim => "claims",
        Kind::CsiStorageCapacity => "storageCapacities",
        other => other.plural(),
    }
}

/// The key of an object by its name; without a namespace in front it is in `default` if its kind has namespaces.
pub(crate) fn key_of(kind: Kind, name: &str) -> Key {
    if !kind.is_namespaced() {
        return name.into();
    }
    let full = key(name);
    let (namespace, name) = full.split_once('/').unwrap_or_default();
    Key::new(namespace, name)
}

impl<'de, N, P, O> Deserialize<'de> for Lists<N, P, O>
where
    N: Deserialize<'de>,
    P: Deserialize<'de>,
    O: Entry,
{
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields<N, P, O>(PhantomData<(N, P, O)>);
        impl<'de, N, P, O> Visitor<'de> for Fields<N, P, O>
        where
            N: Deserialize<'de>,
            P: Deserialize<'de>,
            O: Entry,
        {
            type Value = Lists<N, P, O>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("lists of objects by kind")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut lists = Lists::default();
                while let Some(field) = map.next_key_seed(FieldOf::<O>(PhantomData))? {
                    match field {
                        Field::List(Kind::Node) => lists.nodes.append(&mut map.next_value()?),
                        Field::List(Kind::Pod) => lists.pods.append(&mut map.next_value()?),
                        Field::OneNode => lists.nodes.push(map.next_value()?),
                        Field::NodeMetrics => {
                            lists.node_metrics.append(&mut map.next_value()?);
                        }
                        Field::OnePod => lists.pods.push(map.next_value()?),
                        Field::List(kind) => {
                            let list = map.next_value_seed(List::of(kind))?;
                            lists.others.push((kind, list));
                        }
                    }
                }
                lists.others.sort_by_key(|(kind, _)| *kind);
                Ok(lists)
            }
        }
        deserializer.deserialize_struct("Lists", &FIELDS, Fields(PhantomData))
    }
}

enum Field {
    List(Kind),
    NodeMetrics,
    OneNode,
    OnePod,
}

/// Reads the name of a field, so that an unknown name is reported at its own place.
struct FieldOf<O>(PhantomData<O>);

impl<'de, O: Entry> DeserializeSeed<'de> for FieldOf<O> {
    type Value = Field;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Field, D::Error> {
        let name = String::deserialize(deserializer)?;
        match &name[..] {
            "node" if O::HAS_SINGULAR => Ok(Field::OneNode),
            "pod" if O::HAS_SINGULAR => Ok(Field::OnePod),
            NODE_METRICS => Ok(Field::NodeMetrics),
            other => {
                let kind = Kind::ALL.iter().find(|kind| field(**kind) == other);
                kind.map(|kind| Field::List(*kind))
                    .ok_or_else(|| de::Error::unknown_field(other, &FIELDS))
            }
        }
    }
}

/// Reads a list, and each entry of it.
struct List<O>(Kind, PhantomData<O>);

impl<O> List<O> {
    fn of(kind: Kind) -> Self {
        Self(kind, PhantomData)
    }
}

impl<'de, O: Entry> DeserializeSeed<'de> for List<O> {
    type Value = Vec<O>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Vec<O>, D::Error> {
        from.deserialize_seq(self)
    }
}

impl<'de, O: Entry> Visitor<'de> for List<O> {
    type Value = Vec<O>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<O>, A::Error> {
        struct One<O>(Kind, PhantomData<O>);
        impl<'de, O: Entry> DeserializeSeed<'de> for One<O> {
            type Value = O;

            fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<O, D::Error> {
                O::read(self.0, from)
            }
        }
        let mut all = Vec::new();
        while let Some(one) = seq.next_element_seed(One(self.0, PhantomData))? {
            all.push(one);
        }
        Ok(all)
    }
}
