//! Pure: phases, decide tables, preflight, interlock, budget, queue.
