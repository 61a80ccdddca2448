//! Names of resources and integer amounts of them.

use super::Name;
use super::names::is_qualified_name;
use super::quantity::Quantity;

/// What can be requested and accounted. Names that no account exists for (`storage`) are no resources here.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Resource {
    /// In thousandths of a core.
    Cpu,
    /// In bytes.
    Memory,
    /// In bytes.
    EphemeralStorage,
    Pods,
    /// Extended resources, huge pages, attachable volumes, and every tier of lent capacity.
    Scalar(Name),
}

impl Resource {
    /// `None` for a name that Kubernetes leaves out of all integer vectors.
    pub fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "cpu" => Self::Cpu,
            "memory" => Self::Memory,
            "ephemeral-storage" => Self::EphemeralStorage,
            "pods" => Self::Pods,
            _ if is_scalar(name) => Self::Scalar(name.into()),
            _ => return None,
        })
    }

    pub fn name(&self) -> &str {
        match self {
            Self::Cpu => "cpu",
            Self::Memory => "memory",
            Self::EphemeralStorage => "ephemeral-storage",
            Self::Pods => "pods",
            Self::Scalar(name) => name,
        }
    }

    /// Not one of Kubernetes' own: vendors' resources, and the only ones a profile may ignore.
    pub fn is_extended(&self) -> bool {
        matches!(self, Self::Scalar(name) if is_extended(name))
    }

    /// cpu, memory and huge pages may be given for the pod as a whole.
    pub fn is_pod_level(&self) -> bool {
        match self {
            Self::Cpu | Self::Memory => true,
            Self::Scalar(name) => name.starts_with("hugepages-"),
            _ => false,
        }
    }

    /// The integer by which this resource is accounted: thousandths for cpu, whole units for the rest, rounded up.
    pub fn integer(&self, quantity: Quantity) -> i64 {
        if *self == Self::Cpu {
            quantity.milli()
        } else {
            quantity.units()
        }
    }

    /// An integer amount as Kubernetes would write it: exactly, bytes by powers of two.
    pub fn quantity(&self, amount: i64) -> String {
        match self {
            Self::Cpu => decimal(amount, true),
            Self::Memory | Self::EphemeralStorage => binary(amount),
            Self::Scalar(name) if name.starts_with("hugepages-") || name.ends_with("memory") => {
                binary(amount)
            }
            Self::Pods | Self::Scalar(_) => decimal(amount, false),
        }
    }
}

/// The largest suffix that leaves a whole number.
fn decimal(amount: i64, milli: bool) -> String {
    let suffixes = ["m", "", "k", "M", "G", "T", "P", "E"];
    scaled(amount, 1000, &suffixes[usize::from(!milli)..])
}

fn binary(amount: i64) -> String {
    if amount.unsigned_abs() < 1024 {
        return decimal(amount, false);
    }
    scaled(amount, 1024, &["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"])
}

fn scaled(mut amount: i64, base: i64, suffixes: &[&str]) -> String {
    let mut suffixes = suffixes.iter();
    let mut suffix = suffixes.next().copied().unwrap_or("");
    if amount == 0 {
        return "0".to_owned();
    }
    while amount % base == 0
        && let Some(next) = suffixes.next()
    {
        amount /= base;
        suffix = next;
    }
    format!("{amount}{suffix}")
}

fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

fn is_extended(name: &str) -> bool {
    !is_native(name)
        && !name.starts_with("requests.")
        && is_qualified_name(&format!("requests.{name}"))
}

fn is_scalar(name: &str) -> bool {
    is_extended(name)
        || name.starts_with("hugepages-")
        || name.contains("kubernetes.io/")
        || name.starts_with("attachable-volumes-")
}

/// Integer amounts by resource, in the order of [`Resource`]; a key may be present with 0.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Amounts(Vec<(Resource, i64)>);

impl Amounts {
    /// 0 for what is not there.
    pub fn get(&self, resource: &Resource) -> i64 {
        self.position(resource).map_or(0, |i| self.0[i].1)
    }

    pub fn contains(&self, resource: &Resource) -> bool {
        self.position(resource).is_ok()
    }

    pub fn set(&mut self, resource: Resource, amount: i64) {
        match self.position(&resource) {
            Ok(i) => self.0[i].1 = amount,
            Err(i) => self.0.insert(i, (resource, amount)),
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = (&Resource, i64)> {
        self.0.iter().map(|(resource, amount)| (resource, *amount))
    }

    fn position(&self, resource: &Resource) -> Result<usize, usize> {
        self.0.binary_search_by(|(known, _)| known.cmp(resource))
    }
}

impl serde::Serialize for Amounts {
    /// Names with quantities.
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(
            self.iter()
                .map(|(resource, amount)| (resource.name(), resource.quantity(amount))),
        )
    }
}

impl FromIterator<(Resource, i64)> for Amounts {
    /// The last amount of a repeated resource wins.
    fn from_iter<I: IntoIterator<Item = (Resource, i64)>>(amounts: I) -> Self {
        let amounts = amounts.into_iter();
        // A Vec that grows has room for four, and most pods ask for two.
        let mut all = Self(Vec::with_capacity(amounts.size_hint().0));
        for (resource, amount) in amounts {
            all.set(resource, amount);
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_written_as_kubernetes_writes_them() {
        for (name, amount, want) in [
            ("cpu", 0, "0"),
            ("cpu", 100, "100m"),
            ("cpu", 1_500, "1500m"),
            ("cpu", 4_000, "4"),
            ("cpu", 12_000_000, "12k"),
            ("cpu", -250, "-250m"),
            ("pods", 110, "110"),
            ("memory", 1_000, "1k"),
            ("memory", 1_000_000, "1000000"),
            ("memory", 209_715_200, "200Mi"),
            ("memory", 1_610_612_736, "1536Mi"),
            ("memory", i64::MAX, "9223372036854775807"),
            ("ephemeral-storage", 1 << 62, "4Ei"),
            ("hugepages-2Mi", 1 << 30, "1Gi"),
            ("example.com/gpu", 3, "3"),
            (
                "resource.katalyst.kubewharf.io/reclaimed_millicpu",
                40_000,
                "40k",
            ),
            (
                "resource.katalyst.kubewharf.io/reclaimed_memory",
                107_374_182_400,
                "100Gi",
            ),
        ] {
            let resource = Resource::parse(name).unwrap();
            let text = resource.quantity(amount);
            assert_eq!(text, want, "{amount} of {name}");
            let read = Quantity::parse(&text).unwrap();
            assert_eq!(resource.integer(read), amount, "{text} of {name}");
        }
    }

    #[test]
    fn classes_of_names() {
        // (name, is a resource, extended, may be given for the whole pod)
        for (name, known, extended, pod_level) in [
            ("cpu", true, false, true),
            ("memory", true, false, true),
            ("pods", true, false, false),
            ("ephemeral-storage", true, false, false),
            ("storage", false, false, false),
            ("hugepages-2Mi", true, false, true),
            ("attachable-volumes-aws-ebs", true, false, false),
            ("kubernetes.io/batch-cpu", true, false, false),
            ("example.com/gpu", true, true, false),
            ("requests.example.com/gpu", false, false, false),
            (
                "resource.katalyst.kubewharf.io/reclaimed_millicpu",
                true,
                true,
                false,
            ),
            ("example.com/not a name", false, false, false),
        ] {
            let resource = Resource::parse(name);
            assert_eq!(resource.is_some(), known, "{name}");
            let flags = resource.map_or((false, false), |r| (r.is_extended(), r.is_pod_level()));
            assert_eq!(flags, (extended, pod_level), "{name}");
        }
    }
}
