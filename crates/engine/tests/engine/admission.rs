//! Random pods, profiles and LimitRanges: admission changes nothing twice, loses nothing of the user's, and the admitted pod
//! is of the class that was asked for. `TIDEPOOL_FULL` has 100,000 pods.

use engine::admission::{
    AdmissionRequest, AdmissionSettings, ColocationProfile, LimitKind, LimitRange, LimitRangeItem,
    Mutation, Probability, admit, keys, mutate, pod_qos, validate,
};
use engine::cluster::PriorityClass;
use engine::model::{Labels, PreemptionPolicy, QosClass, QosLabels, Quantity, TierAccount};
use engine::node::PodQos;
use serde_json::{Map, Value, json};

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, count: usize) -> usize {
        (self.next() % count as u64) as usize
    }

    fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
}

const CLASSES: [&str; 6] = ["LSE", "LSR", "LS", "BE", "SYSTEM", "gold"];
const BANDS: [&str; 4] = ["koord-prod", "koord-mid", "koord-batch", "koord-free"];
const LEVELS: [&str; 4] = [
    "shared_cores",
    "dedicated_cores",
    "reclaimed_cores",
    "system_cores",
];
const CPU: [&str; 9] = ["0", "1", "2", "500m", "1500m", "0.25", "4", "10E", "-1"];
const MEMORY: [&str; 8] = [
    "0", "1Gi", "512Mi", "1.5Gi", "1000000", "2G", "1e400", "0.5",
];
const TIERS: [(&str, &str); 3] = [
    ("kubernetes.io/mid-cpu", "kubernetes.io/mid-memory"),
    ("kubernetes.io/batch-cpu", "kubernetes.io/batch-memory"),
    (
        "katalyst.kubewharf.io/reclaimed_millicpu",
        "resource.katalyst.kubewharf.io/reclaimed_memory",
    ),
];

fn container(random: &mut Random, name: String) -> Value {
    let mut resources = Map::new();
    // Most containers have the same in both lists, as users write them.
    let same = random.one_in(2);
    let (cpu, memory) = (random.of(&CPU[..7]), random.of(&MEMORY[..6]));
    for list in ["requests", "limits"] {
        let mut amounts = Map::new();
        let odd = random.one_in(12);
        if !random.one_in(4) {
            let own = if odd {
                random.of(&CPU)
            } else {
                random.of(&CPU[..7])
            };
            amounts.insert("cpu".into(), json!(if same { cpu } else { own }));
        }
        if !random.one_in(4) {
            let own = if odd {
                random.of(&MEMORY)
            } else {
                random.of(&MEMORY[..6])
            };
            amounts.insert("memory".into(), json!(if same { memory } else { own }));
        }
        if random.one_in(8) {
            let (cpu, memory) = random.of(&TIERS);
            amounts.insert(cpu.into(), json!(random.of(&["500", "2000", "1.5"])));
            amounts.insert(memory.into(), json!(random.of(&["1Gi", "5"])));
        }
        if random.one_in(4) {
            amounts.insert("nvidia.com/gpu".into(), json!("1"));
        }
        if !amounts.is_empty() {
            resources.insert(list.into(), amounts.into());
        }
    }
    let mut container =
        json!({"name": name, "image": "image", "env": [{"name": "A", "value": "b"}]});
    if !resources.is_empty() {
        container["resources"] = resources.into();
    }
    container
}

