//! Waiting for what controllers do in their own time.

use std::{future::Future, time::Duration};

/// Asks until there is an answer. Panics with what was awaited once `within` has passed; a question that fails is asked again, and
/// the last failure is told.
#[track_caller]
pub fn eventually<T, E, F, Q>(what: &str, within: Duration, mut question: Q) -> impl Future<Output = T>
where
    E: std::fmt::Display,
    F: Future<Output = Result<Option<T>, E>>,
    Q: FnMut() -> F,
{
    let caller = std::panic::Location::caller();
    async move {
        let mut last = "it did not happen".to_owned();
        let asking = async {
            loop {
                match question().await {
                    Ok(Some(answer)) => return answer,
                    Ok(None) => last = "it did not happen".to_owned(),
                    Err(error) => last = error.to_string(),
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        match tokio::time::timeout(within, asking).await {
            Ok(answer) => answer,
            Err(_) => panic!("{caller}: waited {within:?} for {what}: {last}"),
        }
    }
}

/// Long enough for a controller on a busy machine.
pub const CONTROLLER: Duration = Duration::from_secs(300);
