//! Three schedulers of ours and kube-scheduler race for the last places of a cluster with simulated kubelets, with and without the
//! gate, while processes are killed. They race for cores, for what nodes lend to reclaimed pods, for the pool of reclaimed and batch
//! pods, and for the unit of a ResourcePolicy. `TIDEPOOL_FULL` kills processes at more moments.

mod course;
mod racers;

use e2e::Process;

use crate::gate::Failure;
use course::{Course, Waits, signal};
use racers::check_refusals;

/// Seconds for a call of the gate on a loaded machine, where a bind that is not judged would spoil the result.
const PATIENT: Option<u32> = Some(10);
/// The timeout of deploy/gate.yaml.
const AS_SHIPPED: Option<u32> = None;
/// Races in which a machine may be too slow for that timeout, or stand still, or the schedulers may be too polite.
const TRIES: usize = 3;

fn is_full() -> bool {
    std::env::var_os("TIDEPOOL_FULL").is_some()
}

/// How many pods in a hundred are bound when a process is killed.
fn moments() -> Vec<usize> {
    match is_full() {
        true => (10..=90).step_by(20).collect(),
        false => vec![50],
    }
}

#[test]
fn without_the_gate_every_limit_is_exceeded() {
    course::with(Failure::Ignore, AS_SHIPPED, |course| {
        course.gated.switch_off();
        let mut found = Vec::new();
        let proves_all = (0..TRIES).any(|_| {
            let pods = course.begin();
            course.await_bound(pods);
            let (refused, excess) = course.outcome();
            found.push((refused, excess));
            course.delete_pods();
            // Kubelets refuse pods that exceed cores, and count nothing else.
            refused > 0 && excess.reclaimed > 0 && excess.pools > 0 && excess.unit > 0
        });
        assert!(proves_all, "the race proves nothing: {found:?}");
    });
}

/// Also if each scheduler is killed in the middle.
#[test]
fn with_the_gate_no_limit_is_exceeded() {
    course::with(Failure::Fail, PATIENT, |course| {
        let gate = course.gate();
        let known = course.known_refusals();
        let pods = course.begin();
        for moment in moments() {
            course.await_bound(pods * moment / 100);
            course.restart_schedulers();
        }
        course.await_bound(pods);
        course.check_limits(&gate);
        course.check_bound_once();
        check_refusals(&gate.log());
        assert!(
            course.known_refusals() > known,
            "no scheduler of ours knows a refusal"
        );
    });
}

/// With failurePolicy Ignore and a timeout of 2 s, a bind is committed without judgement only if the machine is that slow.
#[test]
fn with_the_gate_as_it_is_shipped_no_limit_is_exceeded() {
    course::with(Failure::Ignore, AS_SHIPPED, |course| {
        let gate = course.gate();
        let mut found = Vec::new();
        let is_judged = (0..TRIES).any(|_| {
            let before = course.waits();
            let pods = course.begin();
            course.await_bound(pods);
            let waits = course.waits().since(before);
            found.push(waits);
            if waits.unjudged > 0 || !waits.are_short() {
                course.delete_pods();
                return false;
            }
            course.check_limits(&gate);
            true
        });
        assert!(is_judged, "binds were not judged in time: {found:?}");
        course.check_bound_once();
        check_refusals(&gate.log());
    });
}

/// Repeats a race with a gate until no bind waits for long, a few times at most.
fn short_waits(course: &mut Course, race: impl Fn(&mut Course, Process)) -> Waits {
    let mut found = Vec::new();
    for _ in 0..TRIES {
        let gate = course.gate();
        let before = course.waits();
        race(course, gate);
        course.outcome();
        course.check_bound_once();
        let waits = course.waits().since(before);
        course.delete_pods();
        if waits.are_short() {
            return waits;
        }
        found.push(waits);
    }
    panic!("binds waited for the gate for longer than 2.5 s: {found:?}");
}

#[test]
fn a_killed_gate_delays_no_bind_for_long() {
    course::with(Failure::Ignore, AS_SHIPPED, |course| {
        let mut unjudged = 0;
        // Pods are bound before another gate leads, so each moment has pods of its own.
        for moment in moments() {
            let waits = short_waits(course, |course, mut gate| {
                let pods = course.begin();
                course.await_bound(pods * moment / 100);
                gate.stop();
                course.await_bound(pods);
            });
            unjudged += waits.unjudged;
        }
        assert!(unjudged > 0, "the gate was killed too late");
    });
}

#[test]
fn a_strict_gate_that_is_killed_lets_no_limit_be_exceeded() {
    course::with(Failure::Fail, PATIENT, |course| {
        let mut gate = course.gate();
        let pods = course.begin();
        for moment in moments() {
            course.await_bound(pods * moment / 100);
            gate.stop();
            gate = course.gate();
        }
        course.await_bound(pods);
        course.check_limits(&gate);
        course.check_bound_once();
    });
}

/// It holds its connections, and answers nothing.
#[test]
fn a_gate_that_hangs_delays_no_bind_for_long() {
    course::with(Failure::Ignore, AS_SHIPPED, |course| {
        let mut unjudged = 0;
        for moment in moments() {
            let waits = short_waits(course, |course, gate| {
                let pods = course.begin();
                course.await_bound(pods * moment / 100);
                signal(&gate, "-STOP");
                course.await_bound(pods);
            });
            unjudged += waits.unjudged;
        }
        assert!(unjudged > 0, "the gate was stopped too late");
    });
}

/// It wakes when another replica leads, and answers what was asked before that.
#[test]
fn a_strict_gate_that_hangs_lets_no_limit_be_exceeded() {
    course::with(Failure::Fail, PATIENT, |course| {
        let hung = course.gate();
        let name = course.gate_name();
        let flags = ["--secure-port=0", "--advertise-address=192.0.2.8"];
        let (next, address) = course.gated.replica(&name, &flags);
        let pods = course.begin();
        course.await_bound(pods / 2);
        signal(&hung, "-STOP");
        course.gated.route(&next, address);
        // It ends the connections that the API server has, since it cannot answer.
        signal(&hung, "-CONT");
        course.await_bound(pods);
        course.check_limits(&next);
        course.check_bound_once();
    });
}