fn pod(random: &mut Random) -> Value {
    let mut labels = json!({"app": random.of(&["web", "job", "db"])});
    let mut annotations = json!({"owner": "team"});
    let mut spec = json!({"nodeSelector": {"disk": "ssd"}});
    // A third of the pods have a row of the panorama, so that many are admitted.
    if random.one_in(3) {
        let (class, band) = random.of(&[
            ("LS", "koord-mid"),
            ("BE", "koord-mid"),
            ("BE", "koord-batch"),
            ("LS", "koord-prod"),
        ]);
        labels[keys::KOORDINATOR_CLASS] = json!(class);
        labels[keys::KOORDINATOR_BAND] = json!(band);
    } else {
        if random.one_in(3) {
            labels[keys::KOORDINATOR_CLASS] = json!(random.of(&CLASSES));
        }
        if random.one_in(3) {
            labels[keys::KOORDINATOR_BAND] = json!(random.of(&BANDS));
        }
        if random.one_in(4) {
            annotations[keys::LEVEL] = json!(random.of(&LEVELS));
        }
        if random.one_in(4) {
            spec["priorityClassName"] = json!(random.of(&BANDS));
        }
    }
    if random.one_in(20) {
        annotations["katalyst.kubewharf.io/memory_enhancement"] = json!(random.of(&["{}", "x"]));
    }
    let count = 1 + random.below(3);
    spec["containers"] = (0..count)
        .map(|i| container(random, format!("app{i}")))
        .collect();
    if random.one_in(3) {
        let count = 1 + random.below(2);
        let init = |i| {
            let mut made = container(random, format!("init{i}"));
            if random.one_in(2) {
                made["restartPolicy"] = json!("Always");
            }
            made
        };
        spec["initContainers"] = (0..count).map(init).collect();
    }
    if random.one_in(10) {
        spec["overhead"] = json!({"cpu": "10m"});
    }
    if random.one_in(30) {
        spec["resources"] = json!({"limits": {"cpu": "1"}});
    }
    // The API server's record of the request: the webhook's own annotations are not in it, so a second call believes them.
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "web-", "namespace": "shop", "labels": labels,
        "annotations": annotations, "managedFields": [{}]}, "spec": spec})
}

fn profile(random: &mut Random, name: &str) -> ColocationProfile {
    let mut profile = ColocationProfile::new(name);
    let map = |key: &str, value: &str| [(key.to_owned(), value.to_owned())].into();
    match random.below(8) {
        0 => profile.labels = map("set", "value"),
        1 => profile.label_suffixes = map("app", "-x"),
        2 => profile.annotation_keys_mapping = map("owner", "copy"),
        3 => profile.qos_class = Some(random.of(&CLASSES[..5]).to_owned()),
        4 => profile.priority_class_name = Some(random.of(&BANDS).to_owned()),
        5 => {
            profile.patch = Some(
                json!({"spec": {"containers": [{"name": "app0", "env": [{"name": "B", "value": "c"}]}]}}),
            )
        }
        6 => profile.labels = map(keys::KOORDINATOR_BAND, random.of(&BANDS)),
        _ => profile.scheduler_name = Some("ours".to_owned()),
    }
    if random.one_in(3) {
        profile.probability = Probability::percent(random.below(101) as i64);
    }
    profile
}

fn limit_range(random: &mut Random) -> LimitRange {
    let mut texts = |cpu, memory| {
        let mut texts = std::collections::BTreeMap::new();
        if !random.one_in(3) {
            texts.insert("cpu".to_owned(), String::from(cpu));
        }
        if !random.one_in(3) {
            texts.insert("memory".to_owned(), String::from(memory));
        }
        texts
    };
    LimitRange {
        name: "defaults".into(),
        items: vec![LimitRangeItem {
            kind: LimitKind::Container,
            default: texts("4", "4Gi"),
            default_request: texts("100m", "64Mi"),
            min: Default::default(),
            max: Default::default(),
            max_limit_request_ratio: Default::default(),
        }],
    }
}

fn words(pod: &Value) -> QosLabels<'_> {
    let mut account = None;
    for list in ["containers", "initContainers"] {
        for container in pod["spec"][list].as_array().into_iter().flatten() {
            for kind in ["requests", "limits"] {
                let names = container["resources"][kind].as_object();
                let found = names
                    .into_iter()
                    .flatten()
                    .filter_map(|(name, _)| TierAccount::of(name));
                account = account.into_iter().chain(found).max();
            }
        }
    }
    let metadata = &pod["metadata"];
    QosLabels {
        katalyst_level: metadata["annotations"][keys::LEVEL].as_str(),
        koordinator_class: metadata["labels"][keys::KOORDINATOR_CLASS].as_str(),
        koordinator_band: metadata["labels"][keys::KOORDINATOR_BAND].as_str(),
        priority_class: pod["spec"]["priorityClassName"].as_str(),
        account,
    }
}

fn is_translated(resource: &str) -> bool {
    matches!(resource, "cpu" | "memory") || TierAccount::of(resource).is_some()
}

