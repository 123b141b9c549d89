//! The objects and keys that lockkeeper reads and writes in a cluster: NodeComponent, NodeHandoff, labels, annotations.
