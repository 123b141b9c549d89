//! The recorded stories played again in the simulator: the same sequence on each channel, times aside.

use std::time::Duration;

use super::stage::Stage;
use super::told::{Told, recorded};
use crate::kmm::tests::story::{Event, Story, stories};

/// What the recording does not show: what was set up before the story.
fn annotations(story: &str) -> &'static [(&'static str, &'static str)] {
    match story {
        "s05" => &[("plugin.stop-seconds", "25")],
        "s30" => &[("plugin.stop-seconds", "12")],
        "s38" => &[("plugin.stop-seconds", "3")],
        "s43" => &[("unload.exit-after-seconds", "8")],
        _ => &[],
    }
}

/// What others than the user do at the beginning of a step, and how long it takes at least.
async fn before(stage: &mut Stage, story: &str, step: usize) -> Duration {
    let seconds = Duration::from_secs;
    match (story, step) {
        ("s05", 0) => return seconds(60),
        ("s06" | "s40", 0) => stage.hold_module().await,
        ("s06", 1) => {}
        ("s06", 2) => {
            stage.let_go().await;
            return seconds(120);
        }
        ("s10", 2) => stage.tell("unload.exit-after-seconds", "12").await,
        ("s13", 0) => {
            stage.kubelets.kill("node-a");
            return seconds(30);
        }
        ("s13", 1) => {
            stage.kubelets.revive("node-a");
            return seconds(15);
        }
        ("s14", 0) | ("s31", 0) => fast_reboot(stage, story, "node-a"),
        ("s14", 1) | ("s31", 1) => fast_reboot(stage, story, "node-b"),
        ("s15", 0) => {
            stage.kubelets.power_off("node-a");
            return seconds(30);
        }
        ("s15", 2) => {
            stage.kubelets.power_off("node-b");
            return seconds(30);
        }
        ("s15", 1) => stage.kubelets.power_on("node-a"),
        ("s15", 3) => stage.kubelets.power_on("node-b"),
        ("s22", 0) => stage.kill_operator(),
        ("s22", 1) | ("s23", 1) | ("s23", 3) => stage.start_operator(),
        ("s24", 0) => stage.tell("pull.exit-after-seconds", "40").await,
        ("s24", 2) => return seconds(60),
        ("s40", 1) => {
            stage.let_go().await;
            stage.kubelets.reboot_in("node-a", Duration::from_millis(5));
            return seconds(60);
        }
        ("s47", 0) => {
            stage.kubelets.power_off("node-b");
            return seconds(30);
        }
        ("s47", 1) => stage.kubelets.power_on("node-b"),
        _ => {}
    }
    Duration::ZERO
}

fn fast_reboot(stage: &Stage, story: &str, node: &str) {
    if story == "s31" {
        stage.kubelets.set_kernel_version(node, "6.2.0-test");
    }
    stage.kubelets.reboot_in(node, Duration::from_millis(5));
}

/// The steps in which the operator is killed, and when.
fn killed(story: &str, step: usize) -> Option<Duration> {
    match (story, step) {
        ("s23", 0) => Some(Duration::from_millis(2500)),
        ("s23", 2) => Some(Duration::from_millis(5000)),
        _ => None,
    }
}

fn story(name: &str) -> Story {
    stories().into_iter().find(|story| story.name == name).expect("a recorded story")
}

async fn replay(name: &str) {
    let story = story(name);
    let mut stage = Stage::new(&story.start, annotations(name)).await;
    let mut wrong = Vec::new();
    for (n, step) in story.steps.iter().enumerate() {
        let at_least = before(&mut stage, name, n).await;
        let told = match killed(name, n) {
            None => stage.play(step, at_least).await,
            Some(after) => {
                let mut first = step.clone();
                let split = first.events.iter().position(|event| event.ms > after.as_millis() as u64 && event.who == "user");
                let rest = split.map(|at| first.events.split_off(at)).unwrap_or_default();
                for event in first.events.iter().filter(|event| event.who == "user") {
                    stage.act(&event.what).await;
                }
                tokio::time::sleep(after).await;
                stage.kill_operator();
                for event in rest.iter().filter(|event| event.who == "user") {
                    stage.act(&event.what).await;
                }
                tokio::time::sleep(Duration::from_secs(5)).await;
                stage.told()
            }
        };
        compare(n, [recorded(&step.events), recorded(&turned(&step.events))], &told, &mut wrong);
    }
    assert!(wrong.is_empty(), "{name}:\n{}", wrong.join("\n"));
}