/// The pod without what admission may translate or add.
fn rest(pod: &Value) -> Value {
    let mut pod = pod.clone();
    for list in ["/spec/containers", "/spec/initContainers"] {
        let containers = pod.pointer_mut(list).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            let container = container.as_object_mut().unwrap();
            let Some(resources) = container
                .get_mut("resources")
                .and_then(Value::as_object_mut)
            else {
                continue;
            };
            for kind in ["requests", "limits"] {
                if let Some(amounts) = resources.get_mut(kind).and_then(Value::as_object_mut) {
                    amounts.retain(|name, _| !is_translated(name));
                    if amounts.is_empty() {
                        resources.remove(kind);
                    }
                }
            }
            if resources.is_empty() {
                container.remove("resources");
            }
        }
    }
    let annotations = pod
        .pointer_mut("/metadata/annotations")
        .and_then(Value::as_object_mut)
        .unwrap();
    for key in [
        keys::PROFILES,
        keys::EXTENDED_RESOURCES,
        "kubernetes.io/limit-ranger",
    ] {
        annotations.remove(key);
    }
    pod
}

/// Cpu or memory of a container, under its native name or a tier's: thousandths of cores, or bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Amounts {
    native_request: Option<i64>,
    native_limit: Option<i64>,
    tier_request: Option<i64>,
    tier_limit: Option<i64>,
}

impl Amounts {
    fn of(container: &Value, native: &str) -> Self {
        let quantity = |text: &Value| Quantity::parse(text.as_str()?).ok();
        let own = |kind: &str| {
            let quantity = quantity(&container["resources"][kind][native])?;
            Some(match native {
                "cpu" => quantity.milli(),
                _ => quantity.units(),
            })
        };
        let tier = |kind: &str| {
            let mut amounts = container["resources"][kind].as_object()?.iter();
            let is_tier = |name: &str| TierAccount::of(name).is_some() && name.ends_with(native);
            let (_, text) = amounts.find(|(name, _)| is_tier(name))?;
            Some(quantity(text)?.units())
        };
        Self {
            native_request: own("requests"),
            native_limit: own("limits"),
            tier_request: tier("requests"),
            tier_limit: tier("limits"),
        }
    }

    /// What the translation must make of them; none if it must refuse the pod.
    fn translated(self, class: QosClass, has_default_limit: bool) -> Option<Self> {
        let keeps_limits = class == QosClass::MidLatencySensitive;
        let positive = |amount: Option<i64>| amount.filter(|amount| *amount > 0);
        let both =
            |native: Option<i64>, tier: Option<i64>| positive(native).is_some() && tier.is_some();
        let mixes_limits = both(self.native_limit, self.tier_limit) && !keeps_limits;
        if both(self.native_request, self.tier_request) || mixes_limits {
            return None;
        }
        let limit = self.tier_limit.or(positive(self.native_limit));
        // A request of 0 is one, unless there is no limit: then it says nothing.
        let request = self.native_request.filter(|it| *it > 0 || limit.is_some());
        let request = self.tier_request.or(request).or(limit);
        let native_limit = match keeps_limits {
            true => Some(positive(self.native_limit).or(limit)?),
            false => (has_default_limit || self.native_limit == Some(0)).then_some(0),
        };
        Some(Self {
            native_request: Some(0),
            native_limit,
            tier_request: request,
            tier_limit: limit,
        })
    }
}

struct World {
    pod: Value,
    settings: AdmissionSettings,
    ranges: Vec<LimitRange>,
    namespace: Labels,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let pod = pod(&mut random);
        let profiles = match random.one_in(2) {
            true => 0,
            false => random.below(4),
        };
        let class = |name: &str| {
            let class = PriorityClass {
                name: name.into(),
                value: 5000,
                global_default: false,
                preemption_policy: PreemptionPolicy::LowerPriority,
            };
            (class.name.clone(), class)
        };
        Self {
            pod,
            settings: AdmissionSettings {
                profiles: (0..profiles)
                    .map(|i| profile(&mut random, &format!("p{i}")))
                    .collect(),
                priority_classes: BANDS[..3].iter().map(|name| class(name)).collect(),
                ..AdmissionSettings::default()
            },
            ranges: (0..usize::from(random.one_in(4)))
                .map(|_| limit_range(&mut random))
                .collect(),
            namespace: Labels::default(),
        }
    }

    fn request<'a>(&'a self, uid: &'a str, pod: &'a Value) -> AdmissionRequest<'a> {
        AdmissionRequest {
            uid,
            user: "alice",
            controllers: "",
            namespace: Some(&self.namespace),
            limit_ranges: &self.ranges,
            pod,
        }
    }
}

