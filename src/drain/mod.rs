//! Pure: who claims a device, what a PodDisruptionBudget allows, what blocks.
