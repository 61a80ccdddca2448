//! Whose turn it is: binds first, then what a pod's status says, then events.
//!
//! What waits longest must not wait for ever: once it is ten seconds old it gets a share of the turns, which grows until
//! at thirty seconds it goes before binds. Nothing here does I/O; time comes in as an argument.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::model::{Name, Pod};

use super::requests::Call;

/// Requests at a time, when the server is at ease.
const MOST: usize = 64;
const FEWEST: usize = 4;
/// Events at a time: enough to share wake-ups, and room for a bind that comes in between.
const MOST_EVENTS: usize = 48;
/// Events that may wait; beyond them the oldest are dropped.
const MOST_WAITING_EVENTS: usize = 20_000;
/// From this age on, what waits gets a share of the turns that binds would have.
const AGE: Duration = Duration::from_secs(10);
/// At this age it has all of them.
const OLD: Duration = Duration::from_secs(30);
/// Binds that end well before one more is tried at a time.
const EASE: u32 = 32;
/// How often the limit may fall.
const PRESS_EVERY: Duration = Duration::from_secs(1);
/// Binds that the recent and the usual time of a bind are averaged over.
const LATELY: f64 = 32.0;
const USUALLY: f64 = 1_000.0;
/// A server that answers within this time is at ease, whatever was usual.
const QUICK: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(crate) enum Job {
    Bind { pod: Arc<Pod>, node: Name },
    Patch { pod: Arc<Pod>, call: Call },
    Event(Call),
}

#[derive(Debug)]
pub(crate) struct Line {
    binds: VecDeque<(Arc<Pod>, Name)>,
    /// By uid: a newer patch of a pod takes the place of the older.
    patches: HashMap<Name, (Arc<Pod>, Call)>,
    /// Whose patch waits since when.
    patch_order: VecDeque<(Instant, Name)>,
    events: VecDeque<(Instant, Call)>,
    in_flight: InFlight,
    limit: usize,
    eased: u32,
    pressed: Option<Instant>,
    /// How long binds take, in seconds: lately, and usually.
    times: Option<(f64, f64)>,
    /// Turns that are due to what waits, in thousandths.
    credit: u32,
}

#[derive(Debug, Default)]
struct InFlight {
    binds: usize,
    patches: usize,
    events: usize,
}

/// What kind of request ended.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Class {
    Bind,
    Patch,
    Event,
}

impl Line {
    pub(crate) fn new() -> Self {
        Self {
            binds: VecDeque::new(),
            patches: HashMap::new(),
            patch_order: VecDeque::new(),
            events: VecDeque::new(),
            in_flight: InFlight::default(),
            limit: MOST,
            eased: 0,
            pressed: None,
            times: None,
            credit: 0,
        }
    }

    pub(crate) fn bind(&mut self, pod: Arc<Pod>, node: Name) {
        self.binds.push_back((pod, node));
    }

    pub(crate) fn patch(&mut self, pod: Arc<Pod>, call: Call, now: Instant) {
        let uid = pod.uid.clone();
        if self.patches.insert(uid.clone(), (pod, call)).is_none() {
            self.patch_order.push_back((now, uid));
        }
    }

    /// Returns false if an older one had to go.
    pub(crate) fn event(&mut self, call: Call, now: Instant) -> bool {
        self.events.push_back((now, call));
        let fits = self.events.len() <= MOST_WAITING_EVENTS;
        if !fits {
            self.events.pop_front();
        }
        fits
    }

    /// Binds that wait.
    pub(crate) fn waiting_binds(&self) -> usize {
        self.binds.len()
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.binds.is_empty()
            && self.patches.is_empty()
            && self.events.is_empty()
            && self.busy() == 0
    }

    fn busy(&self) -> usize {
        self.in_flight.binds + self.in_flight.patches + self.in_flight.events
    }

    /// The next request to send, if one may be sent now.
    pub(crate) fn next(&mut self, now: Instant) -> Option<Job> {
        if self.busy() >= self.limit {
            return None;
        }
        if self.binds.is_empty() || self.is_due(now) {
            if let Some((pod, call)) = self.first_patch() {
                self.in_flight.patches += 1;
                return Some(Job::Patch { pod, call });
            }
            if self.in_flight.events < MOST_EVENTS
                && let Some((_, call)) = self.events.pop_front()
            {
                self.in_flight.events += 1;
                return Some(Job::Event(call));
            }
        }
        let (pod, node) = self.binds.pop_front()?;
        self.in_flight.binds += 1;
        Some(Job::Bind { pod, node })
    }

    fn first_patch(&mut self) -> Option<(Arc<Pod>, Call)> {
        let (_, uid) = self.patch_order.pop_front()?;
        self.patches.remove(&uid)
    }

    /// Whether the turn is what waits' own.
    fn is_due(&mut self, now: Instant) -> bool {
        let patch = self.patch_order.front().map(|(since, _)| *since);
        let event = self.events.front().map(|(since, _)| *since);
        let Some(since) = patch.into_iter().chain(event).min() else {
            return false;
        };
        let age = now.saturating_duration_since(since);
        self.credit += share(age);
        if self.credit >= 1_000 {
            self.credit -= 1_000;
            return true;
        }
        false
    }

    pub(crate) fn done(&mut self, class: Class) {
        match class {
            Class::Bind => self.in_flight.binds -= 1,
            Class::Patch => self.in_flight.patches -= 1,
            Class::Event => self.in_flight.events -= 1,
        }
    }

    /// A bind went well.
    pub(crate) fn ease(&mut self) {
        self.eased += 1;
        if self.eased >= EASE {
            self.eased = 0;
            self.limit = (self.limit + 1).min(MOST);
        }
    }