/// The step with those events the other way round that are in one millisecond of the recording: it does not tell their order.
fn turned(events: &[Event]) -> Vec<Event> {
    events.chunk_by(|one, next| one.ms == next.ms).flat_map(|same| same.iter().rev()).cloned().collect()
}

fn compare(step: usize, recorded: [Told; 2], told: &Told, wrong: &mut Vec<String>) {
    let [expected, turned] = recorded;
    let channels: std::collections::BTreeSet<&String> = expected.keys().chain(told.keys()).collect();
    for channel in channels {
        let (expected, turned, told) = (expected.get(channel), turned.get(channel), told.get(channel));
        if expected != told && turned != told {
            let empty = Vec::new();
            wrong.push(format!(
                "step {step}, {channel}\n  recorded  {}\n  simulated {}",
                expected.unwrap_or(&empty).join(" | "),
                told.unwrap_or(&empty).join(" | ")
            ));
        }
    }
}

macro_rules! stories {
    ($($test:ident $name:literal,)*) => {
        $(
            #[tokio::test(start_paused = true)]
            async fn $test() {
                replay($name).await;
            }
        )*

        #[test]
        fn every_recorded_story_is_played() {
            let played = [$($name),*];
            let recorded: Vec<String> = stories().into_iter().map(|story| story.name).collect();
            assert!(recorded.iter().all(|name| played.contains(&name.as_str())), "{recorded:?}");
        }
    };
}

stories! {
    s01_install_and_delete_without_version "s01",
    s03_ordered_upgrade_on_both_paths "s03",
    s05_a_plugin_that_needs_25_s_to_end "s05",
    s06_unload_crash_loop "s06",
    s10_cordon_uncordon_and_a_hanging_unload "s10",
    s13_short_not_ready_in_the_same_boot "s13",
    s14_fast_reboot "s14",
    s15_reboot_through_not_ready "s15",
    s16_unknown_version_label_first_and_a_rollback_that_fails "s16",
    s20_old_daemon_set_collected_by_a_cordon "s20",
    s21_dra "s21",
    s22_label_changes_while_the_operator_is_down "s22",
    s23_operator_killed_in_unload_and_in_load "s23",
    s24_new_image_cannot_be_pulled "s24",
    s25_image_without_version_and_version_without_image "s25",
    s28_internal_labels_removed_by_hand "s28",
    s30_a_label_wakes_the_back_off "s30",
    s31_reboot_into_another_kernel "s31",
    s32_edit_back_and_a_rollback_that_works "s32",
    s38_cordon_first_and_cordon_in_the_middle "s38",
    s40_reboot_out_of_a_stuck_unload "s40",
    s43_kubectl_drain "s43",
    s44_empty_config_and_a_label_removed_during_a_load "s44",
    s47_all_taints_tolerated "s47",
}

/// The whole way: objects of the simulated operator, over the API, through the reader, to what `status` prints.
#[tokio::test(start_paused = true)]
async fn what_the_operator_writes_is_read_over_the_api_and_nothing_is_written() {
    let start = story("s03").start;
    let mut stage = Stage::new(
        &crate::kmm::tests::story::Start { module: Some("1.0".into()), nodes: vec!["1.0".into(), "1.0".into()], ..start },
        &[],
    )
    .await;
    let cluster = stage.read_only();
    let read = crate::cluster::kmm::read(&cluster).await.expect("it can be read").expect("KMM is there");
    assert!(read.undecodable.is_empty(), "{:?}", read.undecodable);
    let report = crate::cli::render::kmm::report(&read);
    let loaded: Vec<Option<&str>> = report.nodes.iter().map(|node| node.loaded.as_deref()).collect();
    assert_eq!(loaded, [Some("1.0"), Some("1.0")], "{report:?}");
    assert_eq!((report.modules[0].nodes, report.modules[0].current), (2, 2));
    let kinds: Vec<&str> = report.problems.iter().map(|problem| problem.kind.as_str()).collect();
    assert_eq!(kinds, ["UnloadsOnTaints"], "{report:?}");
    assert!(stage.told().is_empty());
    let bare = crate::sim::apiserver::ApiServer::new(crate::sim::apiserver::Config::default());
    let client = bare.client(&crate::sim::apiserver::Identity::new("reader"));
    let cluster = crate::cluster::Cluster::over(client, true, "simulated", "in this process");
    assert!(crate::cluster::kmm::read(&cluster).await.expect("it can be read").is_none(), "no KMM is no error");
}
