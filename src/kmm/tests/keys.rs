//! The keys of all generations, there and back, their lengths, and the names that KMM confuses.

use crate::{
    api::ObjectKey,
    kmm::keys::{self, Era, Label, PREFIX},
};

fn module(namespace: &str, name: &str) -> ObjectKey {
    ObjectKey::new(namespace, name)
}

#[test]
fn every_key_of_every_generation_is_read_back_dots_in_the_name_included() {
    for module in [module("drv", "mod"), module("drv", "my.mod"), module("a-b", "c.d-e.f")] {
        for era in Era::ALL {
            for label in Label::ALL {
                let Some(key) = label.key(&module, era) else { continue };
                let parsed = keys::parse(&key).unwrap_or_else(|| panic!("{key}"));
                assert_eq!((parsed.label, &parsed.module), (label, &module), "{key}");
                assert!(label.keys(&module).contains(&key), "{key}");
                assert!(parsed.era.is_none_or(|found| found == era), "{key}: {:?}", parsed.era);
            }
        }
    }
}

#[test]
fn the_keys_are_those_that_were_seen_on_real_nodes() {
    let module = module("drv", "mod");
    let seen: &[(Label, Era, &str)] = &[
        (Label::Desired, Era::Third, "kmm.node.kubernetes.io/version-module.drv.mod"),
        (Label::Loader, Era::Third, "beta.kmm.node.kubernetes.io/version-worker-pod.drv.mod"),
        (Label::Loader, Era::First, "beta.kmm.node.kubernetes.io/version-module-loader.drv.mod"),
        (Label::Schedule, Era::Third, "beta.kmm.node.kubernetes.io/version-schedule-pod.drv.mod"),
        (Label::Schedule, Era::Second, "beta.kmm.node.kubernetes.io/version-device-plugin.drv.mod"),
        (Label::Target, Era::Third, "kmm.node.kubernetes.io/drv.mod.device-plugin-target"),
        (Label::Ready, Era::Third, "kmm.node.kubernetes.io/drv.mod.ready"),
        (Label::VersionReady, Era::Third, "kmm.node.kubernetes.io/drv.mod.version.ready"),
        (Label::PluginReady, Era::Third, "kmm.node.kubernetes.io/drv.mod.device-plugin-ready"),
        (Label::DraReady, Era::Third, "kmm.node.kubernetes.io/drv.mod.dra-ready"),
    ];
    for (label, era, key) in seen {
        assert_eq!(label.key(&module, *era).as_deref(), Some(*key));
    }
    assert_eq!(Label::Target.key(&module, Era::Second), None);
    let odd = keys::parse("beta.kmm.node.kubernetes.io/version-schedule-plugin.drv.mod").map(|parsed| (parsed.label, parsed.era));
    assert_eq!(odd, Some((Label::Schedule, Some(Era::Third))));
}

#[test]
fn keys_of_others_and_cut_keys_are_nothing() {
    for key in [
        "",
        "kmm.node.kubernetes.io/",
        "kmm.node.kubernetes.io/version-module.",
        "kmm.node.kubernetes.io/version-module.drv",
        "kmm.node.kubernetes.io/version-module..mod",
        "kmm.node.kubernetes.io/version-module.drv.",
        "kmm.node.kubernetes.io/kernel-version.full",
        "kmm.node.kubernetes.io/control-plane",
        "kmm.node.kubernetes.io/mod.ready",
        "kmm.node.kubernetes.io/.mod.ready",
        "beta.kmm.node.kubernetes.io/drv.mod.ready",
        "kmm.node.kubernetes.io/version-worker-pod.drv.mod",
        "example.com/version-module.drv.mod",
    ] {
        assert_eq!(keys::parse(key), None, "{key}");
    }
    assert_eq!(keys::without_namespace("kmm.node.kubernetes.io/mod.ready"), Some((Label::Ready, "mod")));
    assert_eq!(keys::without_namespace("kmm.node.kubernetes.io/mod.device-plugin-ready"), Some((Label::PluginReady, "mod")));
    assert_eq!(keys::without_namespace("kmm.node.kubernetes.io/drv.mod.ready"), None);
}

#[test]
fn lengths_are_those_of_63_characters_after_the_slash() {
    let expected: &[(Label, Era, usize)] = &[
        (Label::Desired, Era::Third, 47),
        (Label::Loader, Era::Third, 43),
        (Label::Schedule, Era::Third, 41),
        (Label::Schedule, Era::Second, 40),
        (Label::Ready, Era::Third, 56),
        (Label::VersionReady, Era::Third, 48),
        (Label::PluginReady, Era::Third, 42),
        (Label::Target, Era::Third, 41),
        (Label::DraReady, Era::Third, 52),
    ];
    for (label, era, limit) in expected {
        assert_eq!(label.limit(*era), Some(*limit), "{label:?}");
        let longest = module("ns", &"m".repeat(limit - 2));
        let key = label.key(&longest, *era).unwrap_or_default();
        assert_eq!(key.split_once('/').map(|(_, name)| name.len()), Some(63), "{key}");
    }
    assert_eq!(Era::ALL.map(Era::limit), [40, 40, 41]);
}

#[test]
fn kmm_reads_a_dotted_name_as_another_module() {
    assert_eq!(keys::as_kmm_reads(&module("drv", "mod")), module("drv", "mod"));
    assert_eq!(keys::as_kmm_reads(&module("drv", "my.mod")), module("my", "mod"));
}

#[test]
fn two_modules_are_mixed_up_where_dashes_meet() {
    assert!(keys::mixed_up(&module("a", "b-c"), &module("a-b", "c")));
    assert!(!keys::mixed_up(&module("a", "b"), &module("a", "b")));
    assert!(!keys::mixed_up(&module("a", "b"), &module("a", "c")));
    assert_eq!(keys::worker_pod("a", "b-c"), keys::worker_pod("a-b", "c"));
}

#[test]
fn a_module_named_x_version_is_told_from_x_by_who_exists_and_by_the_value() {
    let (x, longer) = (module("ns", "x"), module("ns", "x.version"));
    let key = format!("{PREFIX}ns.x.version.ready");
    let among = |value: &str, known: &[&ObjectKey]| {
        keys::parse_among(&key, value, |module| known.contains(&module)).map(|parsed| (parsed.label, parsed.module))
    };
    assert_eq!(among("1.0", &[&x]), Some((Label::VersionReady, x.clone())));
    assert_eq!(among("", &[&longer]), Some((Label::Ready, longer.clone())));
    assert_eq!(among("1.0", &[&x, &longer]), Some((Label::VersionReady, x.clone())));
    assert_eq!(among("", &[&x, &longer]), Some((Label::Ready, longer.clone())));
    assert_eq!(among("1.0", &[]), Some((Label::VersionReady, x)));
}
