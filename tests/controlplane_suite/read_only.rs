//! Read-only means that no request leaves which could change anything, even where every right to do so is there. The API server counts.

use std::{process::Command, time::Duration};

use lockkeeper::engine::{
    Engine, EngineOptions,
    intent::{Intent, IntentOutcome},
    picture::Mode,
};
use serde_json::json;

use crate::{
    fleet::{Fleet, LONG},
    site::{Asked, arena, block_on},
    support::controlplane::User,
};

#[test]
fn with_every_right_a_read_only_process_sends_no_write() {
    let Some(arena) = arena() else { return };
    block_on(async {
        let fleet = Fleet::start(&arena.site, "looks", 1, |_| {}).await;
        // Something to do for whoever would.
        fleet.edit_component(json!({"rollout": {"paused": true}})).await;
        fleet.release("2.0", fleet.module("2.0")).await;
        fleet.hand_over("looks-1", "2.0", 1).await;

        for mode in [Mode::ReadOnly, Mode::Intents, Mode::Engine] {
            let cluster = arena.site.cluster(User::Viewer, true).await;
            let options = EngineOptions { mode, identity: "looks".into(), ..EngineOptions::default() };
            let engine = Engine::start(cluster, options);
            let known = engine.until(|picture| {
                let all = picture.fleet.synced && picture.fleet.components.contains_key(&fleet.key());
                all && picture.leadership.holder.as_deref() == Some("arena")
            });
            tokio::time::timeout(LONG, known).await.expect("it sees the component and who leads").expect("the engine runs");
            let (component, node) = (fleet.key(), lockkeeper::api::NodeName::from("looks-1"));
            let intents = [
                fleet.to("looks-1", "2.0"),
                Intent::Abort { component: component.clone(), node: node.clone(), reason: String::new() },
                Intent::Withdraw { component: component.clone(), node },
                Intent::Pause { component, paused: false },
            ];
            for intent in intents {
                let outcome = engine.ask(intent).await;
                assert!(matches!(&outcome, IntentOutcome::Refused { message } if message.contains("read-only")), "{outcome:?}");
            }
            // Longer than an attempt for the Lease takes to come.
            tokio::time::sleep(Duration::from_secs(3)).await;
            assert_eq!(engine.cluster().counters().writes(), 0, "{mode:?}");
            engine.stop().await;
        }

        let commands: [(&str, Option<i32>); 8] = [
            ("status", None),
            ("status -o json", None),
            ("plan looks/gpu looks-1 --to 2.0", None),
            ("doctor", None),
            ("handoff looks/gpu looks-1 --to 2.0", Some(2)),
            ("abort looks/gpu looks-1", Some(2)),
            ("withdraw looks/gpu looks-1", Some(2)),
            ("rollback looks/gpu looks-1", Some(2)),
        ];
        for (command, code) in commands {
            let output = Command::new(env!("CARGO_BIN_EXE_lockkeeper"))
                .arg("--read-only")
                .arg("--kubeconfig")
                .arg(arena.site.plane.kubeconfig(User::Viewer))
                .args(command.split_whitespace())
                .output()
                .expect("run lockkeeper");
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            if let Some(code) = code {
                assert_eq!(output.status.code(), Some(code), "{command}: {said}");
            }
            assert!(!said.contains("panicked"), "{command}: {said}");
        }

        let asked = arena.site.asked(User::Viewer);
        let writes: Vec<&Asked> = asked.iter().filter(|asked| asked.writes()).collect();
        assert!(writes.is_empty(), "{writes:?}");
        assert!(asked.iter().any(|asked| asked.resource == "nodes" && asked.verb == "list"), "the log has what it asked for");
        fleet.runs("looks-1", "1.0").await;
    });
}