#[test]
fn admission_of_random_pods() {
    let is_full = std::env::var_os("TIDEPOOL_FULL").is_some();
    let pods: u64 = if is_full { 100_000 } else { 5_000 };
    let (mut admitted, mut translated, mut refused) = (0, 0, 0);
    for seed in 0..pods {
        let world = World::new(seed);
        let case = || format!("seed {seed}: {}", world.pod);
        if let Ok(first) = mutate(&world.request("first", &world.pod), &world.settings) {
            let second = mutate(&world.request("second", &first.pod), &world.settings)
                .unwrap_or_else(|refused| panic!("{}: refused the second time: {refused}", case()));
            assert_eq!(second.pod, first.pod, "{}", case());
            check_kept(&world, &first, &case());
        }
        match admit(&world.request("first", &world.pod), &world.settings) {
            Err(_) => refused += 1,
            Ok(first) => {
                admitted += 1;
                let second = admit(&world.request("second", &first.pod), &world.settings).unwrap();
                assert_eq!(second.pod, first.pod, "{}", case());
                assert!(validate(&world.request("first", &first.pod)).is_ok());
                translated += u64::from(check_class(&world, &first.pod, &case()));
            }
        }
    }
    // The cases must exercise each way to end.
    let few = pods / 20;
    assert!(
        admitted > few && translated > few && refused > few,
        "{admitted} admitted, {translated} of them translated, {refused} refused"
    );
}

/// Nothing of the user's is lost but what is translated, and that is translated by the rules of its class.
fn check_kept(world: &World, change: &Mutation, case: &str) {
    let (before, after) = (&world.pod, &change.pod);
    if change.warnings.iter().any(|it| it.contains("as it is")) {
        assert_eq!(after, before, "{case}");
        return;
    }
    match world.settings.profiles.is_empty() {
        true => assert_eq!(rest(after), rest(before), "{case}"),
        false => check_contains(&rest(after), &rest(before), case),
    }
    let labels = words(after);
    let class = labels.strict().unwrap();
    let account = labels.account_of(class);
    for list in ["containers", "initContainers"] {
        let containers = before["spec"][list].as_array().into_iter().flatten();
        for (i, container) in containers.enumerate() {
            for native in ["cpu", "memory"] {
                let old = Amounts::of(container, native);
                let new = Amounts::of(&after["spec"][list][i], native);
                let has_default = world
                    .ranges
                    .iter()
                    .flat_map(|range| &range.items)
                    .any(|item| item.default.contains_key(native));
                let want = match account {
                    Some(_) => old.translated(class, has_default),
                    None => Some(old),
                };
                assert_eq!(Some(new), want, "{case}: {native} of container {i}");
            }
        }
    }
}

/// Profiles add to the pod and set only what they name.
fn check_contains(whole: &Value, part: &Value, case: &str) {
    const SET: [&str; 4] = [
        "app",
        keys::KOORDINATOR_CLASS,
        keys::KOORDINATOR_BAND,
        "priorityClassName",
    ];
    match (whole, part) {
        (Value::Object(whole), Value::Object(part)) => {
            for (key, part) in part {
                let found = whole.get(key);
                let found = found.unwrap_or_else(|| panic!("{case}: {key} is gone"));
                if !SET.contains(&key.as_str()) {
                    check_contains(found, part, case);
                }
            }
        }
        // A patch may put its own entries first.
        (Value::Array(whole), Value::Array(part)) => {
            for part in part {
                let found = whole.iter().find(|it| it["name"] == part["name"]);
                let found = found.unwrap_or_else(|| panic!("{case}: {part} is gone"));
                check_contains(found, part, case);
            }
        }
        _ => assert_eq!(whole, part, "{case}"),
    }
}

/// The admitted pod is of the class that was asked for. True if it has tier resources.
fn check_class(world: &World, after: &Value, case: &str) -> bool {
    let class = words(after).strict().unwrap();
    if world.settings.profiles.is_empty() {
        assert_eq!(Ok(class), words(&world.pod).strict(), "{case}");
    }
    let qos = pod_qos(after);
    match class {
        QosClass::MidLatencySensitive => assert_eq!(qos, PodQos::Burstable, "{case}"),
        QosClass::MidBestEffort | QosClass::Lent => assert_eq!(qos, PodQos::BestEffort, "{case}"),
        _ => {}
    }
    words(after).account_of(class).is_some()
}
