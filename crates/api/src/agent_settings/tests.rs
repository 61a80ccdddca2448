use std::collections::BTreeMap;
use std::time::Duration;

use engine::model::{Labels, Name};
use engine::node::settings::SuppressPolicy;
use engine::node::{AgentSettings, CpuMemory, Lend};

use super::*;

fn labels(pairs: &[(&str, &str)]) -> Labels {
    let pairs = pairs.iter();
    pairs
        .map(|(key, value)| (Name::from(*key), Name::from(*value)))
        .collect()
}

fn read(key: &str, text: &str) -> Result<AgentSettings, String> {
    let data = BTreeMap::from([(key.to_owned(), text.to_owned())]);
    agent_settings(&data, &labels(&[("pool", "batch")])).map_err(|error| error.to_string())
}

#[test]
fn without_settings_everything_that_protects_is_on() {
    let settings = agent_settings(&BTreeMap::new(), &labels(&[])).unwrap();
    assert_eq!(settings, AgentSettings::default());
    let it = &settings.thresholds;
    assert!(it.enable && settings.reclaim.enable && settings.interference.enable);
    assert_eq!((it.cpu_suppress, it.cpu_suppress_min), (65, None));
    assert_eq!((it.satisfaction_lower, it.satisfaction_upper), (60, 80));
    assert_eq!(it.cpu_evict_window, Duration::from_secs(60));
    assert_eq!((it.cpu_evict, it.cpu_evict_lower), (90, 85));
    assert_eq!((it.memory_evict, it.memory_evict_lower), (70, 68));
    let psi = &settings.interference;
    assert_eq!((psi.pressure, psi.periods), (20.0, 3));
    assert_eq!(psi.period, Duration::from_secs(10));
    assert_eq!(settings.reclaim.min_for_report, CpuMemory::ZERO);
    for key in [COLOCATION, THRESHOLDS, RECLAIMED] {
        assert_eq!(read(key, " "), Ok(AgentSettings::default()), "{key}");
        assert_eq!(read(key, "{}"), Ok(AgentSettings::default()), "{key}");
    }
}

#[test]
fn thresholds_of_the_cluster_and_of_some_nodes() {
    let text = r#"{
        "clusterStrategy": {"enable": true, "cpuSuppressThresholdPercent": 70, "memoryEvictThresholdPercent": 80},
        "nodeStrategies": [
            {"name": "none", "cpuSuppressThresholdPercent": 1},
            {"name": "other", "nodeSelector": {"matchLabels": {"pool": "web"}}, "cpuSuppressThresholdPercent": 2},
            {"name": "batch", "nodeSelector": {"matchLabels": {"pool": "batch"}}, "cpuSuppressPolicy": "cfsQuota", "cpuEvictTimeWindowSeconds": 30},
            {"name": "all", "nodeSelector": {}, "cpuSuppressThresholdPercent": 3}
        ]
    }"#;
    let thresholds = read(THRESHOLDS, text).unwrap().thresholds;
    assert_eq!(thresholds.cpu_suppress, 70);
    assert_eq!(thresholds.cpu_suppress_policy, SuppressPolicy::CfsQuota);
    assert_eq!(thresholds.cpu_evict_window, Duration::from_secs(30));
    assert_eq!(
        (thresholds.memory_evict, thresholds.memory_evict_lower),
        (80, 78)
    );
    let off = read(THRESHOLDS, r#"{"clusterStrategy": {"enable": false}}"#).unwrap();
    assert!(!off.thresholds.enable);
}

#[test]
fn reclaimed_resources_in_the_words_of_katalyst() {
    let text = r#"{
        "enableReclaim": true, "reservedResourceForReport": {"cpu": "2", "memory": "1Gi"},
        "minReclaimedResourceForReport": {"cpu": 4, "memory": "5Gi"},
        "reservedResourceForAllocate": {"cpu": "500m"},
        "cpuHeadroomConfig": {"utilBasedConfig": {"enable": true, "targetReclaimedCoreUtilization": 0.7, "maxOversoldRate": 1.5}},
        "memoryHeadroomConfig": {"utilBasedConfig": {"enable": true, "staticBasedCapacity": 21474836480, "requestBasedRatio": 0.1}}
    }"#;
    let reclaim = read(RECLAIMED, text).unwrap().reclaim;
    assert_eq!(reclaim.reserved_for_report, CpuMemory::new(2000, 1 << 30));
    assert_eq!(reclaim.min_for_report, CpuMemory::new(4000, 5 << 30));
    let reserve = Some(CpuMemory::new(500, 5 << 30));
    assert_eq!(reclaim.reserved_for_allocate, reserve);
    assert!(reclaim.cpu.enable && reclaim.memory.enable);
    assert_eq!(
        (reclaim.cpu.target, reclaim.cpu.max_oversold_rate),
        (0.7, 1.5)
    );
    assert_eq!(reclaim.memory.static_based_capacity, 20 << 30);
    let off = read(RECLAIMED, r#"{"enableReclaim": false}"#).unwrap();
    assert!(!off.reclaim.enable);
}

