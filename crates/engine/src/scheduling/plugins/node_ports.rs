//! Rejects nodes on which a host port of the pod is in use.

use crate::model::{HostPort, Pod, PodKind};
use crate::scheduling::framework::{
    Actions, ArgsError, Catalog, Changed, Configure, Count, CountId, Event, EventPattern, Kind,
    NoArgs, Place, PlaceFilter, Plan, Plugin, PodRule, PodSet, Point, Points, Reason, Verdict,
};

pub struct NodePorts;

impl Configure for NodePorts {
    const NAME: &'static str = "NodePorts";
    const POINTS: Points = Points::of(&[Point::PreFilter, Point::Filter]);
    type Args = NoArgs;

    fn new(_: NoArgs) -> Result<Self, Vec<ArgsError>> {
        Ok(Self)
    }
}

impl Plugin for NodePorts {
    fn prepare(&self, pod: &Pod, _: &Catalog, plan: &mut Plan) {
        let wanted = &pod.kind.ports;
        if !wanted.is_empty() {
            let in_the_way = PodSet::new(Conflicting(wanted.clone()));
            let count = plan.count(Count::on_node(in_the_way));
            plan.filter_places(FreePorts(count));
        }
    }

    fn events(&self) -> Vec<EventPattern> {
        vec![
            EventPattern::new(Kind::Pod, Actions::DELETE),
            EventPattern::new(Kind::Node, Actions::ADD),
        ]
    }

    fn helps(&self, pod: &Pod, event: &Event, _: &Catalog) -> bool {
        if let Changed::Node(_) = event.changed {
            return true;
        }
        let Some((change, held)) = event.changed.pod() else {
            return false;
        };
        let gone = change.old.as_ref();
        held && gone.is_some_and(|gone| conflicts(&pod.kind.ports, &gone.kind.ports))
    }
}

fn conflicts(wanted: &[HostPort], used: &[HostPort]) -> bool {
    wanted
        .iter()
        .any(|port| used.iter().any(|other| conflict(port, other)))
}

fn conflict(one: &HostPort, other: &HostPort) -> bool {
    /// Means every address of the host; `::` does not.
    const EVERY_IP: &str = "0.0.0.0";
    let is_every = |port: &HostPort| *port.ip == *EVERY_IP;
    one.port == other.port
        && one.protocol == other.protocol
        && (one.ip == other.ip || is_every(one) || is_every(other))
}

/// Pods that use one of these ports.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Conflicting(Vec<HostPort>);

impl PodRule for Conflicting {
    fn counts(&self, pod: &PodKind) -> i64 {
        i64::from(conflicts(&self.0, &pod.ports))
    }
}

/// Passes if no pod on the node uses the ports.
struct FreePorts(CountId);

impl PlaceFilter for FreePorts {
    fn filter(&self, at: Place) -> Verdict {
        if at.count(self.0) == 0 {
            Verdict::FITS
        } else {
            Verdict::unschedulable(1)
        }
    }

    fn reason(&self, _: u8) -> Reason {
        "node(s) didn't have free ports for the requested pod ports".into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Lab, PodBuilder, node, pod};

    /// Ports as `"TCP/127.0.0.1/8080"`.
    fn with_ports(name: &str, ports: &[&str]) -> PodBuilder {
        ports.iter().fold(pod(name), |pod, port| {
            let [protocol, ip, port] = port.splitn(3, '/').collect::<Vec<_>>()[..] else {
                panic!("`{port}` is not protocol/ip/port");
            };
            pod.host_port(ip, protocol, port.parse().unwrap())
        })
    }

    #[test]
    fn ports_in_use() {
        for (case, wanted, used, free) in [
            ("nothing wanted", vec![], vec!["UDP/0.0.0.0/8080"], true),
            ("nothing used", vec!["UDP/127.0.0.1/8080"], vec![], true),
            (
                "the same",
                vec!["UDP/127.0.0.1/8080"],
                vec!["UDP/127.0.0.1/8080"],
                false,
            ),
            (
                "another protocol",
                vec!["UDP/127.0.0.1/8080"],
                vec!["TCP/127.0.0.1/8080"],
                true,
            ),
            (
                "another address",
                vec!["TCP/127.0.0.1/8080"],
                vec!["TCP/127.0.0.2/8080"],
                true,
            ),
            (
                "another port",
                vec!["UDP/127.0.0.1/8080"],
                vec!["UDP/127.0.0.1/8081"],
                true,
            ),
            (
                "every address wanted",
                vec!["TCP/0.0.0.0/8001"],
                vec!["TCP/127.0.0.1/8001"],
                false,
            ),
            (
                "every address used",
                vec!["TCP/127.0.0.1/8001"],
                vec!["TCP/0.0.0.0/8001"],
                false,
            ),
            (
                "every address of another protocol",
                vec!["UDP/127.0.0.1/8001"],
                vec!["TCP/0.0.0.0/8001"],
                true,
            ),
            (
                "an IPv6 wildcard is an address like others",
                vec!["TCP/::/8001"],
                vec!["TCP/::1/8001"],
                true,
            ),
            (
                "one of several",
                vec!["TCP/0.0.0.0/8001", "UDP/0.0.0.0/8080"],
                vec!["TCP/0.0.0.0/8002", "UDP/0.0.0.0/8080"],
                false,
            ),
        ] {
            let lab = Lab::new(NodePorts)
                .node(node("n"))
                .placed(with_ports("other", &used).namespace("other").on("n"));
            let want = if free {
                "ok"
            } else {
                "U node(s) didn't have free ports for the requested pod ports"
            };
            assert_eq!(lab.filter(&with_ports("p", &wanted)), [want], "{case}");
        }
    }

    #[test]
    fn hints() {
        let lab = Lab::new(NodePorts);
        let wants = with_ports("p", &["TCP/0.0.0.0/80"]);
        for (case, gone, want) in [
            (
                "it was in the way",
                with_ports("q", &["TCP/127.0.0.1/80"]).on("n"),
                true,
            ),
            (
                "its port is another",
                with_ports("q", &["TCP/127.0.0.1/81"]).on("n"),
                false,
            ),
            ("it had no ports", pod("q").on("n"), false),
            (
                "it was on no node",
                with_ports("q", &["TCP/127.0.0.1/80"]),
                false,
            ),
        ] {
            assert_eq!(lab.helps_pod(&wants, Some(gone), None), want, "{case}");
        }
        assert!(lab.helps_node(&wants, None, Some(node("n"))));
    }
}
