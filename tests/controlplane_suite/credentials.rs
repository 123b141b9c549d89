//! The reconciler's service account is deleted under it and made again, in the middle of a handoff: its old token is nobody's from then on.
//! It says what it waits for, goes on with the new token once that is in its kubeconfig, and ends what it had begun.

use std::{fs, path::Path, process::Command};

use k8s_openapi::api::core::v1::ServiceAccount;
use kube::{
    Api,
    api::{DeleteParams, PostParams},
};
use lockkeeper::{
    api::Phase,
    cli::manifests::{Manifests, RoleName, render},
};
use serde_json::{Value, json};

use crate::{
    fleet::{Fleet, LONG},
    reconciler::{Process, is_well},
    site::{Site, block_on},
    support::controlplane::{ControlPlane, User},
    wait::eventually,
};

const NAMESPACE: &str = "lockkeeper-system";
const NAME: &str = "rotated";
const USER: &str = "system:serviceaccount:lockkeeper-system:rotated";

/// Makes the account, and a kubeconfig with a token of it.
async fn log_in(plane: &ControlPlane, accounts: &Api<ServiceAccount>, kubeconfig: &Path) {
    let account: ServiceAccount = serde_json::from_value(json!({"metadata": {"name": NAME}})).expect("an account");
    eventually("the account", LONG, || async { accounts.create(&PostParams::default(), &account).await.map(Some) }).await;
    let token = plane.kubectl(["create", "token", NAME, "-n", NAMESPACE]).expect_ok();
    let text = fs::read_to_string(plane.kubeconfig(User::Admin)).expect("a kubeconfig");
    let mut config: Value = serde_saphyr::from_str(&text).expect("YAML");
    config["users"] = json!([{"name": NAME, "user": {"token": token.trim()}}]);
    config["contexts"] =
        json!([{"name": NAME, "context": {"cluster": config["clusters"][0]["name"], "user": NAME, "namespace": "default"}}]);
    config["current-context"] = json!(NAME);
    // In one step, as tools do that renew it.
    let new = kubeconfig.with_extension("new");
    fs::write(&new, config.to_string()).expect("write a kubeconfig");
    fs::rename(&new, kubeconfig).expect("rename a kubeconfig");
}

#[test]
fn a_reconciler_outlives_its_token() {
    let Some(site) = Site::own() else { return };
    let kubeconfig = site.plane.dir().join("rotated.kubeconfig");
    block_on(async {
        let manifests = Manifests { role: vec![RoleName::Reconciler], to_user: vec![USER.into()], ..Manifests::default() };
        site.plane.kubectl_as(User::Admin, ["apply", "-f", "-"], &render(&manifests, None).expect("manifests")).expect_ok();
        let accounts: Api<ServiceAccount> = Api::namespaced(site.plane.client(User::Admin).await, NAMESPACE);
        log_in(&site.plane, &accounts, &kubeconfig).await;
        let reconciler = Process::over(
            Command::new(env!("CARGO_BIN_EXE_lockkeeper"))
                .args(["reconcile", "--admin-address", "127.0.0.1:0", "--identity", NAME, "--kubeconfig"])
                .arg(&kubeconfig),
            site.plane.dir().join("rotated.log"),
        );
        let fleet = Fleet::start(&site, "rotated", 1, |_| {}).await;
        let node = fleet.nodes[0].clone();
        fleet.apply(&[fleet.claimants("training", 1)]).await;
        fleet.running("training", 1).await;
        fleet.release("2.0", fleet.module("2.0")).await;
        // Something to come back to.
        let path = format!("/apis/lockkeeper.dev/v1alpha1/namespaces/{}/nodehandoffs/gpu.{node}", fleet.name);
        fleet.operator.merge(&path, &json!({"spec": {"pauseAfter": ["Draining"]}})).await.expect("a pause");
        let attempt = fleet.hand_over(&node, "2.0", 1).await;
        let held = || async {
            let status = fleet.handoff(&node).await.and_then(|handoff| handoff.status).unwrap_or_default();
            if status.phase == Phase::Held { Ok(Some(())) } else { Err(format!("{status:?}")) }
        };
        eventually("the handoff to pause after its drain", LONG, held).await;

        accounts.delete(NAME, &DeleteParams::default()).await.expect("delete the account");
        let problem = |diagnostics: &Value| diagnostics["lease"]["problem"].as_str().unwrap_or_default().to_owned();
        eventually("the wait to be named", LONG, || async {
            let diagnostics = reconciler.diagnostics().unwrap_or_default();
            let said = problem(&diagnostics);
            let wanted =
                ["the credentials of context rotated are not accepted since 20", "401", "log in again", "rotated.kubeconfig"];
            if wanted.iter().all(|words| said.contains(words)) { Ok(Some(())) } else { Err(said) }
        })
        .await;
        eventually("it to give up the Lease", LONG, || async {
            Ok::<_, String>(reconciler.diagnostics().filter(|it| it["lease"]["ours"] == false).map(drop))
        })
        .await;
        // The person goes on with the handoff meanwhile: that is for later.
        fleet.operator.merge(&path, &json!({"spec": {"pauseAfter": []}})).await.expect("no pause");

        log_in(&site.plane, &accounts, &kubeconfig).await;
        let well = || async { Ok::<_, String>(reconciler.diagnostics().filter(is_well).map(drop)) };
        eventually("all to be well", LONG, well).await;
        fleet.operator.merge(&path, &json!({"spec": {"action": "Run"}})).await.expect("go on");
        fleet.ended(&node, attempt, Phase::Done).await;
        fleet.runs(&node, "2.0").await;
        assert_eq!(fleet.story(&node), "+1.0 -1.0 +2.0");
        fleet.undisturbed();
        assert_eq!(reconciler.said().matches("\"message\":\"reconciling\"").count(), 1, "it is the same process");
    });
}
