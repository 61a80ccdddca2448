//! Counts how pods ended, each exactly once, even if responses are lost.
//!
//! A finished pod keeps a finalizer until its end is in the Job's status, and its uid stays there until the
//! finalizer is gone; only then the number is raised. Successes of indexed Jobs are counted by their indexes.

use std::{collections::HashSet, sync::Arc};

use super::{
    indexes::Indexes,
    member::{index_of, is_tracked},
    plan::BURST,
};
use crate::objects::{
    Pod,
    job::{JobSpec, JobStatus},
};

pub(super) struct Count {
    /// How many pods ended which way, counted or about to be.
    pub(super) succeeded: i32,
    pub(super) failed: i32,
    /// Pods whose end is in the Job's status, so that their finalizer can go.
    pub(super) counted: Vec<Arc<Pod>>,
    /// No pod waits to be counted.
    pub(super) none_left: bool,
}

/// Moves finished pods one step through the status: uid recorded, finalizer removed, count increased.
pub(super) fn count(spec: &JobSpec, status: &mut JobStatus, pods: &[Arc<Pod>]) -> Count {
    let members = || pods.iter().filter(|pod| is_tracked(pod));
    let tracked: HashSet<&str> = members().map(|pod| pod.uid()).collect();
    let noted = &mut status.uncounted_terminated_pods;
    let written: HashSet<String> = noted
        .succeeded
        .iter()
        .chain(&noted.failed)
        .cloned()
        .collect();
    for (number, uids) in [
        (&mut status.succeeded, &mut noted.succeeded),
        (&mut status.failed, &mut noted.failed),
    ] {
        let before = uids.len();
        uids.retain(|uid| tracked.contains(uid.as_str()));
        *number = number.saturating_add(to_i32(before - uids.len()));
    }
    let written_indexes = completed(spec, status);
    let mut indexes = written_indexes.clone();
    let noted = &mut status.uncounted_terminated_pods;
    let mut counted = Vec::new();
    for pod in members() {
        let ended_well = pod.status.phase == "Succeeded";
        let index = index_of(pod).filter(|_| spec.is_indexed() && ended_well);
        let is_written = match index {
            Some(index) => written_indexes.contains(index),
            None => written.contains(pod.uid()),
        };
        if is_written {
            counted.push(pod.clone());
        } else if noted.succeeded.len() + noted.failed.len() >= BURST {
            continue;
        } else if let Some(index) = index {
            indexes.insert(index);
        } else if ended_well {
            noted.succeeded.push(pod.uid().to_owned());
        } else if pod.status.phase == "Failed" || pod.is_deleting() {
            noted.failed.push(pod.uid().to_owned());
        }
    }
    let none_left = counted.is_empty() && noted.succeeded.is_empty() && noted.failed.is_empty();
    if spec.is_indexed() {
        status.succeeded = indexes.count();
        status.completed_indexes = Some(indexes.to_string()).filter(|text| !text.is_empty());
    }
    let noted = &status.uncounted_terminated_pods;
    Count {
        succeeded: status
            .succeeded
            .saturating_add(to_i32(noted.succeeded.len())),
        failed: status.failed.saturating_add(to_i32(noted.failed.len())),
        counted,
        none_left,
    }
}

/// The completed indexes in the status.
pub(super) fn completed(spec: &JobSpec, status: &JobStatus) -> Indexes {
    let text = status.completed_indexes.as_deref().unwrap_or_default();
    Indexes::parse(text, spec.completions.unwrap_or(0))
}

pub(super) fn to_i32(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}
