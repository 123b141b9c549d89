//! Credentials that end while the program runs: it takes what is in the kubeconfig by then, and says what it waits for until it is of use.

use serde_json::{Value, json};

use crate::{
    reconcile::{Running, get, until},
    run::run,
    served::{Install, Served},
};

#[test]
fn a_reconciler_goes_on_with_the_token_that_is_in_the_kubeconfig_by_then() {
    let home = tempfile::tempdir().unwrap();
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "lockkeeper-system"}});
    let served = Served::start(home.path(), Install::All, &[namespace]);
    served.accept("t");
    let mut reconciler = Running::start(home.path(), &served.kubeconfig, "rotated");
    let address = reconciler.address();
    let diagnostics = || serde_json::from_str::<Value>(&get(address, "/diagnostics").1).unwrap();
    let watches = |wanted: &dyn Fn(&Value) -> bool| {
        let diagnostics = diagnostics();
        diagnostics["watches"].as_array().unwrap().iter().filter(|it| it["required"] == true).all(wanted)
    };
    let live = |watch: &Value| watch["state"] == "Live";
    let acts = || diagnostics()["lease"]["ours"] == true && watches(&live);
    until("it acts", acts);

    // The token ends, and nobody has logged in yet.
    served.accept("u");
    let named = |text: &Value| {
        text.as_str().is_some_and(|text| {
            text.contains("the credentials of context sim are not accepted since 20")
                && text.contains("log in again, or renew them in kubeconfig")
                && text.contains(served.kubeconfig.to_str().unwrap())
        })
    };
    until("every watch and the Lease name what is awaited", || {
        watches(&|watch| watch["state"] == "Retrying" && named(&watch["error"])) && named(&diagnostics()["lease"]["problem"])
    });
    until("it does not act", || diagnostics()["lease"]["ours"] == false);
    assert_eq!(get(address, "/live").0, 200, "to start it again would not help");

    served.log_in("u");
    until("it acts again", acts);
    reconciler.says("the credentials of context sim are accepted again");
    assert!(reconciler.child.try_wait().unwrap().is_none(), "it is the same process");

    // A renewal that comes before anybody notices is nobody's business.
    served.log_in("v");
    served.accept("v");
    reconciler.says("the credentials of context sim were read again");
    until("it acts still", acts);
}

#[test]
fn a_command_says_what_to_do_about_credentials_that_are_not_accepted() {
    let home = tempfile::tempdir().unwrap();
    let served = Served::start(home.path(), Install::All, &[]);
    served.accept("u");
    let ran = run(home.path(), &served.args(&["status"]));
    assert_eq!(ran.code, Some(2), "{ran:?}");
    for words in ["context sim", "not accepted (401)", "Log in again"] {
        assert!(ran.stderr.contains(words), "no {words:?} in {}", ran.stderr);
    }
}
