//! What frames look like, at every breakpoint, theme and glyph set.

use crate::{fixtures::busy, user::User};

#[test]
fn the_fleet_names_phase_blocker_and_queue() {
    let mut user = User::at(busy()).sized(140, 35);
    user.expect_text("gpu 1/11 on 2.0").expect_text("DisruptionBudget").expect_text("4 healthy, 4 needed");
}
