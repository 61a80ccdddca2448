//! What production pods request and, by their predicted peaks, do not need: `prodReclaimableMetric` of NodeMetric.
//!
//! Two predictions are made, one from each pod and one from the class as a whole; the smaller holds.

use super::numa::ZoneOwners;
use super::predict::{ModelKey, Models, PredictedClass};
use super::settings::PredictionSettings;
use super::terms::CpuMemory;
use super::{LocalNode, LocalPod, NodeSample};
use crate::model::Timestamp;

/// A production pod, as both predictions see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Requester {
    pub request: CpuMemory,
    /// None: it is too young, or has no model; it needs all that it requests.
    pub peak: Option<CpuMemory>,
}

/// What can be reclaimed, and the peak of production.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Reclaimable {
    pub reclaimable: CpuMemory,
    pub peak: CpuMemory,
}

/// A predicted amount with the margin.
pub fn with_margin(peak: CpuMemory, percent: i64) -> CpuMemory {
    let factor = (100 + percent) as f64 / 100.0;
    CpuMemory {
        milli_cpu: (peak.milli_cpu as f64 * factor) as i64,
        memory: (peak.memory as f64 * factor) as i64,
    }
}

/// From each pod: a pod without a prediction gives nothing.
pub fn by_pods(pods: &[Requester], allocatable: CpuMemory, margin: i64) -> Reclaimable {
    let mut unreclaimable = CpuMemory::ZERO;
    let mut reclaimable = CpuMemory::ZERO;
    let mut unpredicted = CpuMemory::ZERO;
    for pod in pods {
        match pod.peak {
            Some(peak) => {
                let peak = with_margin(peak, margin);
                unreclaimable = unreclaimable.plus(peak);
                reclaimable = reclaimable.plus(pod.request.minus(peak).positive());
            }
            None => unpredicted = unpredicted.plus(pod.request),
        }
    }
    let free = allocatable.minus(unreclaimable).positive();
    Reclaimable {
        reclaimable: free.min(reclaimable),
        peak: unreclaimable.plus(unpredicted),
    }
}

/// From the class: the requests of all pods against the peaks of the class and of the system.
pub fn by_class(
    request: CpuMemory,
    peaks: CpuMemory,
    allocatable: CpuMemory,
    margin: i64,
) -> Reclaimable {
    let unreclaimable = with_margin(peaks, margin);
    let free = allocatable.minus(unreclaimable).positive();
    Reclaimable {
        reclaimable: free.min(request.minus(unreclaimable).positive()),
        peak: unreclaimable,
    }
}

/// What production leaves of its requests; none without models of the system and of the class.
pub(super) fn reclaimable(
    node: &LocalNode,
    (pods, owners): (&[LocalPod], &ZoneOwners),
    sample: &NodeSample,
    models: &Models,
    settings: &PredictionSettings,
    wall: Timestamp,
) -> Option<Reclaimable> {
    let margin = settings.safety_margin_percent;
    let system = models.peak(&ModelKey::System)?;
    let class = models.peak(&ModelKey::Class(PredictedClass::Production))?;
    let production = pods.iter().filter(|pod| {
        let is_measured = sample.pods.contains_key(&pod.group);
        !pod.is_own() && pod.is_active() && !pod.terminating && is_measured
    });
    let requesters: Vec<Requester> = production
        .map(|pod| {
            let is_cold = wall <= pod.created.plus(settings.cold_start);
            // No other pod can use what is left in the zones of this one.
            let is_alone = owners.is_alone(pod);
            let peak = models.peak(&ModelKey::Pod(pod.group.clone()));
            Requester {
                request: pod.request(),
                peak: peak.filter(|_| !is_cold && !is_alone),
            }
        })
        .collect();
    let request = requesters.iter().map(|pod| pod.request).sum();
    let pods = by_pods(&requesters, node.allocatable, margin);
    let class = by_class(request, system.plus(class), node.allocatable, margin);
    Some(Reclaimable {
        reclaimable: pods.reclaimable.min(class.reclaimable),
        peak: pods.peak.max(class.peak),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: i64 = 1 << 30;

    #[test]
    fn the_margin_is_ten_percent_by_default() {
        let idle = CpuMemory::new(25, 5 << 20);
        assert_eq!(with_margin(idle, 10), CpuMemory::new(27, 5_767_168));
    }

    #[test]
    fn pods_and_class() {
        let allocatable = CpuMemory::new(16_000, 64 * GIB);
        let request = CpuMemory::new(4000, 8 * GIB);
        let peak = CpuMemory::new(500, GIB);
        let pod = Requester {
            request,
            peak: Some(peak),
        };
        let one = by_pods(&[pod], allocatable, 10);
        assert_eq!(one.reclaimable.milli_cpu, 3450);
        // The vector of the notes: p95 of pod, system, production and none is half a core each.
        let peaks = CpuMemory::new(1500, 3 * GIB);
        let class = by_class(request, peaks, allocatable, 10);
        assert_eq!(class.reclaimable.milli_cpu, 2350);
        let cold = Requester {
            request,
            peak: None,
        };
        let two = by_pods(&[pod, cold], allocatable, 10);
        assert_eq!(two.reclaimable, one.reclaimable);
        assert_eq!(two.peak.milli_cpu, 550 + 4000);
        // A small node bounds it.
        let small = by_pods(&[pod], CpuMemory::new(1000, GIB), 10);
        assert_eq!(small.reclaimable, CpuMemory::new(450, 0));
    }
}