#[test]
fn lend_is_the_only_field_of_the_colocation_config() {
    for (text, want) in [
        ("{}", Lend::Shared),
        (
            r#"{"enable": true, "cpuReclaimThresholdPercent": 60}"#,
            Lend::Shared,
        ),
        (r#"{"lend": "batch"}"#, Lend::Batch),
        (
            r#"{"lend": "batch", "nodeConfigs": [{"nodeSelector": {"matchLabels": {"pool": "batch"}}, "lend": "reclaimed"}]}"#,
            Lend::Reclaimed,
        ),
        (
            r#"{"lend": "batch", "nodeConfigs": [{"nodeSelector": {"matchLabels": {"pool": "web"}}, "lend": "reclaimed"}]}"#,
            Lend::Batch,
        ),
    ] {
        assert_eq!(read(COLOCATION, text).unwrap().lend, want, "{text}");
    }
}

#[test]
fn faults_name_the_key_the_value_and_what_is_allowed() {
    for (key, text, want) in [
        (
            COLOCATION,
            r#"{"lend": "gold"}"#,
            "colocation-config: line 1: lend: found `gold`; allowed: reclaimed, batch or shared",
        ),
        (
            THRESHOLDS,
            "{\"clusterStrategy\": {\n  \"cpuSuppressThresholdPercent\": 101}}",
            "resource-threshold-config: line 2: clusterStrategy.cpuSuppressThresholdPercent: found 101; allowed: 0 to 100",
        ),
        (
            THRESHOLDS,
            r#"{"clusterStrategy": {"memoryEvictThresholdPercent": 70, "memoryEvictLowerPercent": 70}}"#,
            "resource-threshold-config: line 1: clusterStrategy.memoryEvictLowerPercent: found 70; allowed: at most 69, because of memoryEvictThresholdPercent",
        ),
        (
            THRESHOLDS,
            r#"{"clusterStrategy": {"cpuSuppressPolicy": "cpu"}}"#,
            "resource-threshold-config: line 1: clusterStrategy.cpuSuppressPolicy: found `cpu`; allowed: cpuset or cfsQuota",
        ),
        (
            RECLAIMED,
            r#"{"reservedResourceForReport": {"cpu": "-1"}}"#,
            "reclaimed-resource-config: line 1: reservedResourceForReport.cpu: found `-1`; allowed: a quantity of 0 or more",
        ),
    ] {
        assert_eq!(read(key, text).unwrap_err(), want);
    }
    for (key, text, part) in [
        (
            THRESHOLDS,
            r#"{"clusterStrategy": {"cpuSupressThresholdPercent": 1}}"#,
            "cpuSupressThresholdPercent",
        ),
        (THRESHOLDS, "{", "resource-threshold-config: "),
        (RECLAIMED, r#"{"enableReclaim": "yes"}"#, "enableReclaim"),
        (RECLAIMED, "[]", "reclaimed-resource-config: "),
    ] {
        let error = read(key, text).unwrap_err();
        assert!(error.contains(part), "{text}: {error}");
    }
}

#[test]
fn a_settings_file_is_a_configmap_or_its_data() {
    let manifest = "kind: ConfigMap\nmetadata: {name: tidepool-colocation}\ndata:\n  colocation-config: '{\"lend\": \"batch\"}'\n";
    let plain = "colocation-config:\n  lend: batch\n";
    for text in [manifest, plain] {
        let data = agent_settings_file(text).unwrap();
        let settings = agent_settings(&data, &labels(&[])).unwrap();
        assert_eq!(settings.lend, Lend::Batch, "{text}");
    }
    let error = agent_settings_file("colocation-conf: {}").unwrap_err();
    assert_eq!(
        error.to_string(),
        "unknown key `colocation-conf`, did you mean `colocation-config`?"
    );
}