    /// A bind took so long. When they take twice as long as usual, the server has too much to do.
    pub(crate) fn took(&mut self, time: Duration, now: Instant) {
        let time = time.as_secs_f64();
        let (lately, usually) = self.times.unwrap_or((time, time));
        let lately = lately + (time - lately) / LATELY;
        let usually = usually + (time - usually) / USUALLY;
        self.times = Some((lately, usually));
        if lately > 2.0 * usually && lately > QUICK.as_secs_f64() {
            self.press(now);
        }
    }

    /// The server asked for fewer requests.
    pub(crate) fn press(&mut self, now: Instant) {
        let lately = |at: Instant| now.saturating_duration_since(at) < PRESS_EVERY;
        if !self.pressed.is_some_and(lately) {
            self.pressed = Some(now);
            self.eased = 0;
            self.limit = (self.limit / 2).max(FEWEST);
        }
    }
}

/// The share of turns, in thousandths, of something that has waited so long.
fn share(age: Duration) -> u32 {
    let over = age.saturating_sub(AGE).min(OLD - AGE);
    let thousandths = over.as_millis() * 1_000 / (OLD - AGE).as_millis();
    u32::try_from(thousandths).unwrap_or(1_000)
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;

    fn call() -> Call {
        Call::new(Method::POST, "/".into(), "", String::new())
    }

    fn line(binds: usize) -> Line {
        let mut line = Line::new();
        for _ in 0..binds {
            line.bind(Arc::default(), "n".into());
        }
        line
    }

    fn class(job: &Job) -> Class {
        match job {
            Job::Bind { .. } => Class::Bind,
            Job::Patch { .. } => Class::Patch,
            Job::Event(_) => Class::Event,
        }
    }

    /// Takes jobs one at a time and counts binds and others.
    fn take(line: &mut Line, count: usize, now: Instant) -> (usize, usize) {
        let mut binds = 0;
        for _ in 0..count {
            let job = line.next(now).unwrap();
            binds += usize::from(matches!(job, Job::Bind { .. }));
            line.done(class(&job));
        }
        (binds, count - binds)
    }

    #[test]
    fn the_share_grows_with_age() {
        let now = Instant::now();
        for (age, want) in [
            (0, (100, 0)),
            (10, (100, 0)),
            (20, (50, 50)),
            (30, (0, 100)),
            (99, (0, 100)),
        ] {
            let mut line = line(200);
            for _ in 0..200 {
                line.event(call(), now);
            }
            let later = now + Duration::from_secs(age);
            assert_eq!(take(&mut line, 100, later), want, "at {age} s");
        }
    }

    #[test]
    fn an_endless_stream_of_binds_holds_no_event_for_longer_than_thirty_seconds() {
        let begun = Instant::now();
        let mut line = line(0);
        let mut waited = Duration::ZERO;
        // 100 turns a second; 50 binds and 30 events come in each second.
        for tick in 0..12_000_u64 {
            let now = begun + Duration::from_millis(10 * tick);
            if tick % 2 == 0 {
                line.bind(Arc::default(), "n".into());
            }
            if tick % 3 == 0 {
                line.event(call(), now);
            }
            let oldest = line.events.front().map(|(since, _)| now - *since);
            waited = waited.max(oldest.unwrap_or_default());
            if let Some(job) = line.next(now) {
                line.done(class(&job));
            }
        }
        assert!(waited <= OLD, "{waited:?}");
        assert!(line.waiting_binds() < 200, "{}", line.waiting_binds());
    }

    #[test]
    fn a_newer_patch_takes_the_place_of_the_older() {
        let now = Instant::now();
        let mut line = line(0);
        let pod = Arc::new(Pod {
            uid: "u".into(),
            ..Pod::default()
        });
        line.patch(pod.clone(), call(), now);
        let newer = Call {
            path: "/newer".into(),
            ..call()
        };
        line.patch(pod, newer, now);
        let Some(Job::Patch { call, .. }) = line.next(now) else {
            panic!("a patch waits");
        };
        assert_eq!(call.path, "/newer");
        assert!(line.next(now).is_none());
    }

    #[test]
    fn the_oldest_events_are_dropped() {
        let now = Instant::now();
        let mut line = line(0);
        let dropped = (0..MOST_WAITING_EVENTS + 3).filter(|_| !line.event(call(), now));
        assert_eq!(dropped.count(), 3);
    }

    #[test]
    fn the_limit_falls_when_binds_take_twice_as_long() {
        let in_flight = |line: &mut Line| {
            let now = Instant::now();
            std::iter::from_fn(|| line.next(now)).count()
        };
        for (case, usual, then, want) in [
            ("no change", 150, 150, MOST),
            ("slower, not twice", 150, 250, MOST),
            ("twice as slow, and still quick", 20, 60, MOST),
            ("more than twice", 150, 400, MOST / 2),
        ] {
            let mut line = line(200);
            let now = Instant::now();
            (0..1_000).for_each(|_| line.took(Duration::from_millis(usual), now));
            (0..100).for_each(|_| line.took(Duration::from_millis(then), now));
            assert_eq!(in_flight(&mut line), want, "{case}");
        }
    }

    #[test]
    fn the_limit_falls_under_pressure_and_recovers() {
        let now = Instant::now();
        let mut line = line(200);
        let in_flight = |line: &mut Line| std::iter::from_fn(|| line.next(now)).count();
        line.press(now);
        line.press(now);
        assert_eq!(in_flight(&mut line), MOST / 2);
        (0..EASE).for_each(|_| line.ease());
        assert_eq!(in_flight(&mut line), 1);
    }
}
