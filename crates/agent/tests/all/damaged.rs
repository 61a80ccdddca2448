//! A journal that is damaged: what `--restore` makes of it.

use std::fs;
use std::io;

use agent::hierarchy::Version;
use agent::write::{Mode, Writer};
use engine::model::{Name, QosClass};
use engine::node::{Bytes, LocalContainer, LocalPod, SettingValue};

use crate::fake::UID;
use crate::write::{CONTAINER, Fixture, Model, container, cpus, fixture, pod};

#[test]
fn a_damaged_journal_restores_what_it_has_and_counts_from_anew() {
    let mut fixture = with_damaged_limit();
    let damaged = fs::read_to_string(fixture.journal()).unwrap();
    let refused = Writer::new(Mode::Apply, fixture.journal()).unwrap_err();
    let refused = refused.to_string();
    let why = "is damaged: 1 of its records can be read, 1 cannot; the agent writes no cgroup file until `tidepool agent --restore`";
    assert!(refused.ends_with(why), "{refused}");
    let mut writer = Writer::for_restore(Mode::Apply, fixture.journal()).unwrap();
    assert!(writer.damage().is_some());
    let report = writer.restore(&mut fixture.model);
    assert_eq!(report.failed, []);
    let file = |name: &str| &fixture.model.files[&format!("kubepods/besteffort/pod{UID}/{name}")];
    assert_eq!(file("cpu.shares"), "2");
    assert_eq!(file("memory.limit_in_bytes"), "1048576");
    let aside = fixture.directory.path().join("journal.damaged");
    assert_eq!(fs::read_to_string(aside).unwrap(), damaged);
    // The next agent begins with an empty journal.
    fixture.writer = Writer::new(Mode::Apply, fixture.journal()).unwrap();
    let settings = [pod(SettingValue::CpuShares(512))];
    assert_eq!(fixture.apply(&settings, 20).failed, []);
    assert!(Writer::new(Mode::Apply, fixture.journal()).is_ok());
}

#[test]
fn files_without_a_record_get_the_values_of_the_kubelet() {
    use agent::write::kubelet_values::{Cpusets, kubelet_values};
    for version in [Version::V1, Version::V2] {
        let mut fixture = fixture(version, Mode::Apply);
        let before = fixture.model.files.clone();
        let limit = SettingValue::MemoryLimit(Some(Bytes(1 << 20)));
        let settings = [
            pod(SettingValue::CpuShares(512)),
            pod(SettingValue::CpuQuota(Some(5000))),
            pod(limit),
            pod(cpus("1-2")),
            container(cpus("1-2")),
            container(SettingValue::CpuShares(512)),
        ];
        assert_eq!(fixture.apply(&settings, 1).failed, [], "{version:?}");
        fs::remove_file(fixture.journal()).unwrap();
        let mut lent = LocalPod {
            group: Name::from(UID),
            class: QosClass::Lent,
            ..LocalPod::default()
        };
        lent.containers.push(LocalContainer {
            id: Some(Name::from(CONTAINER)),
            ..LocalContainer::default()
        });
        let (model, tree) = (&mut fixture.model, &fixture.tree);
        let values = kubelet_values(model, tree, &[lent], Cpusets::Inherited);
        let mut writer = Writer::for_restore(Mode::Apply, fixture.journal()).unwrap();
        assert!(writer.damage().is_some(), "{version:?}");
        let report = writer.restore_with(&mut fixture.model, values);
        assert_eq!(report.failed, [], "{version:?}");
        let mut after = fixture.model.effective_files();
        // The kernel shows no limit as a number.
        for (file, text) in &mut after {
            if file.ends_with("limit_in_bytes") && text == "-1" {
                *text = "9223372036854771712".to_owned();
            }
        }
        assert_eq!(
            after,
            Model::new(version, before).effective_files(),
            "{version:?}"
        );
    }
}

/// A journal of which the record of the memory limit is damaged.
fn with_damaged_limit() -> Fixture {
    let mut fixture = fixture(Version::V1, Mode::Apply);
    let limit = SettingValue::MemoryLimit(Some(Bytes(1 << 20)));
    let settings = [pod(SettingValue::CpuShares(512)), pod(limit)];
    assert_eq!(fixture.apply(&settings, 1).failed, []);
    let text = fs::read_to_string(fixture.journal()).unwrap();
    let damaged = text.replace("9223372036854771712", "9223372036854771713");
    fs::write(fixture.journal(), damaged).unwrap();
    fixture
}

#[test]
fn a_failed_write_leaves_the_journal_damaged() {
    let mut fixture = with_damaged_limit();
    let shares = format!("kubepods/besteffort/pod{UID}/cpu.shares");
    let files = || ["journal", "journal.count"].map(|name| fixture.directory.path().join(name));
    let before = files().map(|file| fs::read(file).unwrap());
    for round in 0..2 {
        fixture.model.refuse = Some(io::ErrorKind::PermissionDenied);
        let mut writer = Writer::for_restore(Mode::Apply, fixture.journal()).unwrap();
        let damage = writer.damage().cloned();
        assert!(damage.is_some(), "{round}");
        let report = writer.restore(&mut fixture.model);
        let failed: Vec<&str> = report.failed.iter().map(|(file, _)| &**file).collect();
        assert_eq!(failed, [&shares], "{round}");
        assert_eq!(writer.damage(), damage.as_ref(), "{round}");
        assert_eq!(
            files().map(|file| fs::read(file).unwrap()),
            before,
            "{round}"
        );
        assert!(
            Writer::new(Mode::Apply, fixture.journal()).is_err(),
            "{round}"
        );
    }
    fixture.model.refuse = None;
    let mut writer = Writer::for_restore(Mode::Apply, fixture.journal()).unwrap();
    let report = writer.restore(&mut fixture.model);
    assert_eq!(report.failed, []);
    assert_eq!(report.written, [(shares, "2".to_owned())]);
    assert!(Writer::new(Mode::Apply, fixture.journal()).is_ok());
}

#[test]
fn a_number_of_records_that_is_empty_is_damage() {
    let fixture = with_damaged_limit();
    fs::write(fixture.journal(), "").unwrap();
    fs::write(fixture.directory.path().join("journal.count"), "").unwrap();
    let refused = Writer::new(Mode::Apply, fixture.journal())
        .unwrap_err()
        .to_string();
    let why = "is damaged: the file with the number of its records cannot be read; the agent writes no cgroup file until";
    assert!(refused.contains(why), "{refused}");
}
