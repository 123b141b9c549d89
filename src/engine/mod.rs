//! The loop shared by the console and `reconcile`: observe, decide, do one guarded action, observe again.
