//! Prefers nodes that already have the pod's images. Large images count more, images that few nodes have count less.

use crate::model::{Name, NodeSpec, Pod};
use crate::scheduling::framework::{
    ArgsError, Catalog, Configure, EventPattern, Fact, FactId, NoArgs, NodeRule, Place, PlaceScore,
    Plan, Plugin, Point, Points,
};

pub struct ImageLocality;

impl Configure for ImageLocality {
    const NAME: &'static str = "ImageLocality";
    const POINTS: Points = Points::of(&[Point::Score]);
    type Args = NoArgs;

    fn new(_: NoArgs) -> Result<Self, Vec<ArgsError>> {
        Ok(Self)
    }
}

const MIB: i64 = 1 << 20;
/// Images of a smaller total size do not count.
const LEAST: i64 = 23 * MIB;
/// The largest size that counts per container.
const MOST_PER_CONTAINER: i64 = 1000 * MIB;

impl Plugin for ImageLocality {
    fn prepare(&self, pod: &Pod, catalog: &Catalog, plan: &mut Plan) {
        // Image volumes count, but do not raise the limit.
        let wanted: Vec<(Name, i64)> = pod
            .images
            .iter()
            .chain(&pod.image_volumes)
            .filter_map(|image| {
                let name = with_tag(image);
                let worth = worth(&name, catalog)?;
                Some((name, worth))
            })
            .collect();
        let groups = wanted.chunks(u32::BITS as usize).map(|images| {
            let (names, worth) = images.iter().cloned().unzip();
            (plan.fact(Fact::new(Present(names))), worth)
        });
        let check = Locality {
            groups: groups.collect(),
            most: MOST_PER_CONTAINER.saturating_mul(pod.images.len() as i64),
        };
        plan.score_places(check);
    }

    fn events(&self) -> Vec<EventPattern> {
        Vec::new()
    }
}

/// The name under which nodes list an image without a tag.
fn with_tag(image: &Name) -> Name {
    let tagged = match (image.rfind(':'), image.rfind('/')) {
        (Some(colon), Some(slash)) => colon > slash,
        (colon, _) => colon.is_some(),
    };
    if tagged {
        image.clone()
    } else {
        format!("{image}:latest").into()
    }
}

/// The value of an image: its size, scaled by the share of nodes that have it, so that a rare image does not attract all
/// pods to one node.
fn worth(image: &str, catalog: &Catalog) -> Option<i64> {
    let state = catalog.image(image)?;
    let spread = state.nodes as f64 / catalog.node_count() as f64;
    Some((state.size as f64 * spread) as i64)
}

/// Which of these images are on the node, one bit each, the first lowest.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Present(Vec<Name>);

impl NodeRule for Present {
    fn of(&self, node: &NodeSpec) -> u32 {
        let bit = |(i, image): (usize, &Name)| u32::from(node.images.contains(image)) << i;
        self.0.iter().enumerate().map(bit).sum()
    }
}

struct Locality {
    /// The images on the node, and the value of each.
    groups: Vec<(FactId, Vec<i64>)>,
    most: i64,
}

impl PlaceScore for Locality {
    fn score(&self, at: Place) -> i64 {
        let mut sum = 0_i64;
        for (present, worth) in &self.groups {
            let present = at.fact(*present);
            for (i, worth) in worth.iter().enumerate() {
                if present & (1 << i) != 0 {
                    sum = sum.saturating_add(*worth);
                }
            }
        }
        let counted = if sum < LEAST {
            LEAST
        } else {
            sum.min(self.most)
        };
        100 * (counted - LEAST) / (self.most - LEAST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Lab, PodBuilder, node, pod};

    /// One node per list of images with their sizes in MiB.
    fn lab(nodes: &[&[(&str, i64)]]) -> Lab {
        nodes
            .iter()
            .enumerate()
            .fold(Lab::new(ImageLocality), |lab, (i, images)| {
                lab.node(
                    images
                        .iter()
                        .fold(node(&format!("n{i}")), |node, (name, size)| {
                            node.image(name, size * MIB)
                        }),
                )
            })
    }

    fn images(names: &[&str]) -> PodBuilder {
        names.iter().fold(pod("p"), |pod, name| pod.image(name))
    }

    fn scores(lab: &Lab, pod: &PodBuilder) -> Vec<i64> {
        let scores = lab.scores(pod).unwrap();
        assert!(scores.iter().all(|(raw, normalized)| raw == normalized));
        scores.into_iter().map(|(raw, _)| raw).collect()
    }

    #[test]
    fn worked_examples() {
        for (case, nodes, pod, want) in [
            (
                "250 on one of two",
                vec![&[("a:latest", 250)][..], &[("c:1", 10)]],
                images(&["a", "b"]),
                vec![5, 0],
            ),
            (
                "too small to count",
                vec![&[("a:latest", 40)][..], &[]],
                images(&["a", "b"]),
                vec![0, 0],
            ),
            (
                "two images",
                vec![&[("a:latest", 40), ("b:1", 300)][..], &[]],
                images(&["a", "b:1"]),
                vec![7, 0],
            ),
            (
                "as much as can count",
                vec![&[("a:latest", 4000)][..], &[]],
                images(&["a", "b"]),
                vec![100, 0],
            ),
            (
                "on one of three",
                vec![&[("a:latest", 4000)][..], &[], &[]],
                images(&["a", "b"]),
                vec![66, 0, 0],
            ),
            (
                "on two of three",
                vec![
                    &[("a:latest", 600), ("b:latest", 900)][..],
                    &[("c:latest", 300), ("a:latest", 600), ("b:latest", 900)],
                    &[],
                ],
                images(&["a", "b", "c"]),
                vec![32, 36, 0],
            ),
            (
                "an image volume",
                vec![&[("v:latest", 300)][..], &[]],
                images(&["a"]).with(|pod| pod.image_volumes.push("v".into())),
                vec![12, 0],
            ),
            (
                "the same image twice",
                vec![&[("a:latest", 250)][..], &[]],
                images(&["a", "a"]),
                vec![11, 0],
            ),
            (
                "no containers",
                vec![&[("a:latest", 250)][..], &[]],
                pod("p"),
                vec![0, 0],
            ),
        ] {
            assert_eq!(scores(&lab(&nodes), &pod), want, "{case}");
        }
    }

    #[test]
    fn rare_images_attract_less() {
        for (having, want) in [(10, 48), (5, 23)] {
            let nodes: Vec<&[(&str, i64)]> = (0..10)
                .map(|i| {
                    if i < having {
                        &[("a:latest", 500)][..]
                    } else {
                        &[]
                    }
                })
                .collect();
            assert_eq!(
                scores(&lab(&nodes), &images(&["a"]))[0],
                want,
                "on {having}"
            );
        }
    }

    #[test]
    fn more_images_than_one_fact_holds() {
        let names: Vec<String> = (0..40).map(|i| format!("i{i}:1")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        // 39 of 40 do not matter; the last one is 8023 of at most 40,000 MiB.
        let lab = lab(&[&[("i39:1", 8023)]]);
        assert_eq!(scores(&lab, &images(&names)), [20]);
    }

    #[test]
    fn names_without_a_tag() {
        for (written, want) in [
            ("root", "root:latest"),
            ("root:tag", "root:tag"),
            ("gcr.io:5000/root", "gcr.io:5000/root:latest"),
            ("gcr.io:5000/root:tag", "gcr.io:5000/root:tag"),
            ("root@sha256:abc", "root@sha256:abc"),
            ("a/b", "a/b:latest"),
        ] {
            assert_eq!(*with_tag(&written.into()), *want);
        }
    }
}
