//! The requests and limits of a pod as a whole.

use super::*;

/// Amounts by resource; each with whether it is written in powers of 1000.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Amounts(BTreeMap<String, (i128, bool)>);

impl Amounts {
    pub(super) fn read(amounts: &Value) -> Self {
        let mut read = Self::default();
        for (resource, amount) in amounts.as_object().into_iter().flatten() {
            let text = amount.as_str().unwrap_or_default();
            if let Some(amount) = nanos(text) {
                let decimal = !text.ends_with('i');
                read.0.insert(resource.clone(), (amount, decimal));
            }
        }
        read
    }

    pub(super) fn get(&self, resource: &str) -> Option<i128> {
        self.0.get(resource).map(|(amount, _)| *amount)
    }

    pub(super) fn text(&self, resource: &str) -> String {
        let amount = self.0.get(resource);
        amount.map_or_else(String::new, |(amount, decimal)| {
            quantity::text(*amount, *decimal)
        })
    }

    fn merge(&mut self, other: &Self, join: impl Fn(i128, i128) -> i128) {
        for (resource, (amount, decimal)) in &other.0 {
            match self.0.get_mut(resource) {
                Some((own, _)) => *own = join(*own, *amount),
                None => {
                    self.0.insert(resource.clone(), (*amount, *decimal));
                }
            }
        }
    }

    fn add(&mut self, other: &Self) {
        self.merge(other, i128::saturating_add);
    }
}

/// The sum of the containers or the largest init container, whichever is more; with sidecars and overhead.
/// Resources of the pod itself replace the sums.
pub(super) fn of_pod(spec: &Value, side: &str) -> Amounts {
    let of = |container: &Value| Amounts::read(at(at(container, "resources"), side));
    let mut sum = Amounts::default();
    for container in items(spec, "containers") {
        sum.add(&of(container));
    }
    let (mut sidecars, mut largest) = (Amounts::default(), Amounts::default());
    for container in items(spec, "initContainers") {
        let own = of(container);
        let mut needed = sidecars.clone();
        needed.add(&own);
        if text(container, "restartPolicy") == "Always" {
            sum.add(&own);
            sidecars = needed.clone();
        }
        largest.merge(&needed, i128::max);
    }
    sum.merge(&largest, i128::max);
    let of_itself = Amounts::read(at(at(spec, "resources"), side));
    sum.merge(&of_itself, |_, own| own);
    let mut overhead = Amounts::read(at(spec, "overhead"));
    if side == "limits" {
        // No limit stays no limit.
        overhead
            .0
            .retain(|resource, _| sum.get(resource).is_some_and(|amount| amount > 0));
    }
    sum.add(&overhead);
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containers_add_up_and_init_containers_do_not() {
        let container = |cpu: &str| json!({"resources": {"requests": {"cpu": cpu}}});
        let sidecar = json!({"restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}});
        for (case, spec, want) in [
            (
                "two",
                json!({"containers": [container("1"), container("500m")]}),
                "1500m",
            ),
            (
                "a large init container",
                json!({"containers": [container("1")], "initContainers": [container("3"), container("2")]}),
                "3",
            ),
            (
                "a sidecar",
                json!({"containers": [container("1")], "initContainers": [sidecar, container("2")]}),
                "3",
            ),
            (
                "overhead",
                json!({"containers": [container("1")], "overhead": {"cpu": "250m"}}),
                "1250m",
            ),
            (
                "of the pod itself",
                json!({"containers": [container("1")], "resources": {"requests": {"cpu": "4"}}}),
                "4",
            ),
        ] {
            assert_eq!(of_pod(&spec, "requests").text("cpu"), want, "{case}");
        }
    }
}
