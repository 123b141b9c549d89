//! Commands on a cluster that answers: what they say, what they write, and what they never send.

use crate::{run::run, served::Served};

#[test]
fn doctor_says_what_is_missing() {
    let home = tempfile::tempdir().unwrap();
    let served = Served::start(home.path(), &[]);
    let ran = run(home.path(), &served.args(&["doctor"]));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    for words in ["objects ok", "admission note", "manifests --admission", "there is no Lease lockkeeper-system/lockkeeper"] {
        let said = ran.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(said.contains(words), "no {words:?} in {}", ran.stdout);
    }
    assert_eq!(served.mutating(), []);
}
